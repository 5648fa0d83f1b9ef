"""What the assembler hands on: whole transactions, in order, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.assembly import Assembly, block, relation, stream_commit
from support.assembly import insert as row
from support.one_table import RELATION, OneTableStream, begin, commit, insert

from cdcd.errors import DecodeError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import tuple_of


def test_a_transaction_comes_out_whole(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.feed(begin(100), RELATION, insert(1), insert(2), commit(100))
    batch = stream.take()
    assert (batch.rows, batch.transactions, batch.ends_inside_transaction) == (2, 1, False)
    assert (batch.commit_lsn, batch.end_lsn, batch.commit_ts) == (100, 110, 946_684_801_000_000)
    assert stream.assembler.received_lsn == 110
    assert stream.take().rows == 0


def test_a_batch_that_ends_inside_a_transaction_says_so(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.feed(begin(100), RELATION, insert(1))
    first = stream.take()
    assert (first.rows, first.transactions, first.ends_inside_transaction, first.end_lsn) == (1, 0, True, 0)
    stream.feed(insert(2))
    assert stream.take().ends_inside_transaction
    stream.feed(commit(100))
    last = stream.take()
    assert (last.rows, last.transactions, last.ends_inside_transaction, last.end_lsn) == (0, 1, False, 110)


def test_what_kafka_has_is_skipped_and_the_next_transaction_is_not(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path, durable_lsn=110)
    stream.feed(begin(90), RELATION, insert(1), commit(90), begin(100), insert(2), commit(100))
    assert (stream.take().rows, stream.assembler.received_lsn) == (0, 110)
    stream.feed(begin(110), insert(3), commit(110))
    assert stream.take().rows == 1, "a relation announced in a skipped transaction stays known"


def test_a_transaction_that_commits_right_behind_a_message_is_not_taken_for_durable_with_it(tmp_path: Path) -> None:
    message = m.LogicalMessage(0, False, 1000, "p", b"x")  # its LSN is the end of its record: the next may begin there
    first = OneTableStream(tmp_path / "first")
    first.feed(message)
    batch = first.take()
    assert batch.commit_lsn < batch.end_lsn == 1000, "what is acknowledged must not reach into the next record"
    after = OneTableStream(tmp_path / "after", batch.end_lsn)
    after.feed(message, begin(1000), RELATION, insert(1), commit(1000))
    assert after.take().rows == 1, "the transaction's row, and not the message again"


def test_a_keepalive_inside_a_transaction_says_nothing_about_earlier_commits(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.keepalive(50)
    assert stream.assembler.last_idle_keepalive_lsn == 50
    stream.feed(begin(100))
    stream.keepalive(500, reply=True)
    assert stream.assembler.last_idle_keepalive_lsn == 50
    assert stream.assembler.server_lsn == 500
    assert stream.assembler.reply_requested


def test_relations_alternate_and_are_replaced(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    other = m.Relation(0, 4_000_000_000, "public", "u", "d", (m.Column(True, "id", 23, -1),))
    stream.feed(begin(1), RELATION, other, insert(1), insert(2, 4_000_000_000), insert(3), commit(1))
    batch = stream.take()
    assert [(table.name, len(table.messages)) for table in batch.tables] == [("t", 2), ("u", 1)]
    wider = m.Relation(0, 7, "public", "t", "d", (m.Column(True, "id", 23, -1), m.Column(False, "n", 23, -1)))
    stream.feed(begin(2), wider, m.Insert(0, 7, tuple_of([b"1", None])), commit(2))
    assert stream.take().rows == 1
    with pytest.raises(DecodeError, match="2 columns"):
        stream.feed(begin(3), insert(1))


def test_truncate_reaches_every_partition(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.feed(begin(1), RELATION, insert(1), m.Truncate(0, (7,), False, False), insert(1), commit(1))
    (table,) = stream.take().tables
    assert table.everywhere == [1]
    assert list(table.counts.values()) == [{ord("c"): 2, ord("t"): 1}]


@pytest.mark.parametrize(
    "messages",
    [
        [insert(1)],
        [commit(1)],
        [begin(1), begin(2)],
        [m.Truncate(0, (7,), False, False)],
        [m.Origin(0, "o")],
        [begin(1), insert(1, 8)],
        [m.StreamStop()],
    ],
    ids=lambda messages: "-".join(type(message).__name__ for message in messages),
)
def test_messages_out_of_place_are_errors(messages: list[m.Message], tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    with pytest.raises(DecodeError):
        stream.feed(*messages)


@pytest.mark.parametrize("frame", [b"", b"w", b"x" * 40, b"w" + b"\0" * 24, b"k" + b"\0" * 18])
def test_frames_of_no_kind_are_errors(frame: bytes, tmp_path: Path) -> None:
    with pytest.raises(DecodeError):
        OneTableStream(tmp_path).assembler.feed([frame])


def test_the_catalog_is_asked_once_for_all_tables_that_a_burst_announces(tmp_path: Path) -> None:
    world = Assembly(tmp_path)
    tables = [each for oid in (7, 8, 9) for each in (relation(oid=oid, name=f"t{oid}"), row(oid, oid=oid))]
    world.feed(begin(100), *tables, commit(100), begin(200), relation(oid=10, name="t10"), row(10, oid=10), commit(200))
    assert world.catalog.expected == [[7, 8, 9, 10]]
    world.feed(begin(300), row(7), relation(oid=8, name="t8"), row(8, oid=8), commit(300))
    assert world.catalog.expected[1:] == [[8]], "its next message has come after the question"
    assert world.rows() == [7, 8, 9, 10, 7, 8]


def test_the_catalog_is_asked_for_the_tables_of_a_stream_block_once_they_are_committed(tmp_path: Path) -> None:
    world = Assembly(tmp_path)
    tables = [each for oid in (7, 8) for each in (relation(5, oid, f"t{oid}"), row(oid, 5, oid))]
    world.feed(*block(5, *tables, first=True))
    assert world.catalog.expected == []
    world.feed(begin(90), relation(oid=9, name="t9"), row(9, oid=9), commit(90), *block(5, relation(5, 4, "t4")))
    assert world.catalog.expected == [[9]]
    world.feed(stream_commit(5, 100))
    assert world.catalog.expected == [[9], [7, 8, 4]]
    assert world.rows() == [9, 7, 8]
    world.feed(begin(200), relation(oid=4, name="t4"), row(4, oid=4), commit(200))
    assert world.catalog.expected[2:] == [[4]], "its message has come after the question"
