"""Records of both formats with headers: which change a header is of, whatever the format makes of that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdcd.avro.avro_format import AvroFormat
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.modes import Modes, RowModes
from cdcd.json_events.json_format import JsonFormat
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.sink.batch_queue import occupied_bytes
from cdcd.sink.batches import Batch, BatchBuilder, Message, message_bytes
from cdcd.source.pg_types import PgType
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.headed_events import HeadedFormat
from cdcd.transaction.record_headers import HeaderChoice
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
TEXT = PgType(25, "pg_catalog", "text")
FORMATS: dict[str, Callable[[], EventFormat]] = {
    "cdcd": lambda: AvroFormat("decimal", "UTF8"),
    "json": lambda: JsonFormat(AvroFormat("decimal", "UTF8"), with_schemas=False),
    "debezium": lambda: DebeziumFormat(Modes(truncates=True), ("p", "db"), "UTF8", lambda: 1_000_000_000, 100),
}
FORMAT = pytest.mark.parametrize("name", FORMATS)


class Headed:
    """The stream of one table in a format, with headers."""

    def __init__(self, name: str, *names: str, events: EventFormat | None = None) -> None:
        self.batches = BatchBuilder(tombstones=events is None, truncate_key=None)
        self.events = HeadedFormat(events or FORMATS[name](), HeaderChoice(names, "p", "s", "application/json"))
        self.encoder = self.events.stream_encoder(self.batches)
        columns = [ResolvedColumn("a", INT4, -1, True), ResolvedColumn("b", TEXT, -1, False)]
        self.relation = ResolvedRelation(1, "s", "t", "d", columns)
        self.changes = self.encoder.open_relation(self.relation)
        self.encoder.begin(200, 5_000_001, 7)

    def built(self) -> tuple[Batch, list[Message]]:
        self.encoder.commit(208)
        batch = self.batches.build()
        return batch, [message for table in batch.tables for message in table.messages]


def tuple_of(a: bytes, b: bytes | None) -> bytes:
    return encode_tuple([a, b])


def op_and_lsn(message: Message) -> tuple[bytes, bytes]:
    headers = dict(message["headers"])
    return headers["__op"], headers["__lsn"]


@FORMAT
def test_each_event_has_the_headers_of_its_change_and_a_tombstone_those_of_its_delete(name: str) -> None:
    headed = Headed(name, "op", "lsn")
    changes = headed.changes
    changes.insert(b"N" + tuple_of(b"1", b"x"), 0, 110)
    changes.update(b"N" + tuple_of(b"1", b"y"), 0, 120)
    changes.delete(b"K" + tuple_of(b"1", None), 0, 130)
    changes.truncate(140, False, False)
    changes.insert(b"N" + tuple_of(b"2", b"x" * 2_000_000), 0, 150)
    headed.encoder.message("p", b"content", True, 160)
    changes.insert(b"N" + tuple_of(b"3", None), 0, 170)
    batch, messages = headed.built()
    seen = [(*op_and_lsn(message), message["value"] is None) for message in messages]
    assert seen == [
        (b"c", b"110", False), (b"u", b"120", False), (b"d", b"130", False), (b"d", b"130", True),
        (b"t", b"140", False), (b"c", b"150", False), (b"c", b"170", False), (b"m", b"160", False),
    ]  # fmt: skip
    assert all(table.has_headers for table in batch.tables)


@FORMAT
def test_a_changed_key_is_two_events_of_one_change(name: str) -> None:
    headed = Headed(name, "op", "lsn", "cloudevents")
    headed.changes.update(b"K" + tuple_of(b"1", None) + b"N" + tuple_of(b"2", b"x"), 0, 150)
    _, messages = headed.built()
    assert [op_and_lsn(message) for message in messages] == [(b"d", b"150"), (b"d", b"150"), (b"c", b"150")]
    ids = [dict(message["headers"])["ce_id"] for message in messages]
    assert ids == [b"200-0", b"200-0", b"200-1"]  # a tombstone is no event of its own
    first = [message["headers"][0] for message in messages]
    if name == "debezium":
        new, old = ("__debezium.newkey", b'{"a":2}'), ("__debezium.oldkey", b'{"a":1}')
        assert first == [new, new, old]
    else:
        assert {header for header, _ in first} == {"__op"}


@FORMAT
def test_the_number_in_the_id_is_that_of_the_event(name: str) -> None:
    headed = Headed(name, "cloudevents")
    for number in range(3):
        headed.changes.insert(b"N" + tuple_of(b"%d" % number, None), 0, 110 + number)
    _, messages = headed.built()
    assert [dict(message["headers"])["ce_id"] for message in messages] == [b"200-0", b"200-1", b"200-2"]


def test_records_about_whole_transactions_have_no_headers_and_no_numbers() -> None:
    events = DebeziumFormat(Modes(transactions=True), ("p", "db"), "UTF8", lambda: 1)
    batches = BatchBuilder(tombstones=True, truncate_key=None)
    encoder = HeadedFormat(events, HeaderChoice(("cloudevents",), "p", "s", "")).stream_encoder(batches)
    changes = encoder.open_relation(Headed("debezium").relation)
    encoder.begin(200, 5_000_001, 7)
    changes.insert(b"N" + tuple_of(b"1", b"x"), 0, 110)
    changes.insert(b"N" + tuple_of(b"2", b"x"), 0, 120)
    encoder.commit(208)
    seen = {table.name: [dict(each.get("headers", ())) for each in table.messages] for table in batches.build().tables}
    assert seen["transaction"] == [{}, {}]
    assert [headers["ce_id"] for headers in seen["t"]] == [b"200-0", b"200-1"]


@FORMAT
def test_a_row_of_a_snapshot_has_headers(name: str) -> None:
    headed = Headed(name, "op", "lsn", "txid", "commit_time", "cloudevents")
    copies = BatchBuilder(tombstones=True, truncate_key=None)
    encoder = headed.events.snapshot_encoder(copies)
    changes = encoder.open_relation(headed.relation)
    encoder.begin_snapshot(299, 9_000_000)
    changes.snapshot_row(b"\0\0\0\x04" + b"\0\0\0\x07" + b"\xff\xff\xff\xff", 0, b"bt", 298)
    [table] = copies.build().tables
    headers = dict(table.messages[0]["headers"])
    assert (headers["__op"], headers["__lsn"], headers["__commit_time"]) == (
        b"r",
        b"298",
        b"1970-01-01T00:00:09.000000Z",
    )
    assert "__txid" not in headers
    assert (headers["ce_type"], headers["ce_id"]) == (b"cdcd.read", b"299-9000000-0")


@FORMAT
def test_header_bytes_count_in_the_batch_and_in_the_queue(name: str) -> None:
    plain, headed = Headed(name), Headed(name, "op", "lsn", "cloudevents")
    for each in (plain, headed):
        each.changes.update(b"K" + tuple_of(b"1", None) + b"N" + tuple_of(b"2", b"x"), 0, 150)
        each.changes.insert(b"N" + tuple_of(b"3", b"x" * 2_000_000), 0, 160)
        batch, messages = each.built()
        # The key and value of a tombstone were never counted: its key is the object of its delete.
        tombstone = next(message for message in messages if message["value"] is None)
        assert batch.bytes == sum(map(message_bytes, messages)) - len(tombstone["key"])
        assert occupied_bytes(batch) > batch.bytes + (200 * len(messages) if each is headed else 0)


@FORMAT
def test_only_what_the_format_itself_needs_is_there_without_a_choice(name: str) -> None:
    headed = Headed(name)
    headed.changes.insert(b"N" + tuple_of(b"1", b"x"), 0, 110)
    batch, messages = headed.built()
    assert not batch.tables[0].has_headers
    assert "headers" not in messages[0]


@pytest.mark.parametrize("deletes", ["tombstone", "drop"])
def test_a_flat_row_that_is_deleted_is_a_tombstone_with_headers_or_nothing(deletes: Any) -> None:
    rows = DebeziumFormat(Modes(rows=RowModes(deletes=deletes)), ("p", "db"), "UTF8", lambda: 1_000_000_000, 100)
    headed = Headed("debezium", "op", "lsn", events=rows)
    headed.changes.insert(b"N" + tuple_of(b"1", b"x"), 0, 110)
    headed.changes.update(b"K" + tuple_of(b"1", None) + b"N" + tuple_of(b"2", b"x"), 0, 120)
    headed.changes.delete(b"K" + tuple_of(b"2", None), 0, 130)
    _, messages = headed.built()
    seen = [(message["value"] is None, *op_and_lsn(message), message["headers"][0][0]) for message in messages]
    moved, gone = (True, b"d", b"120", "__debezium.newkey"), (True, b"d", b"130", "__op")
    kept = [(False, b"c", b"110", "__op"), (False, b"c", b"120", "__debezium.oldkey")]
    assert seen == ([kept[0], moved, kept[1], gone] if deletes == "tombstone" else kept)


def test_key_and_value_are_what_they_are_without_headers() -> None:
    for name, make in FORMATS.items():
        records: list[Any] = []
        for events in (make(), HeadedFormat(make(), HeaderChoice(("op", "lsn"), "p", "s", "application/json"))):
            batches = BatchBuilder(tombstones=True, truncate_key=None)
            encoder = events.stream_encoder(batches)
            headed = Headed(name)
            changes = encoder.open_relation(headed.relation)
            encoder.begin(200, 5_000_001, 7)
            encoder.origin("elsewhere", 5)
            changes.insert(b"N" + tuple_of(b"1", b"x"), 0, 110)
            encoder.request({"action": "snapshot"})
            encoder.commit(208)
            batch = batches.build()
            assert batches.take_requests() == [{"action": "snapshot"}]
            assert (batch.commit_lsn, batch.end_lsn, batch.commit_ts) == (200, 208, 5_000_001)
            records.append([(each.get("key"), each["value"]) for each in batch.tables[0].messages])
        assert records[0] == records[1]
