"""Transactions in progress, in blocks: what was rolled back never comes out, the rest whole, in commit order."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.assembly import (
    Assembly,
    begin,
    block,
    commit,
    insert,
    message,
    relation,
    stream_commit,
    truncate,
)

from cdcd.errors import DecodeError, StreamingUnsupported
from cdcd.pgoutput import messages as m
from cdcd.source.stream_messages import PrimaryKeepalive

T, U = 700, 900
"""Top-level transactions; their subtransactions are numbered from there."""


@pytest.fixture(params=[1 << 20, 1], ids=["memory", "disk"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Assembly:
    """A stream that spools in memory, and one that takes every frame to disk."""
    return Assembly(tmp_path, memory_bytes=request.param)


def test_nothing_comes_out_before_the_commit_and_everything_after(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), insert(2, T), first=True))
    stream.feed(*block(T, insert(3, T)))
    batch = stream.take()
    assert (batch.rows, batch.transactions, batch.ends_inside_transaction) == (0, 0, False)
    assert (stream.assembler.received_lsn, stream.assembler.in_transaction) == (0, False)
    stream.feed(stream_commit(T, 100))
    batch = stream.take()
    assert (batch.rows, batch.transactions, batch.ends_inside_transaction) == (3, 1, False)
    assert (batch.commit_lsn, batch.end_lsn, batch.commit_ts) == (100, 110, 946_684_801_000_000)
    assert stream.assembler.received_lsn == 110
    assert (stream.spooled_bytes, stream.files()) == (0, [])


def test_streams_interleave_with_each_other_and_with_whole_transactions(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True))
    stream.feed(*block(U, relation(U), insert(10, U), first=True))
    stream.feed(begin(50), relation(), insert(100), commit(50))
    stream.feed(*block(T, insert(2, T)), *block(U, insert(11, U)))
    stream.feed(stream_commit(U, 60), begin(70), insert(101), commit(70), stream_commit(T, 80))
    events = stream.events()
    assert [(event.row[0], event.commit_lsn, event.seq) for event in events] == [
        (100, 50, 0), (10, 60, 0), (11, 60, 1), (101, 70, 0), (1, 80, 0), (2, 80, 1),
    ]  # fmt: skip


def test_the_abort_of_a_stream_drops_all_of_it(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True), *block(U, relation(U), insert(10, U), first=True))
    stream.feed(m.StreamAbort(T, T))
    assert len(stream.files()) <= 1
    stream.feed(stream_commit(U, 100))
    assert stream.rows() == [10]
    assert (stream.spooled_bytes, stream.files()) == (0, [])
    with pytest.raises(DecodeError):
        stream.feed(stream_commit(T, 200))


def test_an_xid_may_come_again_after_its_stream_has_ended(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True), m.StreamAbort(T, T))
    stream.feed(*block(T, relation(T), insert(2, T), first=True), stream_commit(T, 100))
    assert stream.rows() == [2]


def test_a_rollback_to_a_savepoint_drops_its_rows_only(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), insert(2, T + 1), first=True))
    stream.feed(*block(T, insert(3, T + 1)))
    stream.feed(m.StreamAbort(T, T + 1))
    stream.feed(*block(T, relation(T), insert(4, T)), stream_commit(T, 100))
    assert [(event.row[0], event.seq) for event in stream.events()] == [(1, 0), (4, 1)], "numbered over what survived"


def test_nested_savepoints_are_aborted_innermost_first(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), insert(2, T + 1), insert(3, T + 2), insert(4, T + 3), first=True))
    stream.feed(m.StreamAbort(T, T + 3), m.StreamAbort(T, T + 2), m.StreamAbort(T, T + 1))
    stream.feed(*block(T, relation(T), insert(5, T + 4)), stream_commit(T, 100))
    assert stream.rows() == [1, 5]


def test_a_subtransaction_goes_on_after_the_rollback_of_one_inside_it(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T + 1), insert(2, T + 2), first=True), m.StreamAbort(T, T + 2))
    stream.feed(*block(T, relation(T + 1), insert(3, T + 1)))
    stream.feed(*block(T, insert(4, T + 3)), m.StreamAbort(T, T + 3))
    stream.feed(*block(T, relation(T + 1), insert(5, T + 1)), stream_commit(T, 100))
    assert stream.rows() == [1, 3, 5]


def test_a_rollback_reaches_to_where_the_subtransaction_began_however_often_it_was_left(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), insert(2, T + 1), insert(3, T + 2), insert(4, T + 1), first=True))
    stream.feed(*block(T, insert(5, T + 3), insert(6, T + 1)))
    stream.feed(m.StreamAbort(T, T + 3), m.StreamAbort(T, T + 2), m.StreamAbort(T, T + 1))
    stream.feed(*block(T, relation(T), insert(7, T)), stream_commit(T, 100))
    assert stream.rows() == [1, 7]


def test_a_released_savepoint_that_wrote_before_its_parent_goes_with_it(stream: Assembly) -> None:
    # SAVEPOINT a; SAVEPOINT b; INSERT 2; RELEASE b; INSERT 3; ROLLBACK TO a: the child's first frame is the earlier.
    stream.feed(*block(T, relation(T), insert(1, T), insert(2, T + 2), insert(3, T + 1), first=True))
    stream.feed(m.StreamAbort(T, T + 2), m.StreamAbort(T, T + 1), stream_commit(T, 100))
    assert stream.rows() == [1]


def test_aborts_of_transactions_that_never_sent_a_block_change_nothing(stream: Assembly) -> None:
    stream.feed(m.StreamAbort(T, T), m.StreamAbort(T, T + 1))
    stream.feed(*block(U, relation(U), insert(1, U), first=True), m.StreamAbort(U, U + 5), stream_commit(U, 100))
    assert stream.rows() == [1]


def test_an_abort_of_parallel_streaming_has_a_position_and_a_time(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, parallel=True)
    stream.feed(*block(T, relation(T), insert(1, T), insert(2, T + 1), first=True), m.StreamAbort(T, T + 1, 90, 5))
    stream.feed(*block(U, relation(U), insert(3, U), first=True), m.StreamAbort(U, U, 0, 5), stream_commit(T, 100))
    assert stream.rows() == [1]


@pytest.mark.parametrize(
    "inside", [[], [relation(T)], [relation(T + 1), insert(1, T + 1)]], ids=["nothing", "a relation", "an aborted row"]
)
def test_an_empty_stream_is_received_and_gives_no_row(stream: Assembly, inside: list[m.Message]) -> None:
    stream.feed(*block(T, *inside, first=True), m.StreamAbort(T, T + 1), stream_commit(T, 100))
    batch = stream.take()
    assert (batch.rows, batch.transactions) == (0, 1)
    assert (stream.assembler.received_lsn, stream.spooled_bytes, stream.files()) == (110, 0, [])


def test_a_keepalive_between_stream_blocks_counts(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True))
    stream.assembler.feed([PrimaryKeepalive(90, 0, False).encode()])
    assert stream.assembler.last_idle_keepalive_lsn == 90, "its commit lies ahead: a restart sends it whole"


# Relations


def test_a_relation_counts_inside_its_stream_only(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True))
    with pytest.raises(DecodeError, match="before any Relation message"):
        stream.feed(begin(50), insert(2))


def test_a_relation_of_one_stream_is_none_of_another(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True), *block(U, insert(2, U), first=True))
    with pytest.raises(DecodeError, match="before any Relation message"):
        stream.feed(stream_commit(U, 50))


def test_a_relation_counts_for_the_session_once_its_stream_has_committed(stream: Assembly) -> None:
    stream.feed(
        *block(T, relation(T), insert(1, T), first=True), stream_commit(T, 50), begin(60), insert(2), commit(60)
    )
    assert stream.rows() == [1, 2]


def test_a_relation_counts_even_if_its_stream_was_skipped(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, durable_lsn=60)
    stream.feed(
        *block(T, relation(T), insert(1, T), first=True), stream_commit(T, 50), begin(60), insert(2), commit(60)
    )
    assert stream.rows() == [2], "the server does not announce it again"


def test_a_relation_of_an_aborted_stream_is_forgotten(stream: Assembly) -> None:
    stream.feed(begin(40), relation(), commit(40))
    stream.feed(*block(T, relation(T, more=("n",)), insert(1, T, more=(1,)), first=True), m.StreamAbort(T, T))
    stream.feed(begin(60), insert(2), commit(60))
    assert [event.row for event in stream.events()] == [(2,)]


def test_a_schema_changed_inside_a_stream_is_its_own_until_it_commits(stream: Assembly) -> None:
    wide = relation(T, more=("n",))
    stream.feed(begin(30), relation(), insert(1), commit(30))
    stream.feed(*block(T, relation(T), insert(2, T), wide, insert(3, T, more=(30,)), first=True))
    stream.feed(begin(40), insert(4), commit(40))
    stream.feed(stream_commit(T, 50), begin(60), insert(5, more=(50,)), commit(60))
    assert [event.row for event in stream.events()] == [(1,), (4,), (2,), (3, 30), (5, 50)]


def test_a_schema_change_that_was_rolled_back_is_undone(stream: Assembly) -> None:
    wide = relation(T + 1, more=("n",))
    stream.feed(*block(T, relation(T), insert(1, T), wide, insert(2, T + 1, more=(20,)), first=True))
    stream.feed(m.StreamAbort(T, T + 1), *block(T, relation(T), insert(3, T)))
    stream.feed(stream_commit(T, 50), begin(60), insert(4), commit(60))
    assert [event.row for event in stream.events()] == [(1,), (3,), (4,)]


def test_of_two_relations_the_one_that_came_last_counts_for_the_session(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True))
    stream.feed(begin(40), relation(more=("n",)), insert(2, more=(20,)), commit(40))
    stream.feed(stream_commit(T, 50), begin(60), insert(3, more=(30,)), commit(60))
    assert [event.row for event in stream.events()] == [(2, 20), (1,), (3, 30)]


def test_tables_may_swap_their_names_or_come_again_inside_a_stream(stream: Assembly) -> None:
    stream.feed(
        *block(800, relation(800, 7), insert(1, 800), relation(800, 8), insert(2, 800, 8), first=True),
        *block(800, insert(3, 800), relation(800, 9), insert(4, 800, 9), insert(5, 800, 8)),
        begin(100), relation(0, 10), insert(6, oid=10), commit(100),
        stream_commit(800, 200),
    )  # fmt: skip
    assert stream.rows() == [6, 1, 2, 3, 4, 5]
    stream.feed(begin(300), *[insert(oid, oid=oid) for oid in (7, 8, 9, 10)], commit(300))
    assert stream.rows() == [7, 8, 9, 10]


def test_a_relation_said_again_counts_as_said_now(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True), begin(40), relation(more=("n",)), commit(40))
    stream.feed(*block(T, insert(2, T + 1)), m.StreamAbort(T, T + 1), *block(T, relation(T), insert(3, T)))
    stream.feed(stream_commit(T, 50), begin(60), insert(4), commit(60))
    assert [event.row for event in stream.events()] == [(1,), (3,), (4,)]


def test_a_relation_said_again_after_every_rollback_takes_no_room(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True))
    before = stream.spooled_bytes
    for number in range(1, 100):
        stream.feed(*block(T, relation(T + number), insert(2, T + number)), m.StreamAbort(T, T + number))
    assert stream.spooled_bytes == before
    stream.feed(stream_commit(T, 100))
    assert stream.rows() == [1]
    assert stream.catalog.asked == 1


def test_the_catalogue_is_asked_when_the_stream_commits(stream: Assembly) -> None:
    stream.catalog.keys[7] = ()  # the table's own transaction is in progress: nobody else sees its primary key
    stream.feed(*block(T, relation(T, identity="f"), insert(1, T), first=True))
    assert stream.catalog.asked == 0
    stream.catalog.keys[7] = ("id",)
    stream.feed(stream_commit(T, 50), begin(60), insert(2), commit(60))
    assert [key is not None for _, key, _ in stream.records()] == [True, True]


# The rarer changes


def test_truncates_and_messages_of_a_stream_come_in_their_place(stream: Assembly) -> None:
    stream.feed(
        *block(T, relation(T), relation(T, 8, "u"), insert(1, T), truncate(T, 7, 8), message(b"a", T), first=True)
    )
    stream.feed(*block(T, insert(3, T), truncate(T + 1), message(b"b", T)), m.StreamAbort(T, T + 1))
    stream.feed(*block(T, relation(T), insert(2, T), message(b"c", T)), stream_commit(T, 100))
    found = [(name, value["op"], (value["after"] or {}).get("content")) for name, _, value in stream.records()]
    assert found == [
        ("t", "c", None), ("t", "t", None), ("u", "t", None), ("messages", "m", b"a"), ("t", "c", None),
        ("t", "c", None), ("messages", "m", b"c"),
    ]  # fmt: skip


def test_a_streamed_truncate_says_how(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), truncate(T, cascade=True), truncate(T, restart_identity=True), first=True))
    stream.feed(stream_commit(T, 100))
    said = [tuple(value["truncate"].values()) for _, _, value in stream.records()]
    assert said == [(True, False), (False, True)]


# A streamed message has the xid of the top level, wherever it was written.
MESSAGE = message(b"x", T)
LATER = [insert(9, T), m.StreamStop(), stream_commit(T, 100)]


@pytest.mark.parametrize(
    ("inside", "aborted"),
    [
        ([MESSAGE, insert(2, T + 1)], [T + 1]),
        ([insert(1, T), MESSAGE, insert(2, T + 1)], [T + 1]),
        ([MESSAGE], [T + 1]),
        ([insert(1, T), MESSAGE, insert(2, T + 2), insert(3, T + 1)], [T + 2, T + 1]),
        ([insert(1, T + 1), MESSAGE, insert(2, T + 2)], [T + 2]),
        ([MESSAGE, insert(1, T + 3)], [T + 2]),
    ],
)
def test_a_message_that_a_rollback_may_have_taken_is_not_published(
    stream: Assembly, inside: list[m.Message], aborted: list[int]
) -> None:
    stream.feed(*block(T, relation(T), *inside, first=True), *(m.StreamAbort(T, subxid) for subxid in aborted))
    stream.feed(m.StreamStart(T, False), *LATER[:-1])
    assert stream.records() == []
    with pytest.raises(StreamingUnsupported, match=r"message of the streamed transaction 700.* 0/64") as caught:
        stream.feed(LATER[-1])
    assert "source.messages = false" in caught.value.hint


@pytest.mark.parametrize(
    ("inside", "aborted", "contents"),
    [
        ([MESSAGE, insert(1, T), insert(2, T + 1)], [T + 1], 1),  # a row of the top level between them
        ([insert(1, T + 1), MESSAGE, insert(2, T + 1), insert(3, T + 2)], [T + 2], 1),  # of the one around it
        ([insert(1, T + 1), MESSAGE, insert(2, T + 2)], [T + 2, T + 1], 0),  # ambiguous, then surely gone
        ([insert(1, T + 1), MESSAGE], [T + 1], 0),
        ([MESSAGE, insert(1, T + 1)], [], 1),
    ],
)
def test_a_message_whose_subtransaction_is_known_is_published_or_not(
    stream: Assembly, inside: list[m.Message], aborted: list[int], contents: int
) -> None:
    stream.feed(*block(T, relation(T), *inside, first=True), *(m.StreamAbort(T, subxid) for subxid in aborted))
    stream.feed(m.StreamStart(T, False), relation(T), *LATER)
    assert sum(name == "messages" for name, _, _ in stream.records()) == contents


def test_an_ambiguous_message_of_an_aborted_transaction_does_not_matter(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), MESSAGE, insert(2, T + 1), first=True), m.StreamAbort(T, T + 1))
    stream.feed(m.StreamAbort(T, T), begin(60), relation(), insert(3), commit(60))
    assert stream.rows() == [3]


def test_a_message_outside_of_transactions_comes_at_once_between_blocks(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True))
    stream.feed(message(b"now", lsn=60, transactional=False))
    (name, _, value) = stream.records()[0]
    assert (name, value["after"], value["source"]["commit_lsn"], value["source"]["xid"]) == (
        "messages", {"transactional": False, "prefix": "p", "content": b"now"}, 59, 0,
    )  # fmt: skip
    assert stream.assembler.received_lsn == 60
    stream.feed(stream_commit(T, 100))
    assert stream.rows() == [1]


def test_a_message_outside_of_transactions_that_kafka_has_is_skipped(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, durable_lsn=60)
    stream.feed(message(b"a", lsn=60, transactional=False), message(b"b", lsn=61, transactional=False))
    assert [value["after"]["content"] for _, _, value in stream.records()] == [b"b"]


def test_an_origin_is_that_of_its_transaction_alone(stream: Assembly) -> None:
    stream.feed(*block(T, m.Origin(40, "far"), relation(T), insert(1, T), first=True))
    stream.feed(begin(50), m.Origin(45, "near"), relation(), insert(2), commit(50), begin(60), insert(3), commit(60))
    stream.feed(*block(T, insert(4, T)), stream_commit(T, 100))
    assert [value["source"]["origin"] for _, _, value in stream.records()] == ["near", None, "far", "far"]


# Replay


def test_a_large_transaction_is_handed_on_in_pieces_while_the_rest_waits(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, memory_bytes=1 << 16)
    stream.feed(*block(T, relation(T), first=True))
    for number in range(50):
        stream.feed(*block(T, *(insert(number * 1000 + n, T) for n in range(1000))))
    stream.start(stream_commit(T, 100), begin(110), insert(-1), commit(110))
    pieces = []
    while stream.assembler.in_transaction:
        batch = stream.take()
        pieces.append(batch.rows)
        assert (batch.transactions, batch.ends_inside_transaction) == (0, True)
        assert stream.assembler.is_busy
        stream.assembler.proceed()
    assert stream.assembler.is_busy, "the next transaction waits for its turn"
    ending = stream.take()
    assert (ending.transactions, ending.ends_inside_transaction) == (1, False)
    stream.feed_on()
    last = stream.take()
    assert (last.rows, last.transactions, last.end_lsn, last.ends_inside_transaction) == (1, 1, 120, False)
    assert sum(pieces) + ending.rows == 50_000
    assert len(pieces) > 2
    assert max(pieces) < 25_000
    assert stream.assembler.received_lsn == 120


def test_frames_must_not_overtake_those_that_wait(tmp_path: Path) -> None:
    stream = Assembly(tmp_path)
    stream.feed(*block(T, relation(T), insert(1, T), first=True))
    stream.start(stream_commit(T, 100))
    assert stream.assembler.is_busy
    with pytest.raises(AssertionError):
        stream.start(begin(200))


def test_a_stream_that_kafka_has_is_skipped_whole(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, durable_lsn=110, memory_bytes=1)
    stream.feed(*block(T, relation(T), insert(1, T), first=True), stream_commit(T, 100))
    assert (stream.take().rows, stream.assembler.received_lsn) == (0, 110)
    assert (stream.spooled_bytes, stream.files()) == (0, [])
    stream.feed(*block(U, relation(U), insert(2, U), first=True), stream_commit(U, 110))
    assert stream.rows() == [2]


@pytest.mark.parametrize(
    "messages",
    [
        [m.StreamStart(T, True), m.StreamStart(U, True)],
        [m.StreamStart(T, True), begin(1)],
        [m.StreamStart(T, True), stream_commit(T, 1)],
        [m.StreamStart(T, True), m.StreamAbort(T, T)],
        [begin(1), m.StreamStart(T, True)],
        [m.StreamStart(T, True), m.Prepare(1, 2, 3, T, "g")],
        [stream_commit(T, 1)],
    ],
    ids=lambda messages: "-".join(type(message).__name__ for message in messages),
)
def test_blocks_out_of_place_are_errors(messages: list[m.Message], tmp_path: Path) -> None:
    with pytest.raises(DecodeError):
        Assembly(tmp_path).feed(*messages)
