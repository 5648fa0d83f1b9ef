"""The schemas of relations, and records written by them: names that clash."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder, RowEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation


def catalog(name: str, **more: Any) -> PgType:
    return PgType(more.pop("oid", 1), "pg_catalog", name, **more)


class Records:
    """The events of one table, read back by their own schemas."""

    def __init__(self) -> None:
        self.builder = BatchBuilder(tombstones=False)

    @property
    def found(self) -> list[tuple[Any, Any]]:
        batch = self.builder.build()
        schemas = {fingerprint: fastavro.parse_schema(json.loads(text)) for fingerprint, text in batch.schemas}

        def read(data: bytes | None) -> Any:
            if data is None:
                return None
            return fastavro.schemaless_reader(io.BytesIO(data[10:]), schemas[data[2:10].hex()], None)

        [made] = batch.tables
        return [(read(message.get("key")), read(message["value"])) for message in made.messages]


def table(*columns: ResolvedColumn) -> tuple[Records, RowEncoder]:
    records = Records()
    encoder = EventEncoder(records.builder, FingerprintStore(records.builder), TypeOptions())
    rows = encoder.open_relation(ResolvedRelation(7, "public", "t", "d", list(columns)))
    encoder.begin(1, 0, 1)
    return records, rows


def test_a_key_column_may_be_called_unrepresentable() -> None:
    records, rows = table(ResolvedColumn("unrepresentable", catalog("date"), -1, True))
    rows.insert(b"N" + encode_tuple([b"infinity"]), 0, 1)
    [(key, _)] = records.found
    assert key == {
        "unrepresentable": None, "_unrepresentable": [{"column": "unrepresentable", "text": "infinity"}],
    }  # fmt: skip


def test_two_types_whose_names_are_the_same_with_a_dot_between_are_two() -> None:
    one = PgType(50, "a", "b.c", kind="c", fields=(("x", catalog("int4", oid=23), -1),))
    other = PgType(51, "a.b", "c", kind="c", fields=(("y", catalog("text", oid=25), -1),))
    columns = [ResolvedColumn(name, of, -1, False) for name, of in (("p", one), ("q", other), ("r", other), ("s", one))]
    records, rows = table(*columns)
    rows.insert(b"N" + encode_tuple([b"(1)", b"(ab)", b"(cd)", b"(2)"]), 0, 1)
    [(_, event)] = records.found
    assert event["after"] == {"p": {"x": 1}, "q": {"y": "ab"}, "r": {"y": "cd"}, "s": {"x": 2}}
