"""The barrier: what commits before it is handed on, and nothing else until it is lifted."""

from __future__ import annotations

from pathlib import Path

from support.one_table import RELATION, Stream, begin, commit, insert


def transactions(stream: Stream, *lsns: int) -> None:
    """Feed transactions that commit there, one row each, at once."""
    stream.feed(*(message for lsn in lsns for message in (begin(lsn), RELATION, insert(lsn), commit(lsn))))


def test_the_first_transaction_at_the_barrier_waits(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
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


def test_a_barrier_further_on_takes_the_place_of_the_first(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.assembler.pause_before(1)
    transactions(stream, 100, 200, 300)
    assert stream.take().rows == 0
    stream.assembler.pause_before(250)
    stream.assembler.proceed()
    assert stream.take().rows == 2
    assert stream.assembler.is_paused


def test_a_server_that_has_got_there_without_a_transaction_is_at_the_barrier(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.assembler.pause_before(200)
    stream.keepalive(199)
    assert not stream.assembler.is_paused
    stream.keepalive(200)
    assert stream.assembler.is_paused
    assert not stream.assembler.is_busy


def test_a_keepalive_inside_a_transaction_is_no_arrival(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.assembler.pause_before(200)
    stream.feed(begin(150))
    stream.keepalive(500)
    assert not stream.assembler.is_paused
