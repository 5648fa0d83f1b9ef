"""The encoder writes its events by hand: the same bytes as the table of the envelope's fields says, field by field."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from librt.strings import BytesWriter

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.envelope_fields import ENVELOPE, ROW, TRUNCATE_ENVELOPE, EnvelopeField, RecordType
from cdcd.avro.envelope_writer import write_fields
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.pgoutput.tuples import TEXT, UNCHANGED, ColumnValue
from cdcd.reading.postgres_text import without_logical_types
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

ROW_TYPE = RecordType(
    ROW,
    (
        EnvelopeField("id", "long", is_nullable=True),
        EnvelopeField("name", "string", is_nullable=True),
        EnvelopeField("due", "long", is_nullable=True),
    ),
)
RELATION = ResolvedRelation(
    7,
    "public",
    "t",
    "d",
    [
        ResolvedColumn("id", PgType(23, "pg_catalog", "int4"), -1, True),
        ResolvedColumn("name", PgType(25, "pg_catalog", "text"), -1, False),
        ResolvedColumn("due", PgType(1082, "pg_catalog", "date"), -1, False),
    ],
)


def by_the_table(value: dict[str, Any], fields: tuple[EnvelopeField, ...]) -> bytes:
    """The event's bytes as `write_fields` makes them of its values."""
    out = BytesWriter()
    write_fields(out, [field._replace(type=ROW_TYPE) if field.type == ROW else field for field in fields], value)
    return out.getvalue()


def insert(*new: ColumnValue) -> bytes:
    return encode(m.Insert(0, 7, tuple_of(new)))


def update(kind: str, old: list[ColumnValue], *new: ColumnValue) -> bytes:
    return encode(m.Update(0, 7, ord(kind), tuple_of(old), tuple_of(new)))


@pytest.mark.parametrize("origin", ["", "elsewhere"])
def test_every_kind_of_event_has_the_fields_of_the_table_in_their_order(origin: str) -> None:
    batches = BatchBuilder(tombstones=False)
    encoder = EventEncoder(batches, FingerprintStore(batches), TypeOptions())
    rows = encoder.open_relation(RELATION)
    encoder.begin(100, 1_700_000_000_000_000, 4_000_000_000)
    if origin:
        encoder.origin(origin)
    rows.insert(insert(b"1", b"one", None), 5, 42)
    rows.insert(insert(b"2", None, b"infinity"), 5, 43)
    rows.update(update("O", [b"2", b"two", b"infinity"], b"2", UNCHANGED, b"2000-01-01"), 5, 44)
    rows.update(encode(m.Update(0, 7, m.NO_OLD, None, tuple_of([b"2", UNCHANGED, b"-infinity"]))), 5, 45)
    rows.update(update("K", [b"2", None, None], b"3", UNCHANGED, None), 5, 46)
    rows.delete(encode(m.Delete(0, 7, ord("K"), tuple_of([b"3", None, None]))), 5, 47)
    rows.truncate(48, cascade=True, restart_identity=False)
    encoder.commit(110)
    encoder.begin_snapshot(200, 1_700_000_000_000_001)
    rows.snapshot_row(b"\0\0\0\x011\xff\xff\xff\xff\0\0\0\x08infinity", 0, bytes([TEXT]) * 3, 49)

    batch = batches.build()
    schemas = {bytes.fromhex(digest): without_logical_types(json.loads(text)) for digest, text in batch.schemas}
    ops = []
    [table] = batch.tables
    for value in [message["value"] or b"" for message in table.messages]:
        schema = schemas[value[2:10]]
        event: Any = fastavro.schemaless_reader(io.BytesIO(value[10:]), fastavro.parse_schema(schema), None)
        fields = TRUNCATE_ENVELOPE if event["op"] == "t" else ENVELOPE
        assert [field["name"] for field in schema["fields"]] == [field.name for field in fields]
        assert by_the_table(event, fields) == value[10:]
        ops.append(event["op"])
    assert "".join(ops) == "ccuudcdtr"
