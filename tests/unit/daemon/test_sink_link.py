from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from cdcd.daemon.sink_link import SinkLink
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import Batch
from cdcd.sink.kafka_transaction import CommitResult


class PlayedWorker:
    """The sink's thread: a test says what it makes durable."""

    def __init__(self, on_durable: Callable[[Any, float], None], on_end: Any) -> None:
        self.on_durable = on_durable
        self.durable = 0


def result(end_lsn: int, opened_at: float) -> CommitResult:
    return CommitResult(end_lsn, 0, 0, 0, 0, 0, 0, {}, {}, {}, opened_at)


def link(queue: BatchQueue, woken: list[str]) -> tuple[SinkLink, PlayedWorker]:
    it = SinkLink(queue, cast("Any", PlayedWorker), lambda: woken.append("woken"), lambda: 1002.5)
    return it, cast("PlayedWorker", it.worker)


def test_a_batch_that_finds_no_room_is_kept_until_there_is_room() -> None:
    queue = BatchQueue(1, 1 << 20, lambda: None)
    it, _ = link(queue, [])
    first, second = Batch(), Batch()
    it.put(first)
    assert not it.is_blocked
    it.put(second)
    assert it.is_blocked
    assert it.handed_over == 2
    it.retry()
    assert it.is_blocked, "there is still no room"
    assert queue.get() is first
    it.retry()
    assert not it.is_blocked
    assert queue.get() is second


def test_nothing_is_read_until_the_producer_has_a_batch_larger_than_the_queue() -> None:
    queue = BatchQueue(9, 1_000, lambda: None)
    it, _ = link(queue, [])
    large = Batch()
    large.bytes = 1_000_000
    it.put(large)
    assert it.is_blocked
    assert queue.get() is large
    it.retry()
    assert it.is_blocked, "the producer has not taken it"
    queue.done()
    it.retry()
    assert not it.is_blocked
    assert it.handed_over == 1


def test_the_sink_is_drained_when_kafka_has_every_batch() -> None:
    it, worker = link(BatchQueue(1, 1 << 20, lambda: None), [])
    assert it.is_drained
    it.put_position(200)
    assert not it.is_drained
    worker.durable = 1
    assert it.is_drained
    it.put_position(300)
    assert it.is_blocked
    worker.durable = 2
    assert not it.is_drained, "one batch is not even in the queue"


def test_commits_come_back_in_order_and_wake_the_loop() -> None:
    woken: list[str] = []
    it, worker = link(BatchQueue(9, 1 << 20, lambda: None), woken)
    assert it.next_commit() is None
    worker.on_durable(result(100, 1000.0), 0.25)
    worker.on_durable(result(200, 1002.0), 0.5)
    assert woken == ["woken", "woken"]
    first, second = it.next_commit(), it.next_commit()
    assert first is not None
    assert second is not None
    assert (first.result.end_lsn, first.commit_s, first.open_s) == (100, 0.25, 2.5)
    assert (second.result.end_lsn, second.commit_s, second.open_s) == (200, 0.5, 0.5)
    assert it.next_commit() is None
