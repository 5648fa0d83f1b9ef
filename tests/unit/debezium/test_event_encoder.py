from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from cdcd.avro.schema_store import SchemaStore, SchemaStores
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.lost_values import LOST
from cdcd.debezium.modes import PLACEHOLDER, Modes
from cdcd.errors import DecodeError, Unpublishable
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.tuples import UNCHANGED
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import Attribute, PgType
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.column_rules import PartitionChoice
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
TEXT = PgType(25, "pg_catalog", "text")
NUMERIC = PgType(1700, "pg_catalog", "numeric")
MULTIRANGE = PgType(4451, "pg_catalog", "int4multirange", "m")


def column(name: str, pgtype: PgType = TEXT, *, in_key: bool = False, required: bool = False, default: str = "") -> Any:
    now = Attribute(1, pgtype.oid, None, required, default)
    return ResolvedColumn(name, pgtype, -1, in_key, now=now)


class Encoded:
    """An encoder, and the records that it has made."""

    def __init__(
        self,
        *columns: Any,
        encoding: str = "UTF8",
        identity: str = "d",
        registry: SchemaStore | None = None,
        parked: frozenset[tuple[str, str]] = frozenset(),
        lost: bool = False,
        **modes: Any,
    ) -> None:
        self.batches = BatchBuilder(tombstones=True, truncate_key=None)
        stores = None if registry is None else SchemaStores(registry=registry, parked=parked)
        events = DebeziumFormat(Modes(**modes), ("p", "db"), encoding, lambda: 1_000_000_000, 100, stores=stores)
        self.encoder = events.stream_encoder(self.batches)
        relation = ResolvedRelation(1, "s", "t", identity, list(columns))
        relation.order_key(("b", "a"))
        relation.has_lost_key = lost
        self.changes: RelationChanges = self.encoder.open_relation(relation)
        self.encoder.begin(200, 5_000_001, 7)

    def records(self) -> list[Any]:
        self.encoder.commit(208)
        [table] = self.batches.build().tables
        return table.messages

    def events(self) -> list[Any]:
        return [each["value"] and json.loads(each["value"]) for each in self.records()]

    def insert(self, *values: bytes | None) -> None:
        self.changes.insert(b"N" + encode_tuple(list(values)), 0, 150)


def test_an_event_has_the_fields_of_debezium_in_their_order() -> None:
    encoded = Encoded(column("a", INT4, in_key=True), column("b", in_key=True))
    encoded.insert(b"1", b"x")
    [record] = encoded.records()
    assert record["key"] == b'{"b":"x","a":1}'
    assert record["value"] == (
        b'{"before":null,"after":{"a":1,"b":"x"},"source":{"version":"3.7.0.Final","connector":"postgresql","name":"p",'
        b'"ts_ms":5000,"snapshot":"false","db":"db","sequence":"[\\"100\\",\\"150\\"]","ts_us":5000001,'
        b'"ts_ns":5000001000,"schema":"s","table":"t","txId":7,"lsn":150,"xmin":null,"origin":null,"origin_lsn":null},'
        b'"transaction":null,"op":"c","ts_ms":1000,"ts_us":1000000,"ts_ns":1000000000}'
    )


def test_an_old_row_with_its_key_only_is_refused_unless_a_mask_has_taken_the_key_of_a_parked_table() -> None:
    old = encode_tuple([None, b"x"])
    new = b"N" + encode_tuple([b"1", b"y"])
    refused, encoded = (Encoded(column("a", INT4), column("b"), lost=lost) for lost in (False, True))
    with pytest.raises(DecodeError, match="its key only"):
        refused.changes.delete(b"K" + old, 0, 150)
    with pytest.raises(DecodeError, match="its key only"):
        refused.changes.update(b"K" + old + new, 0, 150)
    encoded.changes.delete(b"K" + old, 0, 150)
    encoded.changes.update(b"K" + old + new, 0, 150)
    assert [record.get("key") for record in encoded.records()] == [None, None]


def test_a_null_from_before_the_column_became_not_null_stays_null_and_the_schema_says_so() -> None:
    encoded = Encoded(
        column("a", INT4, in_key=True), column("b", required=True, default="'d'::text"), with_schemas=True
    )
    encoded.insert(b"1", b"x")
    encoded.insert(b"2", None)
    first, second = encoded.events()
    assert [_field(each, "b")["optional"] for each in (first, second)] == [False, True]
    assert [_field(each, "b")["default"] for each in (first, second)] == ["d", "d"]
    assert second["payload"]["after"] == {"a": 2, "b": None}


def test_so_it_does_in_a_snapshot() -> None:
    encoded = Encoded(column("a", required=True), column("b", required=True), with_schemas=True)
    encoded.encoder.begin_snapshot(299, 9_000_000)
    encoded.changes.snapshot_row(b"\xff" * 8, 0, b"tt", 299)
    [event] = encoded.events()
    assert [_field(event, name)["optional"] for name in "ab"] == [True, True]
    assert event["payload"]["after"] == {"a": None, "b": None}


def _field(event: Any, name: str) -> Any:
    [after] = [each for each in event["schema"]["fields"] if each["field"] == "after"]
    return next(each for each in after["fields"] if each["field"] == name)


def test_an_old_key_alone_has_what_stands_for_values_that_did_not_come() -> None:
    encoded = Encoded(column("a", INT4, in_key=True), column("b", required=True), column("c"))
    encoded.changes.delete(b"K" + encode_tuple([b"1", None, None]), 0, 150)
    event, tombstone = encoded.events()
    assert event["before"] == {"a": 1, "b": "", "c": None}
    assert tombstone is None


@pytest.mark.parametrize(("chosen", "shown"), [(True, "d"), (False, None)])
def test_null_is_the_default_of_the_column_only_if_that_is_wanted(chosen: bool, shown: str | None) -> None:
    encoded = Encoded(column("a", INT4, in_key=True), column("b", default="'d'::text"), null_as_default=chosen)
    encoded.insert(b"1", None)
    assert encoded.events()[0]["after"] == {"a": 1, "b": shown}


def test_two_keys_that_the_type_cannot_hold_are_two_keys() -> None:
    encoded = Encoded(column("a", NUMERIC, in_key=True))
    for value in (b"NaN", b"Infinity", b"1.0"):
        encoded.insert(value)
    keys = [record["key"] for record in encoded.records()]
    assert keys == [b'{"a":"NaN"}', b'{"a":"Infinity"}', b'{"a":{"scale":0,"value":"AQ=="}}']


def lost_values(record: Any) -> Any:
    """What the header says: image, column and text of each value."""
    texts = [text for name, text in record.get("headers", ()) if name == LOST]
    return [tuple(each.values()) for text in texts for each in json.loads(text)]


def test_a_header_has_what_the_types_of_connect_cannot_hold_if_that_is_wanted() -> None:
    columns = (column("a", INT4, in_key=True), column("n", NUMERIC, required=True), column("q", MULTIRANGE))
    wanted, plain = (Encoded(*columns, identity="f", keeps_lost=chosen) for chosen in (True, False))
    for encoded in (wanted, plain):
        encoded.insert(b"1", b"NaN", None)
        old, new = encode_tuple([b"1", b"NaN", b"{[1,2)}"]), encode_tuple([b"2", b"Infinity", b"{}"])
        encoded.changes.update(b"O" + old + b"N" + new, 0, 160)
        encoded.insert(b"3", b"1", None)
        encoded.changes.delete(b"O" + old, 0, 170)
        encoded.encoder.begin_snapshot(299, 9_000_000)
        encoded.changes.snapshot_row(b"\0\0\0\1" + b"4" + b"\0\0\0\3NaN" + b"\xff" * 4, 0, b"ttt", 299)
    records, others = wanted.records(), plain.records()
    before = [("before", "n", "NaN"), ("before", "q", "{[1,2)}")]
    after = [("after", "n", "Infinity"), ("after", "q", "{}")]
    nan = [("after", "n", "NaN")]
    assert [lost_values(record) for record in records] == [nan, before, before, after, [], before, before, nan]
    names = [[name for name, _ in record.get("headers", ())] for record in records]
    assert names[1:4] == [["__debezium.newkey", LOST]] * 2 + [["__debezium.oldkey", LOST]]
    assert [record["value"] for record in records] == [record["value"] for record in others]
    assert all(name != LOST for record in others for name, _ in record.get("headers", ()))


def test_the_header_tells_an_unchanged_value_that_debezium_writes_as_null_from_null() -> None:
    unchanged = b"N" + encode_tuple([b"1", UNCHANGED, UNCHANGED, UNCHANGED])
    encoded = Encoded(
        column("a", INT4, in_key=True), column("t"), column("n", NUMERIC), column("q", MULTIRANGE), keeps_lost=True
    )
    encoded.changes.update(unchanged, 0, 150)
    encoded.changes.update(b"O" + encode_tuple([b"1", b"text", b"NaN", b"{[1,2)}"]) + unchanged, 0, 150)
    unknown, known = encoded.records()
    assert json.loads(unknown["value"])["after"] == {"a": 1, "t": PLACEHOLDER, "n": None}
    assert lost_values(unknown) == [("after", "n", PLACEHOLDER), ("after", "q", PLACEHOLDER)]
    assert json.loads(known["value"])["after"] == {"a": 1, "t": "text", "n": None}
    values = [("n", "NaN"), ("q", "{[1,2)}")]
    assert lost_values(known) == [(image, *each) for image in ("before", "after") for each in values]


@pytest.mark.parametrize("sign", [b"", b"-"])
@pytest.mark.parametrize("zeros", [3_998, 3_999, 4_000, 130_000])
def test_a_numeric_may_have_more_digits_than_pythons_int_takes(sign: bytes, zeros: int) -> None:
    """A row that ended the daemon did so again at each start."""
    raw, number = sign + b"1" + b"0" * zeros + b"7.25", (10 ** (zeros + 3) + 725) * (-1 if sign else 1)
    shown = []
    for mode in ("precise", "string", "double"):
        encoded = Encoded(column("a", INT4, in_key=True), column("b", NUMERIC), decimal=mode)
        encoded.insert(b"1", raw)
        shown += [event["after"]["b"] for event in encoded.events()]
    assert shown[0]["scale"] == 2
    assert int.from_bytes(b64decode(shown[0]["value"]), "big", signed=True) == number
    assert shown[1:] == [raw.decode(), "-Infinity" if sign else "Infinity"]


@pytest.mark.parametrize("wrong", [b"", b"-", b".", b"1.2.3", b"--1", b"1-", b"1_0", b" 1"])
@pytest.mark.parametrize("mode", ["precise", "string", "double"])
def test_what_is_no_number_is_refused(wrong: bytes, mode: str) -> None:
    with pytest.raises(DecodeError, match="numeric"):
        Encoded(column("a", NUMERIC), decimal=mode).insert(wrong)


def test_text_that_is_no_utf8_is_escaped_and_the_event_is_still_json() -> None:
    encoded = Encoded(column("a", INT4, in_key=True), column("b"), encoding="SQL_ASCII")
    encoded.insert(b"1", b'caf\xe9 \\ "')
    encoded.insert(b"2", "é \\".encode())
    assert [event["after"]["b"] for event in encoded.events()] == ['caf\\xe9 \\\\ "', "é \\"]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_truncate_is_an_event_only_if_that_is_wanted(wanted: bool) -> None:
    encoded = Encoded(column("a", INT4, in_key=True), truncates=wanted)
    encoded.changes.truncate(150, False, False)
    encoded.insert(b"1")
    assert [event["op"] for event in encoded.events()] == (["t"] if wanted else []) + ["c"]


def test_a_row_of_a_snapshot_says_so_and_is_checked() -> None:
    encoded = Encoded(column("a", INT4, in_key=True), column("b"))
    encoded.encoder.begin_snapshot(299, 9_000_000)
    row = b"\0\0\0\x04" + b"\0\0\0\x07" + b"\xff\xff\xff\xff"
    encoded.changes.snapshot_row(row, 0, b"bt", 299)
    [event] = encoded.events()
    assert event["after"] == {"a": 7, "b": None}
    assert (event["op"], event["source"]["snapshot"], event["source"]["sequence"]) == ("r", "true", '[null,"299"]')
    assert event["source"]["txId"] is None
    for broken in (row[:-1], row + b"\0", row[:3]):
        with pytest.raises(DecodeError):
            encoded.changes.snapshot_row(broken, 0, b"bt", 299)


def test_a_changed_key_is_a_delete_a_tombstone_and_a_create_with_headers() -> None:
    encoded = Encoded(column("a", INT4, in_key=True), column("b"))
    old, new = encode_tuple([b"1", None]), encode_tuple([b"2", b"x"])
    encoded.changes.update(b"K" + old + b"N" + new, 0, 150)
    deleted, tombstone, created = encoded.records()
    assert (deleted["key"], tombstone["key"], created["key"]) == (b'{"a":1}', b'{"a":1}', b'{"a":2}')
    assert deleted["headers"] == tombstone["headers"] == [("__debezium.newkey", b'{"a":2}')]
    assert created["headers"] == [("__debezium.oldkey", b'{"a":1}')]
    assert tombstone["value"] is None


@pytest.mark.parametrize(
    "frame",
    [b"", b"X", b"N", b"N\0\x01", b"N\0\x01t\0\0\0\x05a", b"N" + encode_tuple([b"1", b"x"]) + b"x", b"N\0\x01u"],
)
def test_a_malformed_row_is_a_decode_error(frame: bytes) -> None:
    encoded = Encoded(column("a", INT4, in_key=True), column("b"))
    for change in (encoded.changes.insert, encoded.changes.update, encoded.changes.delete):
        with pytest.raises(DecodeError):
            change(frame, 0, 150)


def test_a_column_of_an_unknown_type_is_left_out_or_is_its_text() -> None:
    composite = PgType(9, "s", "pair", "c", fields=(("x", INT4, -1),))
    asked: dict[str, Any] = {"unknown_types": True, "binary": "hex"}
    for modes, after in (({}, {"a": 1}), (asked, {"a": 1, "b": b"(1)".hex()})):
        encoded = Encoded(column("a", INT4, in_key=True), column("b", composite), **modes)
        encoded.insert(b"1", b"(1)")
        assert encoded.events()[0]["after"] == after


class Registry(SchemaStore):
    """Keeps the schemas by what it was asked for."""

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {"key": [], "value": []}

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        self.texts[subject].append(text)
        return b"\0\0\0\0" + bytes([len(self.texts[subject])])


def test_a_null_from_before_the_column_became_not_null_has_a_schema_of_its_own_in_avro() -> None:
    registry = Registry()
    encoded = Encoded(column("a", INT4, in_key=True), column("b", required=True), registry=registry)
    encoded.insert(b"1", b"x")
    encoded.insert(b"2", None)
    first, second = encoded.records()
    assert first["value"].startswith(b"\0\0\0\0\1\0\2\2\2\2x\x163.7.0.Final")
    assert second["value"].startswith(b"\0\0\0\0\2\0\2\2\4\0\x163.7.0.Final")
    types = [_field_type(text, "b") for text in registry.texts["value"]]
    assert types == ["string", ["null", "string"]]


def _field_type(text: str, name: str) -> Any:
    fields = json.loads(text)["fields"][0]["type"][1]["fields"]
    return next(field["type"] for field in fields if field["name"] == name)


def test_a_key_that_avro_cannot_hold_parks_the_table_and_a_parked_event_has_no_key() -> None:
    numeric = column("a", NUMERIC, in_key=True)
    encoded = Encoded(numeric, registry=Registry())
    encoded.insert(b"1.5")
    with pytest.raises(Unpublishable) as refused:
        encoded.insert(b"NaN")
    assert (refused.value.code, refused.value.table, refused.value.keyless) == ("key-unrepresentable", ("s", "t"), True)
    parked = Encoded(numeric, registry=Registry(), parked=frozenset({("s", "t")}))
    parked.insert(b"1.5")
    parked.insert(b"NaN")
    assert [record.get("key") is None for record in parked.records()] == [False, True]


def test_an_array_in_avro_is_its_count_and_its_elements() -> None:
    array = PgType(1009, "pg_catalog", "_text", element=TEXT, is_array=True)
    encoded = Encoded(column("a", array), registry=Registry())
    for text in (b"{}", b'{a,NULL,"b c"}', b"[0:1]={x,y}", b"{{a},{b}}"):
        encoded.insert(text)
    bodies = [record["value"][7 : record["value"].index(b"\x163.7.0")] for record in encoded.records()]
    assert bodies == [
        b"\2\0", b"\2\6\2\2a\0\2\6b c\0", b"\2\4\2\2x\2\2y\0", b"\2\4\0\0\0",
    ]  # fmt: skip


@pytest.mark.parametrize("in_avro", [False, True])
def test_a_value_that_a_required_column_cannot_hold_is_null_and_not_zero(in_avro: bool) -> None:
    registry = Registry() if in_avro else None
    columns = [column("a", INT4, in_key=True), column("b", NUMERIC, required=True)]
    encoded = Encoded(*columns, registry=registry, with_schemas=not in_avro)
    encoded.insert(b"1", b"1.5")
    encoded.insert(b"2", b"NaN")
    if registry is not None:
        before, after = (_field_type(text, "b") for text in registry.texts["value"])
        assert after == ["null", before]
        return
    first, second = encoded.events()
    assert [_field(each, "b")["optional"] for each in (first, second)] == [False, True]
    assert (first["payload"]["after"]["b"], second["payload"]["after"]["b"]) == ({"scale": 1, "value": "Dw=="}, None)


@pytest.mark.parametrize("is_json", [True, False])
def test_a_column_of_the_key_decides_the_partition_of_both_events_of_a_changed_key(is_json: bool) -> None:
    columns = column("a", INT4, in_key=True), column("b", in_key=True)
    registry = None if is_json else Registry()
    encoded = Encoded(*columns, registry=registry)
    relation = ResolvedRelation(1, "s", "t", "d", list(columns))
    relation.partition_by = PartitionChoice("b")
    encoded.changes = encoded.encoder.open_relation(relation)
    encoded.insert(b"1", b"x")
    encoded.insert(b"2", b"y")
    encoded.changes.update(b"K" + encode_tuple([b"1", b"x"]) + b"N" + encode_tuple([b"1", b"y"]), 0, 150)
    hashes = [each["hash"] for each in encoded.records()]
    x, y, *changed = hashes
    assert x != y
    assert changed == [x, x, y]  # the delete, its tombstone, and the new row
