"""The queue between the two threads is bounded, and nobody polls it."""

from __future__ import annotations

import threading
import time

import pytest

from cdcd.sink.batch_queue import BatchQueue, QueueHead, occupied_bytes
from cdcd.sink.batches import Batch


def batch(size: int = 1, rows: int = 1) -> Batch:
    made = Batch()
    made.bytes = size
    made.rows = rows
    return made


def queue(batches_max: int = 10, bytes_max: int = 10_000) -> tuple[BatchQueue, list[str]]:
    calls: list[str] = []
    return BatchQueue(batches_max, bytes_max, lambda: calls.append("room")), calls


def take(made: BatchQueue) -> Batch:
    """Do what the sink does with a batch."""
    taken = made.get()
    made.done()
    return taken


def test_batches_come_out_in_order() -> None:
    made, _ = queue()
    batches = [batch() for _ in range(5)]
    assert all(made.put(each) for each in batches)
    assert made.has_batch
    assert [take(made) for _ in range(5)] == batches
    assert not made.has_batch
    assert made.bytes == 0


def test_it_is_bounded_in_batches() -> None:
    made, _ = queue(batches_max=2)
    assert [made.put(batch()) for _ in range(3)] == [True, True, False]


def test_it_is_bounded_in_what_batches_occupy() -> None:
    made, _ = queue(bytes_max=10 * occupied_bytes(batch()))
    assert [made.put(batch()) for _ in range(11)] == [True] * 10 + [False]
    assert made.bytes == 10 * occupied_bytes(batch())


def test_a_batch_larger_than_the_bound_passes_alone() -> None:
    made, _ = queue(bytes_max=100)
    large = batch(size=1_000_000)
    assert made.put(large)
    assert not made.put(batch())
    assert take(made) is large
    assert made.put(batch())


def test_a_batch_takes_memory_until_the_producer_has_it() -> None:
    made, calls = queue(bytes_max=1_000)
    large = batch(size=1_000_000)
    assert made.put(large)
    assert made.is_overfull
    assert made.get() is large
    assert made.is_overfull
    assert not made.put(batch())
    assert calls == []
    made.done()
    assert not made.is_overfull
    assert calls == ["room"]
    assert made.put(batch())


def test_whoever_waits_until_less_is_inside_is_told_once() -> None:
    made, calls = queue()
    size = occupied_bytes(batch())
    assert made.has_less_than(size)
    for _ in range(4):
        assert made.put(batch())
    assert not made.has_less_than(2 * size)
    take(made)
    take(made)
    assert calls == []
    take(made)
    assert calls == ["room"]
    assert made.has_less_than(2 * size)
    take(made)
    assert calls == ["room"]


def test_whoever_waits_for_a_large_batch_to_go_is_told() -> None:
    made, calls = queue(bytes_max=1_000)
    assert made.put(batch(size=1_000_000))
    take(made)
    assert calls == ["room"]


def test_only_a_putter_that_was_refused_is_told_of_room() -> None:
    made, calls = queue(batches_max=1)
    made.put(batch())
    take(made)
    assert calls == []
    made.put(batch())
    made.put(batch())
    take(made)
    assert calls == ["room"]
    made.put(batch())
    take(made)
    assert calls == ["room"], "told once"


def test_wait_ends_as_soon_as_there_is_a_batch() -> None:
    made, _ = queue()
    put_at: list[float] = []

    def put() -> None:
        put_at.append(time.monotonic())
        made.put(batch())

    timer = threading.Timer(0.05, put)
    timer.start()
    assert made.wait(10)
    assert time.monotonic() - put_at[0] < 1
    timer.join()


def test_wait_gives_up_after_its_time() -> None:
    made, _ = queue()
    began = time.monotonic()
    assert not made.wait(0.05)
    assert time.monotonic() - began == pytest.approx(0.05, abs=0.5)


def test_after_close_nothing_goes_in_but_what_is_inside_comes_out_without_waiting() -> None:
    made, _ = queue()
    last = batch()
    made.put(last)
    made.close()
    assert not made.put(batch())
    assert made.wait(10)
    assert made.get() is last
    assert not made.wait(10)


def test_the_head_knows_whether_a_batch_behind_it_ends_a_transaction() -> None:
    made, _ = queue()
    piece, end = batch(), batch()
    piece.ends_inside_transaction = True
    end.transactions = 3
    assert made.head() == QueueHead()
    made.put(piece)
    assert made.head() == QueueHead(piece, has_stream_batch=True, has_later_commit=False)
    made.put(end)
    made.put(piece)
    assert made.head() == QueueHead(piece, has_stream_batch=True, has_later_commit=True)
    made.get()
    assert made.head() == QueueHead(end, has_stream_batch=True, has_later_commit=False)


def test_the_head_knows_whether_only_rows_of_snapshots_wait() -> None:
    made, _ = queue()
    rows = batch()
    rows.snapshot_records = []
    made.put(rows)
    assert made.head() == QueueHead(rows, has_stream_batch=False)
    made.put(batch())
    assert made.head() == QueueHead(rows, has_stream_batch=True)


def test_close_ends_a_wait() -> None:
    made, _ = queue()
    timer = threading.Timer(0.05, made.close)
    timer.start()
    began = time.monotonic()
    assert not made.wait(10)
    assert time.monotonic() - began < 5
    timer.join()
