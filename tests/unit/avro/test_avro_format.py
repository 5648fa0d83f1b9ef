"""The format gives an attempt two encoders, and puts schemas where readers look for them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.schema_store import SchemaStore
from cdcd.avro.single_object import MARKER
from cdcd.errors import TypeChanged
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.tuples import TEXT
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
ROW = b"N" + encode_tuple([b"1"])
SNAPSHOT_ROW = b"\0\0\0\x011"


class Registry(SchemaStore):
    """Gives every schema the same id, and keeps the tables' names."""

    def __init__(self) -> None:
        self.tables: list[str] = []

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        self.tables.append(f"{name}-{subject}")
        return b"\0\0\0\0\1"


def relation(name: str, pgtype: PgType = INT4) -> ResolvedRelation:
    return ResolvedRelation(7, "public", name, "d", [ResolvedColumn("id", pgtype, -1, True)])


def avro_format(
    registry: SchemaStore | None = None,
    on_schema: Callable[[str, bytes], None] = lambda *_: None,
    encoding: str = "UTF8",
) -> AvroFormat:
    return AvroFormat("decimal", encoding, on_schema, registry, frozenset({("public", "parked")}))


def test_without_a_registry_each_encoder_sends_schemas_with_its_own_records() -> None:
    seen: list[str] = []
    events = avro_format(on_schema=lambda table, header: seen.append(f"{table} {header[:2].hex()}"))
    for_stream, for_snapshot = BatchBuilder(tombstones=False), BatchBuilder(tombstones=False)
    stream, snapshot = events.stream_encoder(for_stream), events.snapshot_encoder(for_snapshot)
    stream.begin(1, 0, 1)
    stream.open_relation(relation("t")).insert(ROW, 0, 1)
    stream.commit(2)
    snapshot.begin_snapshot(1, 0)
    snapshot.open_relation(relation("t")).snapshot_row(SNAPSHOT_ROW, 0, bytes([TEXT]), 1)
    assert [len(each.build().schemas) for each in (for_stream, for_snapshot)] == [2, 2]
    assert seen == ["public.t c301"]


def test_with_a_registry_only_parked_tables_have_their_schemas_in_kafka() -> None:
    registry = Registry()
    events = avro_format(registry)
    batches = BatchBuilder(tombstones=False)
    stream = events.stream_encoder(batches)
    stream.begin(1, 0, 1)
    for name in ("t", "parked"):
        stream.open_relation(relation(name)).insert(ROW, 0, 1)
    stream.commit(2)
    batch = batches.build()
    assert registry.tables == ["t-value", "t-key"]
    assert [json.loads(text)["namespace"] for _, text in batch.schemas] == ["public.parked"] * 2
    assert [(table.messages[0]["value"] or b"")[:2] for table in batch.tables] == [b"\0\0", MARKER]
    snapshot = events.snapshot_encoder(batches)
    snapshot.begin_snapshot(1, 0)
    snapshot.open_relation(relation("u")).snapshot_row(SNAPSHOT_ROW, 0, bytes([TEXT]), 1)
    assert registry.tables[2:] == ["u-value", "u-key"]


def test_a_value_is_dated_by_the_transaction_of_the_stream() -> None:
    pair = PgType(5000, "public", "pair", "c", fields=(("a", INT4, -1), ("b", INT4, -1)), asked_lsn=100)
    stream = avro_format().stream_encoder(BatchBuilder(tombstones=False))
    rows = stream.open_relation(relation("t", pair))
    shorter = b"N" + encode_tuple([b"(1)"])
    stream.begin(99, 0, 1)
    rows.insert(shorter, 0, 1)
    stream.begin(100, 0, 1)
    with pytest.raises(TypeChanged):
        rows.insert(shorter, 0, 1)


def test_text_of_a_database_without_an_encoding_is_checked() -> None:
    batches = BatchBuilder(tombstones=False)
    stream = avro_format(encoding="SQL_ASCII").stream_encoder(batches)
    stream.begin(1, 0, 1)
    text = PgType(25, "pg_catalog", "text")
    stream.open_relation(relation("t", text)).insert(b"N" + encode_tuple([b"caf\xe9"]), 0, 1)
    stream.commit(2)
    assert b"caf\\xe9" in (batches.build().tables[0].messages[0]["value"] or b"")
