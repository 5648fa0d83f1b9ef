"""The queue between the two threads is bounded, and nobody polls it."""

from __future__ import annotations

import threading
import time

import pytest

from cdcd.sink.batch_queue import BatchQueue, occupied_bytes
from cdcd.sink.batches import Batch


def batch(size: int = 1, rows: int = 1) -> Batch:
    made = Batch()
    made.bytes = size
    made.rows = rows
    return made


def queue(batches_max: int = 10, bytes_max: int = 10_000) -> tuple[BatchQueue, list[str]]:
    calls: list[str] = []
    return BatchQueue(batches_max, bytes_max, lambda: calls.append("room")), calls


def test_batches_come_out_in_order() -> None:
    handover, _ = queue()
    batches = [batch() for _ in range(5)]
    assert all(handover.put(each) for each in batches)
    assert handover.waiting
    assert [handover.take(0) for _ in range(5)] == batches
    assert not handover.waiting
    assert handover.bytes == 0


def test_it_is_bounded_in_batches() -> None:
    handover, _ = queue(batches_max=2)
    assert [handover.put(batch()) for _ in range(3)] == [True, True, False]


def test_it_is_bounded_in_what_batches_occupy() -> None:
    handover, _ = queue(bytes_max=10 * occupied_bytes(batch()))
    assert [handover.put(batch()) for _ in range(11)] == [True] * 10 + [False]
    assert handover.bytes == 10 * occupied_bytes(batch())


def test_a_batch_larger_than_the_bound_passes_alone() -> None:
    handover, _ = queue(bytes_max=100)
    large = batch(size=1_000_000)
    assert handover.put(large)
    assert not handover.put(batch())
    assert handover.take(0) is large
    assert handover.put(batch())


def test_only_a_putter_that_was_refused_is_told_of_room() -> None:
    handover, calls = queue(batches_max=1)
    handover.put(batch())
    handover.take(0)
    assert calls == []
    handover.put(batch())
    handover.put(batch())
    handover.take(0)
    assert calls == ["room"]
    handover.put(batch())
    handover.take(0)
    assert calls == ["room"], "told once"


def test_take_wakes_as_soon_as_there_is_a_batch() -> None:
    handover, _ = queue()
    put_at: list[float] = []

    def put() -> None:
        put_at.append(time.monotonic())
        handover.put(batch())

    timer = threading.Timer(0.05, put)
    timer.start()
    assert handover.take(10) is not None
    assert time.monotonic() - put_at[0] < 1
    timer.join()


def test_take_gives_up_after_its_wait() -> None:
    handover, _ = queue()
    began = time.monotonic()
    assert handover.take(0.05) is None
    assert time.monotonic() - began == pytest.approx(0.05, abs=0.5)


def test_after_close_nothing_goes_in_but_what_is_inside_comes_out_without_waiting() -> None:
    handover, _ = queue()
    last = batch()
    handover.put(last)
    handover.close()
    assert not handover.put(batch())
    assert handover.take(10) is last
    assert handover.take(10) is None


def test_it_knows_whether_the_end_of_a_transaction_is_inside() -> None:
    handover, _ = queue()
    piece, end = batch(), batch()
    piece.open = True
    end.transactions = 3
    assert not handover.end_waiting
    handover.put(piece)
    assert not handover.end_waiting
    handover.put(end)
    handover.put(piece)
    handover.take(0)
    assert handover.end_waiting
    handover.take(0)
    assert not handover.end_waiting


def test_close_wakes_the_taker() -> None:
    handover, _ = queue()
    timer = threading.Timer(0.05, handover.close)
    timer.start()
    began = time.monotonic()
    assert handover.take(10) is None
    assert time.monotonic() - began < 5
    timer.join()
