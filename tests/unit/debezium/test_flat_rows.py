"""Flat rows: Debezium's rows without the envelope, by the names of its ExtractNewRecordState."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest

from cdcd.avro.schema_store import SchemaStore, SchemaStores
from cdcd.debezium.added_fields import names_of
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.modes import PLACEHOLDER, DeleteMode, Modes, RowModes
from cdcd.errors import Unpublishable
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.tuples import UNCHANGED, ColumnValue
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
TEXT = PgType(25, "pg_catalog", "text")
USUAL = ("op", "lsn", "source.ts_ms")
A_B = (ResolvedColumn("a", INT4, -1, True), ResolvedColumn("b", TEXT, -1, False))


class Encoded:
    """An encoder of flat rows, and the records that it has made."""

    def __init__(
        self,
        *columns: ResolvedColumn,
        fields: tuple[str, ...] = USUAL,
        prefix: str = "__",
        deletes: DeleteMode = "tombstone",
        identity: str = "d",
        stores: SchemaStores | None = None,
        parked: frozenset[tuple[str, str]] = frozenset(),
        **modes: Any,
    ) -> None:
        self.batches = BatchBuilder(deletes == "rewrite-with-tombstone", truncate_key=None)
        rows = RowModes(tuple(names_of(fields, prefix)), deletes)
        self.clock = iter(range(1_000_000_000, 10**15, 1_000_000_000))
        modes_of = Modes(rows=rows, **modes)
        clock = self.clock
        events = DebeziumFormat(modes_of, ("p", "db"), "UTF8", lambda: next(clock), 100, stores=stores, parked=parked)
        self.encoder = events.stream_encoder(self.batches)
        relation = ResolvedRelation(1, "s", "t", identity, list(columns or A_B))
        relation.order_key(tuple(column.name for column in columns or A_B if column.in_key))
        self.changes: RelationChanges = self.encoder.open_relation(relation)
        self.encoder.begin(200, 5_000_001, 7)

    def records(self) -> list[Any]:
        self.encoder.commit(208)
        tables = self.batches.build().tables
        return tables[0].messages if tables else []

    def insert(self, *values: ColumnValue) -> None:
        self.changes.insert(b"N" + encode_tuple(list(values)), 0, 150)

    def delete(self, kind: bytes, *values: ColumnValue) -> None:
        self.changes.delete(kind + encode_tuple(list(values)), 0, 150)


def test_a_row_has_its_columns_and_behind_them_what_was_asked_for() -> None:
    encoded = Encoded()
    encoded.insert(b"1", b"x")
    encoded.changes.update(b"N" + encode_tuple([b"1", b"y"]), 0, 151)
    encoded.delete(b"K", b"1", None)
    assert encoded.records() == [
        {"key": b'{"a":1}', "value": b'{"a":1,"b":"x","__op":"c","__lsn":150,"__source_ts_ms":5000}'},
        {"key": b'{"a":1}', "value": b'{"a":1,"b":"y","__op":"u","__lsn":151,"__source_ts_ms":5000}'},
        {"key": b'{"a":1}', "value": None},
    ]


def test_every_field_of_an_event_can_be_added() -> None:
    fields = (
        "op", "ts_ms", "ts_us", "ts_ns", "version", "connector", "name", "source.ts_ms", "snapshot", "db", "sequence",
        "source.ts_us", "source.ts_ns", "schema", "table", "txId", "lsn", "source.lsn", "xmin", "origin",
        "origin_lsn:from",
    )  # fmt: skip
    encoded = Encoded(fields=fields)
    encoded.insert(b"1", b"x")
    encoded.encoder.origin("elsewhere", 7)
    encoded.insert(b"2", b"x")
    first, second = (json.loads(record["value"]) for record in encoded.records())
    assert first == {
        "a": 1, "b": "x", "__op": "c", "__ts_ms": 1000, "__ts_us": 1_000_000, "__ts_ns": 1_000_000_000,
        "__version": "3.7.0.Final", "__connector": "postgresql", "__name": "p", "__source_ts_ms": 5000,
        "__snapshot": "false", "__db": "db", "__sequence": '["100","150"]', "__source_ts_us": 5_000_001,
        "__source_ts_ns": 5_000_001_000, "__schema": "s", "__table": "t", "__txId": 7, "__lsn": 150,
        "__source_lsn": 150, "__xmin": None, "__origin": None, "__from": None,
    }  # fmt: skip
    assert second == {**first, "a": 2, "__origin": "elsewhere", "__from": 7}


class OneSchema(SchemaStore):
    """Keeps the last schema of each part."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        self.texts[subject] = text
        return b""


@pytest.mark.parametrize("origin", ["", "elsewhere"])
def test_every_field_in_avro_is_that_in_json(origin: str) -> None:
    fields = (
        "lsn",
        "op",
        "sequence",
        "ts_us",
        "txId",
        "table",
        "db",
        "snapshot",
        "xmin",
        "origin",
        "origin_lsn",
        "source.lsn",
    )
    store = OneSchema()
    rows: list[list[bytes]] = []
    for stores in (None, SchemaStores(registry=store)):
        encoded = Encoded(fields=fields, deletes="rewrite", stores=stores)
        encoded.encoder.origin(origin, 7)
        encoded.insert(b"1", b"x")
        encoded.delete(b"K", b"1", None)
        rows.append([record["value"] for record in encoded.records()])
    schema = fastavro.parse_schema(json.loads(store.texts["value"]))
    in_avro: list[Any] = [fastavro.schemaless_reader(BytesIO(value), schema, None) for value in rows[1]]
    assert in_avro == [json.loads(value) for value in rows[0]]
    assert in_avro[1]["__deleted"] == "true"


def test_what_is_added_is_that_of_the_transaction() -> None:
    encoded = Encoded(fields=("txId", "ts_ms", "sequence"))
    encoded.insert(b"1", None)
    encoded.encoder.commit(208)
    encoded.encoder.begin(300, 6_000_000, 8)
    encoded.insert(b"2", None)
    encoded.encoder.commit(308)
    encoded.encoder.begin_snapshot(400, 7_000_000)
    encoded.changes.snapshot_row(b"\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff", 0, b"bt", 400)
    found = [json.loads(message["value"] or b"") for message in encoded.batches.build().tables[0].messages]
    assert [list(each.values())[2:] for each in found] == [
        [7, 1000, '["100","150"]'], [8, 2000, '["208","150"]'], [None, 3000, '[null,"400"]']
    ]  # fmt: skip


def test_a_schema_is_that_of_the_value_with_the_fields_behind() -> None:
    encoded = Encoded(with_schemas=True, deletes="rewrite", fields=("op", "snapshot"))
    encoded.insert(b"1", None)
    [record] = encoded.records()
    assert record["value"] == (
        b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":true,"field":"a"},'
        b'{"type":"string","optional":true,"field":"b"},{"type":"string","optional":true,"field":"__deleted"},'
        b'{"type":"string","optional":true,"field":"__op"},'
        b'{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":'
        b'"true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},"field":"__snapshot"}],'
        b'"optional":false,"name":"p.s.t.Value"},'
        b'"payload":{"a":1,"b":null,"__deleted":"false","__op":"c","__snapshot":"false"}}'
    )
    key = json.loads(record["key"])
    assert (key["schema"]["name"], key["payload"]) == ("p.s.t.Key", {"a": 1})


@pytest.mark.parametrize(
    ("deletes", "after_delete"),
    [
        ("tombstone", [None]),
        ("rewrite", [b'{"a":1,"b":null,"__deleted":"true"}']),
        ("rewrite-with-tombstone", [b'{"a":1,"b":null,"__deleted":"true"}', None]),
        ("drop", []),
    ],
)
def test_a_delete_is_what_the_mode_says(deletes: DeleteMode, after_delete: list[bytes | None]) -> None:
    encoded = Encoded(deletes=deletes, fields=())
    encoded.delete(b"K", b"1", None)
    assert [record["value"] for record in encoded.records()] == after_delete


@pytest.mark.parametrize(
    ("deletes", "before"),
    [("tombstone", [None]), ("rewrite-with-tombstone", [{"a": 1, "b": "x", "__deleted": "true"}, None]), ("drop", [])],
)
def test_a_changed_key_is_a_delete_and_a_new_row_with_headers(deletes: DeleteMode, before: list[Any]) -> None:
    encoded = Encoded(deletes=deletes, fields=())
    encoded.changes.update(b"O" + encode_tuple([b"1", b"x"]) + b"N" + encode_tuple([b"2", b"y"]), 0, 150)
    *old, new = encoded.records()
    assert [record["value"] and json.loads(record["value"]) for record in old] == before
    assert {record["key"] for record in old} <= {b'{"a":1}'}
    assert all(record["headers"] == [("__debezium.newkey", b'{"a":2}')] for record in old)
    assert (new["key"], new["headers"]) == (b'{"a":2}', [("__debezium.oldkey", b'{"a":1}')])
    row = json.loads(new["value"])
    assert (row["a"], row["b"], row.get("__deleted", "false")) == (2, "y", "false")


def test_without_a_key_a_delete_is_a_flagged_row_or_nothing() -> None:
    columns = [ResolvedColumn(column.name, column.pgtype, -1, False) for column in A_B]
    flagged, nothing = (Encoded(*columns, identity="f", fields=(), deletes=mode) for mode in ("rewrite", "tombstone"))
    for encoded in (flagged, nothing):
        encoded.delete(b"O", b"1", b"x")
    assert flagged.records() == [{"value": b'{"a":1,"b":"x","__deleted":"true"}'}]
    assert nothing.records() == []


def test_an_unchanged_value_is_that_of_the_old_row_or_the_placeholder() -> None:
    encoded = Encoded(fields=())
    new = encode_tuple([b"1", UNCHANGED])
    encoded.changes.update(b"N" + new, 0, 150)
    encoded.changes.update(b"O" + encode_tuple([b"1", b"long"]) + b"N" + new, 0, 150)
    assert [json.loads(record["value"])["b"] for record in encoded.records()] == [PLACEHOLDER, "long"]


@pytest.mark.parametrize("before", [(), (b"2", b"y")])
def test_an_old_row_without_a_key_gets_no_tombstone_and_no_header(before: tuple[ColumnValue, ...]) -> None:
    encoded = Encoded(identity="f", fields=())
    if before:
        encoded.insert(*before)
    encoded.changes.update(b"O" + encode_tuple([None, b"x"]) + b"N" + encode_tuple([b"1", b"x"]), 0, 150)
    *earlier, last = encoded.records()
    assert [record.get("headers") for record in earlier] == [None] * bool(before)
    assert last == {"key": b'{"a":1}', "value": b'{"a":1,"b":"x"}'}


@pytest.mark.parametrize(("fields", "shown"), [((), b"{}"), (("op",), b'{"__op":"c"}')])
def test_a_row_without_columns_is_still_json(fields: tuple[str, ...], shown: bytes) -> None:
    unknown = PgType(9, "s", "pair", "c", fields=(("x", INT4, -1),))
    encoded = Encoded(ResolvedColumn("u", unknown, -1, False), fields=fields)
    encoded.insert(b"(1)")
    assert [record["value"] for record in encoded.records()] == [shown]


def test_a_truncate_is_nothing() -> None:
    encoded = Encoded(truncates=True)
    encoded.changes.truncate(150, False, False)
    assert encoded.records() == []


def test_a_column_with_the_name_of_a_field_makes_the_table_unpublishable() -> None:
    columns = (*A_B, ResolvedColumn("__op", TEXT, -1, False))
    with pytest.raises(Unpublishable, match="has a column __op") as refused:
        Encoded(*columns).insert(b"1", b"x", b"y")
    assert refused.value.code == "row-field-taken"
    assert refused.value.table == ("s", "t")
    Encoded(*columns, fields=("lsn",)).insert(b"1", b"x", b"y")
    Encoded(*columns, parked=frozenset({("s", "t")})).insert(b"1", b"x", b"y")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        (("offset",), "offset is no field of an event"),
        (("before.id",), "before.id is no field"),
        (("transaction.id",), "transaction.id is no field"),
        (("source.op",), "source.op is no field"),
        (("op", "lsn:op"), "two fields would have the name __op"),
        (("op:deleted",), "two fields would have the name __deleted"),
    ],
)
def test_fields_that_are_not_there_are_refused(fields: tuple[str, ...], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        names_of(fields, "__")
