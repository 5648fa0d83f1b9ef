from __future__ import annotations

import json
from typing import Any

import pytest

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.modes import Modes
from cdcd.errors import DecodeError
from cdcd.outbox.outbox_format import OutboxFormat
from cdcd.outbox.outbox_rules import OutboxRules
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.tuples import Binary
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

UUID = PgType(2950, "pg_catalog", "uuid")
TEXT = PgType(25, "pg_catalog", "text")
JSONB = PgType(3802, "pg_catalog", "jsonb")
BYTEA = PgType(17, "pg_catalog", "bytea")
INT8 = PgType(20, "pg_catalog", "int8")

NAMES = ("id", "aggregatetype", "aggregateid", "type", "payload")
RULES = OutboxRules("*.outbox", "outbox", "outbox.{aggregate}", NAMES, ("tenant",))
COLUMNS = {"id": UUID, "aggregatetype": TEXT, "aggregateid": INT8, "type": TEXT, "tenant": INT8}
ID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
ROW: list[Any] = [ID.encode(), b"Order", b"42", b"OrderCreated", b"7"]
BINARY_ROW: list[Any] = [
    Binary(bytes.fromhex(ID.replace("-", ""))), Binary(b"Order"), Binary((42).to_bytes(8)), Binary(b"OrderCreated"),
    Binary((7).to_bytes(8)),
]  # fmt: skip
HEADERS = [("id", ID.encode()), ("type", b"OrderCreated"), ("tenant", b"7")]


class Encoded:
    """An outbox next to Debezium's events, and the records that they have made."""

    def __init__(self, payload: PgType = JSONB, name: str = "outbox", without: str = "") -> None:
        self.batches = BatchBuilder(tombstones=True, truncate_key=None)
        inner = DebeziumFormat(Modes(), ("p", "db"), "UTF8", lambda: 1_000_000_000, 100)
        events = OutboxFormat(inner, RULES, TypeOptions())
        self.encoder = events.stream_encoder(self.batches)
        types = {**COLUMNS, "payload": payload}
        columns = [ResolvedColumn(each, types[each], -1, each == "id") for each in types if each != without]
        self.changes: RelationChanges = self.encoder.open_relation(ResolvedRelation(1, "s", name, "d", columns))
        self.encoder.begin(200, 5_000_001, 7)

    def insert(self, row: list[Any]) -> None:
        self.changes.insert(b"N" + encode_tuple(row), 0, 150)

    def records(self) -> dict[tuple[str, str], list[Any]]:
        self.encoder.commit(208)
        return {(table.schema, table.name): table.messages for table in self.batches.build().tables}


@pytest.mark.parametrize("row", [ROW, BINARY_ROW])
@pytest.mark.parametrize(
    ("payload", "text", "binary", "value"),
    [
        (JSONB, b'{"a": 1}', b'\x01{"a": 1}', b'{"a": 1}'),
        (BYTEA, b"\\x00ff01", b"\x00\xff\x01", b"\x00\xff\x01"),
        (TEXT, b"", b"", b""),
        (TEXT, "é".encode(), "é".encode(), "é".encode()),
    ],
)
def test_an_insert_is_a_record_of_its_aggregate_in_both_modes_of_the_server(
    row: list[Any], payload: PgType, text: bytes, binary: bytes, value: bytes
) -> None:
    encoded = Encoded(payload)
    encoded.insert([*row, text if row is ROW else Binary(binary)])
    assert encoded.records() == {("", "outbox.Order"): [{"key": b"42", "value": value, "headers": HEADERS}]}


@pytest.mark.parametrize("payload", [b"caf\xe9 \\", Binary(b"caf\xe9 \\")])
def test_bytes_that_are_no_utf8_are_escaped_in_both_modes(payload: Any) -> None:
    encoded = Encoded(TEXT)
    encoded.insert([*ROW, payload])
    [[record]] = encoded.records().values()
    assert record["value"] == rb"caf\xe9 \\"


def test_a_payload_of_null_is_a_record_without_a_value_and_a_column_of_null_no_header() -> None:
    encoded = Encoded()
    encoded.insert([*ROW[:4], None, None])
    [[record]] = encoded.records().values()
    assert record == {"key": b"42", "value": None, "headers": HEADERS[:2]}


def test_the_bytes_of_a_record_are_counted() -> None:
    encoded = Encoded()
    encoded.insert([*ROW, b'{"a": 1}'])
    assert encoded.batches.gathered_bytes == 2 + 8 + 2 + 36 + 4 + 12 + 6 + 1


def test_updates_deletes_truncates_and_snapshots_of_the_outbox_publish_nothing() -> None:
    encoded = Encoded()
    row = encode_tuple([*ROW, b"{}"])
    encoded.changes.update(b"N" + row, 0, 150)
    encoded.changes.delete(b"O" + row, 0, 150)
    encoded.changes.truncate(150, False, False)
    encoded.changes.snapshot_row(b"\xff" * 24, 0, b"tttttt", 150)
    assert encoded.records() == {}


@pytest.mark.parametrize("missing", [1, 2])
def test_a_row_that_names_no_aggregate_goes_to_the_topic_of_its_table(missing: int) -> None:
    encoded = Encoded()
    encoded.insert([None if index == missing else value for index, value in enumerate([*ROW, b"{}"])])
    [(table, [record])] = encoded.records().items()
    assert table == ("s", "outbox")
    assert json.loads(record["value"])["after"]["id"] == ID


@pytest.mark.parametrize("without", ["aggregatetype", "aggregateid", "payload"])
def test_so_do_the_rows_of_a_table_without_the_columns(without: str, caplog: pytest.LogCaptureFixture) -> None:
    encoded = Encoded(without=without)
    row = dict(zip([*COLUMNS, "payload"], [*ROW, b"{}"], strict=True))
    encoded.insert([value for name, value in row.items() if name != without])
    assert encoded.records().keys() == {("s", "outbox")}
    assert f"the outbox s.outbox has no column {without}" in caplog.text


def test_id_and_type_may_be_missing() -> None:
    encoded = Encoded(without="type")
    encoded.insert([*ROW[:3], b"7", b"{}"])
    [[record]] = encoded.records().values()
    assert record["headers"] == [HEADERS[0], HEADERS[2]]


def test_other_tables_are_none_of_its_business() -> None:
    encoded = Encoded(name="orders")
    encoded.insert([*ROW, b"{}"])
    assert encoded.records().keys() == {("s", "orders")}


def test_a_frame_that_is_cut_off_is_refused() -> None:
    encoded = Encoded()
    whole = b"N" + encode_tuple([*ROW, b"{}"])
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            encoded.changes.insert(whole[:end], 0, 150)
    with pytest.raises(DecodeError):
        encoded.changes.insert(whole + b"x", 0, 150)


def test_a_message_of_the_prefix_is_a_record() -> None:
    encoded = Encoded()
    content = {"id": "e1", "aggregatetype": "Order", "aggregateid": 42, "type": "T", "tenant": 7, "payload": {"a": 1.5}}
    encoded.encoder.message("outbox", json.dumps(content).encode(), True, 150)
    headers = [("id", b"e1"), ("type", b"T"), ("tenant", b"7")]
    assert encoded.records() == {("", "outbox.Order"): [{"key": b"42", "value": b'{"a": 1.5}', "headers": headers}]}


@pytest.mark.parametrize(
    ("prefix", "content"),
    [
        ("other", b'{"aggregatetype":"Order","aggregateid":"1","payload":1}'),
        ("outbox", b'{"aggregatetype":"","aggregateid":"1","payload":1}'),
        ("outbox", b'{"aggregatetype":"Order","aggregateid":null,"payload":1}'),
        ("outbox", b'{"aggregatetype":"Order","aggregateid":"1"}'),
        ("outbox", b"\x00\x01"),
        ("outbox", rb'{"aggregatetype":"Order","aggregateid":"\ud800","payload":1}'),
        ("outbox", rb'{"aggregatetype":"\udc00","aggregateid":"1","payload":1}'),
    ],
)
def test_any_other_message_is_published_as_one(prefix: str, content: bytes) -> None:
    encoded = Encoded()
    encoded.encoder.message(prefix, content, True, 150)
    assert encoded.records().keys() == {("", "messages")}
