from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.assembly import (
    Catalog,
    begin,
    begin_prepare,
    block,
    commit,
    commit_prepared,
    insert,
    message,
    prepare,
    relation,
    stream_commit,
    stream_prepare,
)

from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.modes import Modes
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.source.stream_messages import XLogData
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

BEGIN = {"status": "BEGIN", "event_count": None, "data_collections": None, "ts_ms": 946_684_801_000}


class Stream:
    """A stream of Debezium's events with metadata, and what it has published by topics."""

    def __init__(self, folder: Path, *, is_on: bool = True, replay_bytes: int = 1 << 20) -> None:
        self.batches = BatchBuilder(tombstones=True, truncate_key=None)
        events = DebeziumFormat(Modes(truncates=True, transactions=is_on), ("p", "db"), "UTF8", lambda: 1)
        self.assembler = Assembler(
            Decoder(),
            Relations(Catalog()),
            events.stream_encoder(self.batches),
            Spool(SpoolDirectory(folder / "spool"), 1 << 20, 1 << 30),
            replay_bytes=replay_bytes,
        )
        self.found: dict[str, list[Any]] = {}
        self.lsn = 0x100

    def feed(self, *messages: m.Message) -> Batch:
        """Hand over the messages, each at a position of its own, and build a batch after each piece; the last one."""
        frames = []
        for each in messages:
            frames.append(XLogData(self.lsn, self.lsn, 0, encode(each)).encode())
            self.lsn += 1
        self.assembler.feed(frames)
        batch = self.take()
        while self.assembler.is_busy:
            self.assembler.proceed()
            batch = self.take()
        return batch

    def take(self) -> Batch:
        batch = self.batches.build()
        for table in batch.tables:
            for each in table.messages:
                key = json.loads(each.get("key", b"null"))
                self.found.setdefault(table.name, []).append((key, json.loads(each["value"] or b"null")))
        return batch

    def numbers(self, table: str) -> list[Any]:
        """The field `transaction` of the table's events, by its values."""
        events = [value for _, value in self.found.get(table, []) if value is not None]
        return [each["transaction"] and tuple(each["transaction"].values()) for each in events]

    @property
    def transactions(self) -> list[Any]:
        assert all(key == {"id": value["id"]} for key, value in self.found.get("transaction", []))
        return [value for _, value in self.found.get("transaction", [])]


def counts(end: Any) -> tuple[int, dict[str, int]]:
    return end["event_count"], {each["data_collection"]: each["event_count"] for each in end["data_collections"]}


def test_events_are_numbered_in_their_transaction_and_in_their_table(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    rows = (insert(1), insert(2, oid=8), insert(3), m.Delete(0, 7, m.KEY, tuple_of([b"1"])))
    stream.feed(relation(), relation(oid=8, name="u"))
    stream.feed(begin(0x200), *rows, commit(0x200))
    assert stream.numbers("t") == [("600:259", 1, 1), ("600:261", 3, 2), ("600:262", 4, 3)]
    assert stream.numbers("u") == [("600:260", 2, 1)]
    first, last = stream.transactions
    assert first == {"id": "600:259", **BEGIN}
    assert (last["status"], last["id"], last["ts_ms"]) == ("END", f"600:{0x20A}", BEGIN["ts_ms"])
    assert counts(last) == (4, {"public.t": 3, "public.u": 1})
    stream.feed(begin(0x300, 601), insert(4, oid=8), commit(0x300))
    assert stream.numbers("u")[1:] == [("601:265", 1, 1)]
    assert counts(stream.transactions[3]) == (1, {"public.u": 1})


def test_a_changed_key_is_two_events_a_truncate_one_of_each_table_and_a_message_one_of_no_table(
    tmp_path: Path,
) -> None:
    stream = Stream(tmp_path)
    changed = m.Update(0, 7, m.KEY, tuple_of([b"1"]), tuple_of([b"2"]))
    stream.feed(relation(), relation(oid=8, name="u"))
    inside = [changed, m.Truncate(0, (7, 8), False, False), message(b"x"), message(b"y")]
    stream.feed(begin(0x200), *inside, commit(0x200))
    assert [numbers[1:] for numbers in stream.numbers("t")] == [(1, 1), (2, 2), (3, 3)]
    assert [numbers[1:] for numbers in stream.numbers("u")] == [(4, 1)]
    assert [numbers[1:] for numbers in stream.numbers("messages")] == [(5, 1), (6, 2)]
    assert counts(stream.transactions[1]) == (6, {"public.t": 3, "public.u": 1, "messages": 2})


def test_a_table_that_is_altered_inside_goes_on_counting(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    more = relation(more=("w",))
    stream.feed(relation(), begin(0x200), insert(1), more, insert(2, more=(5,)), commit(0x200))
    assert [numbers[1:] for numbers in stream.numbers("t")] == [(1, 1), (2, 2)]
    assert counts(stream.transactions[1]) == (2, {"public.t": 2})


def test_what_is_of_no_transaction_and_what_has_no_events_has_no_metadata(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    batch = stream.feed(begin(0x200), commit(0x200))
    assert (batch.rows, batch.transactions, batch.commit_lsn) == (0, 1, 0)
    stream.feed(message(b"x", transactional=False, lsn=0x250))
    assert (stream.numbers("messages"), stream.transactions) == ([None], [])


def test_the_beginning_of_a_replicated_transaction_has_no_position(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    for lsn, origin in ((0x200, [m.Origin(0x99, "o")]), (0x300, [])):
        stream.feed(relation(), begin(lsn), *origin, insert(1), commit(lsn))
    assert [each["id"] for each in stream.transactions] == ["600:0", "600:522", "600:263", "600:778"]


def test_without_the_setting_there_is_nothing_of_it(tmp_path: Path) -> None:
    stream = Stream(tmp_path, is_on=False)
    stream.feed(relation(), begin(0x200), insert(1), message(b"x"), commit(0x200))
    assert (stream.numbers("t"), stream.numbers("messages"), stream.transactions) == ([None], [None], [])


def test_rows_of_a_snapshot_belong_to_no_transaction() -> None:
    batches = BatchBuilder(tombstones=True, truncate_key=None)
    encoder = DebeziumFormat(Modes(transactions=True), ("p", "db"), "UTF8", lambda: 1).snapshot_encoder(batches)
    changes = encoder.open_relation(Relations(Catalog()).resolve(relation()))
    encoder.begin_snapshot(299, 9_000_000)
    changes.snapshot_row(b"\0\0\0\x011", 0, b"t", 298)
    [table] = batches.build().tables
    assert b'"transaction":null' in (table.messages[0]["value"] or b"")


ROLLED_BACK = m.StreamAbort(600, 601)
WAYS = {
    "streamed": [*block(600, relation(600), insert(1, 600), insert(8, 601), first=True), ROLLED_BACK,
                 *block(600, insert(2, 600), insert(3, 602)), stream_commit(600, 0x200)],
    "prepared": [begin_prepare(600, 0x1F0), relation(), insert(1), insert(2), insert(3), prepare(600, 0x1F0),
                 commit_prepared(600, 0x200)],
    "streamed and prepared": [*block(600, relation(600), insert(1, 600), first=True),
                              *block(600, insert(2, 600), insert(3, 600)), stream_prepare(600, 0x1F0),
                              commit_prepared(600, 0x200)],
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("replay_bytes", [1, 1 << 20])
def test_the_numbers_are_those_of_a_transaction_that_comes_at_its_commit(
    tmp_path: Path, way: str, replay_bytes: int
) -> None:
    """With a batch after each piece: the end comes with the last one alone."""
    plain, stream = Stream(tmp_path / "plain"), Stream(tmp_path / "other", replay_bytes=replay_bytes)
    plain.feed(begin(0x200), relation(), insert(1), insert(2), insert(3), commit(0x200))
    stream.feed(*WAYS[way])
    assert [numbers[1:] for numbers in stream.numbers("t")] == [numbers[1:] for numbers in plain.numbers("t")]
    assert [value["after"]["id"] for _, value in stream.found["t"]] == [1, 2, 3]
    assert stream.transactions[0]["id"] == stream.numbers("t")[0][0]
    assert stream.transactions[1] == plain.transactions[1]
    assert len(stream.transactions) == 2
