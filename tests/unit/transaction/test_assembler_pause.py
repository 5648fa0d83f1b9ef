"""The pause: what commits before its LSN is handed on, and nothing else until it has ended."""

from __future__ import annotations

from pathlib import Path

from support.assembly import Assembly, block, stream_commit
from support.assembly import insert as streamed_insert
from support.assembly import relation as streamed_relation
from support.one_table import RELATION, OneTableStream, begin, commit, insert

from cdcd.pgoutput import messages as m
from cdcd.source.stream_messages import PrimaryKeepalive


def transactions(stream: OneTableStream, *lsns: int) -> None:
    """Feed transactions that commit there, one row each, at once."""
    stream.feed(*(message for lsn in lsns for message in (begin(lsn), RELATION, insert(lsn), commit(lsn))))


def test_the_first_transaction_that_commits_at_the_pause_waits(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.assembler.pause_before(200)
    transactions(stream, 100, 199, 200, 300)
    assert stream.assembler.is_paused
    assert stream.assembler.is_busy
    assert not stream.assembler.in_transaction
    assert stream.take().rows == 2
    stream.assembler.proceed()
    assert stream.take().rows == 0
    stream.assembler.resume()
    stream.assembler.proceed()
    assert stream.take().rows == 2
    assert not stream.assembler.is_busy


def test_a_later_pause_takes_the_place_of_the_first(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.assembler.pause_before(1)
    transactions(stream, 100, 200, 300)
    assert stream.take().rows == 0
    stream.assembler.pause_before(250)
    stream.assembler.proceed()
    assert stream.take().rows == 2
    assert stream.assembler.is_paused


def test_a_server_that_gets_there_without_a_transaction_is_paused(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.assembler.pause_before(200)
    stream.keepalive(199)
    assert not stream.assembler.is_paused
    stream.keepalive(200)
    assert stream.assembler.is_paused
    assert not stream.assembler.is_busy


def test_a_keepalive_inside_a_transaction_does_not_pause(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.assembler.pause_before(200)
    stream.feed(begin(150))
    stream.keepalive(500)
    assert not stream.assembler.is_paused


def test_a_keepalive_inside_a_stream_block_pauses_and_the_block_goes_on_afterwards(tmp_path: Path) -> None:
    stream = Assembly(tmp_path)
    start, announced, stop = block(700, streamed_relation(700), first=True)
    stream.feed(start, announced)
    stream.assembler.pause_before(200)
    stream.assembler.feed([PrimaryKeepalive(200, 0, False).encode()])
    assert stream.assembler.is_paused
    stream.assembler.resume()
    stream.feed(streamed_insert(1, 700), stop, stream_commit(700, 300))
    assert stream.rows() == [1]


def test_a_message_whose_record_ends_at_the_pause_is_before_it(tmp_path: Path) -> None:
    stream = OneTableStream(tmp_path)
    stream.assembler.pause_before(1000)
    stream.feed(m.LogicalMessage(0, False, 1000, "p", b"x"), begin(1000), RELATION, insert(1), commit(1000))
    assert stream.take().rows == 1
    assert stream.assembler.is_paused
