"""Two-phase commit: rows come out at COMMIT PREPARED, and what holds back the ack is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.assembly import (
    Assembly,
    begin,
    begin_prepare,
    block,
    commit,
    commit_prepared,
    insert,
    message,
    prepare,
    relation,
    rollback_prepared,
    stream_prepare,
    truncate,
)

from cdcd.errors import DecodeError, GapError
from cdcd.pgoutput import messages as m

T, U = 700, 900


@pytest.fixture(params=[1 << 20, 1], ids=["memory", "disk"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Assembly:
    """A stream that spools in memory, and one that takes every frame to disk."""
    return Assembly(tmp_path, memory_bytes=request.param)


def outcomes(stream: Assembly) -> list[tuple[int, str, int]]:
    found = [(outcome.kind, outcome.name, outcome.lsn) for outcome in stream.assembler.prepared_outcomes]
    stream.assembler.prepared_outcomes.clear()
    return found


def prepared(xid: int, lsn: int, *inside: m.Message, gid: str = "g") -> list[m.Message]:
    return [begin_prepare(xid, lsn, gid), *inside, prepare(xid, lsn, gid)]


def test_a_prepared_transaction_comes_out_when_it_is_committed(stream: Assembly) -> None:
    stream.feed(*prepared(T, 50, relation(), insert(1), truncate(), message(b"a"), insert(2)))
    batch = stream.take()
    assert (batch.rows, batch.transactions, batch.ends_inside_transaction) == (0, 0, False)
    assert stream.assembler.received_lsn == 0
    assert outcomes(stream) == [(m.PREPARE, f"{T} g", 50)]
    stream.feed(begin(60), insert(3), commit(60), commit_prepared(T, 70))
    assert outcomes(stream) == [(m.COMMIT_PREPARED, f"{T} g", 80)]
    assert [(e.op, e.commit_lsn, e.seq) for e in stream.events()] == [
        ("c", 60, 0), ("c", 70, 0), ("t", 70, 1), ("m", 70, 2), ("c", 70, 3),
    ]  # fmt: skip
    assert (stream.assembler.received_lsn, stream.spooled_bytes, stream.files()) == (80, 0, [])


def test_a_prepare_that_is_rolled_back_gives_no_row(stream: Assembly) -> None:
    stream.feed(*prepared(T, 50, relation(), insert(1)), rollback_prepared(T, 90))
    assert outcomes(stream) == [(m.PREPARE, f"{T} g", 50), (m.ROLLBACK_PREPARED, f"{T} g", 90)]
    assert (stream.take().rows, stream.assembler.received_lsn) == (0, 90)
    assert (stream.spooled_bytes, stream.files()) == (0, [])
    stream.feed(begin(100), insert(2), commit(100))
    assert stream.rows() == [2], "the server counts on a relation that a prepared transaction announced"


def test_a_gid_may_be_used_again(stream: Assembly) -> None:
    stream.feed(*prepared(T, 50, relation(), insert(1)), commit_prepared(T, 60))
    stream.feed(*prepared(U, 70, insert(2)), commit_prepared(U, 80))
    stream.feed(*prepared(U + 1, 90, insert(3)), rollback_prepared(U + 1, 110))
    assert stream.rows() == [1, 2]
    assert [name for _, name, _ in outcomes(stream)] == [f"{x} g" for x in (T, T, U, U, U + 1, U + 1)]


def test_several_are_prepared_at_a_time_and_committed_in_another_order(stream: Assembly) -> None:
    for number, gid in enumerate("abc"):
        stream.feed(*prepared(T + number, 50 + number, relation(), insert(number), gid=gid))
    stream.feed(commit_prepared(T + 2, 60, "c"), rollback_prepared(T + 1, 65, "b"), commit_prepared(T, 70, "a"))
    assert [(event.row[0], event.commit_lsn) for event in stream.events()] == [(2, 60), (0, 70)]


def test_a_prepared_transaction_keeps_the_schema_of_its_moment(stream: Assembly) -> None:
    stream.feed(begin(40), relation(), insert(1), commit(40), *prepared(T, 50, insert(2)))
    stream.feed(begin(60), relation(more=("n",)), insert(3, more=(30,)), commit(60), commit_prepared(T, 70))
    stream.feed(begin(80), insert(4, more=(40,)), commit(80))
    assert [event.row for event in stream.events()] == [(1,), (3, 30), (2,), (4, 40)]


def test_the_catalogue_is_asked_again_when_a_prepared_transaction_commits(stream: Assembly) -> None:
    stream.catalog.keys[7] = ()  # the transaction made the table: until it commits nobody sees its primary key
    stream.feed(*prepared(T, 50, relation(identity="f"), insert(1)))
    stream.catalog.keys[7] = ("id",)
    stream.feed(commit_prepared(T, 60), begin(70), insert(2), commit(70))
    assert [key is not None for _, key, _ in stream.records()] == [True, True]


def test_an_empty_prepared_transaction_is_received_and_gives_no_row(stream: Assembly) -> None:
    stream.feed(*prepared(T, 50), commit_prepared(T, 60))
    batch = stream.take()
    assert (batch.rows, batch.transactions, stream.assembler.received_lsn) == (0, 1, 70)
    assert [kind for kind, _, _ in outcomes(stream)] == [m.PREPARE, m.COMMIT_PREPARED]


def test_a_stream_is_prepared_without_what_was_rolled_back(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), insert(2, T + 1), first=True), m.StreamAbort(T, T + 1))
    stream.feed(*block(T, relation(T), insert(3, T)), stream_prepare(T, 50))
    assert outcomes(stream) == [(m.PREPARE, f"{T} g", 50)]
    stream.feed(*block(U, relation(U), insert(10, U), first=True), stream_prepare(U, 60, "other"))
    stream.feed(commit_prepared(T, 70), rollback_prepared(U, 90, "other"))
    assert stream.rows() == [1, 3]
    assert (stream.spooled_bytes, stream.files()) == (0, [])


def test_an_origin_and_a_large_prepared_transaction_pass(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, memory_bytes=1 << 17)
    rows = [insert(number) for number in range(30_000)]
    stream.feed(begin_prepare(T, 50), m.Origin(40, "far"), relation(), *rows, prepare(T, 50))
    stream.start(commit_prepared(T, 60))
    assert stream.assembler.is_busy
    assert stream.assembler.prepared_outcomes[-1].kind == m.PREPARE, "it holds the ack until all of it was handed on"
    stream.feed_on()
    found = stream.records()
    assert [value["after"]["id"] for _, _, value in found] == list(range(30_000))
    assert {value["source"]["origin"] for _, _, value in found} == {"far"}


def test_a_prepared_transaction_that_kafka_has_is_skipped_and_stops_holding_the_ack(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, durable_lsn=70)
    stream.feed(*prepared(T, 50, relation(), insert(1)), commit_prepared(T, 60))
    assert (stream.take().rows, stream.assembler.received_lsn, stream.spooled_bytes) == (0, 70, 0)
    assert outcomes(stream) == [(m.PREPARE, f"{T} g", 50), (m.COMMIT_PREPARED, f"{T} g", 70)]


def test_the_commit_of_an_unknown_transaction_is_a_gap_only_above_what_kafka_has(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, durable_lsn=70)
    stream.feed(commit_prepared(T, 60))
    assert (stream.assembler.received_lsn, outcomes(stream)) == (70, [])
    with pytest.raises(GapError, match=r"700 .* committed at 0/46") as caught:
        stream.feed(commit_prepared(T, 70))
    assert "snapshot" in caught.value.hint


def test_the_rollback_of_an_unknown_transaction_changes_nothing_else(stream: Assembly) -> None:
    stream.feed(rollback_prepared(T, 90))
    assert stream.assembler.received_lsn == 90


@pytest.mark.parametrize(
    "messages",
    [
        [begin_prepare(T, 1), begin_prepare(U, 2)],
        [begin_prepare(T, 1), commit(1)],
        [begin_prepare(T, 1), m.StreamStop()],
        [begin_prepare(T, 1), m.StreamStart(U, True)],
        [prepare(T, 1)],
        [stream_prepare(T, 1)],
        [begin(1), commit_prepared(T, 1)],
    ],
    ids=lambda messages: "-".join(type(message).__name__ for message in messages),
)
def test_messages_out_of_place_are_errors(messages: list[m.Message], tmp_path: Path) -> None:
    with pytest.raises(DecodeError):
        Assembly(tmp_path).feed(*messages)
