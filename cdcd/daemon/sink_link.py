"""The loop's link to the sink's thread: batches go there, committed Kafka transactions come back.

Before: the loop hands on batches. After: `sink.batch_queue` holds them, `sink.worker` publishes them. The sink's thread
wakes the loop when a Kafka transaction is committed, so that the acknowledgement leaves at once.

A full queue takes no batch. The link keeps the refused batch, and the loop reads nothing until the queue has taken it.
Nor does it read while a batch is under way that is larger than the queue: several large rows would be too much memory.
So a slow Kafka slows the walsender down, but the daemon still answers it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from cdcd.clock import monotonic_s
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import Batch
from cdcd.sink.kafka_transaction import CommitResult
from cdcd.sink.worker import SinkWorker


@dataclass(frozen=True)
class Commit:
    """A Kafka transaction that was committed."""

    result: CommitResult
    commit_s: float
    """How long flush and commit took."""
    open_s: float
    """How long the transaction was open."""


class SinkLink:
    """The link of one stream. All methods are for the thread that owns the stream."""

    def __init__(
        self,
        queue: BatchQueue,
        make_worker: Callable[[Callable[[CommitResult, float], None], Callable[[], None]], SinkWorker],
        wake: Callable[[], None],
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """`make_worker` takes `on_commit` and `on_end` of SinkWorker, and makes the sink's thread: it reads `queue`.

        `wake` ends the waiting of the loop; the sink's thread calls it. `clock` returns seconds and never goes back.
        """
        self._queue = queue
        self._wake = wake
        self._clock = clock
        self._committed: deque[Commit] = deque()
        self._refused: Batch | None = None
        self.is_blocked = False
        """The queue has refused a batch, or has one that is larger than the queue. Hand on and read nothing
        before `retry` has placed the one, or the producer has the other."""
        self.handed_over = 0
        """Batches that were handed on, the refused one included."""
        self.worker = make_worker(self._on_durable, wake)

    def put(self, batch: Batch) -> None:
        """Hand a batch on. If the queue is full, the link keeps it: `is_blocked`."""
        assert not self.is_blocked, "the batch would overtake the one that the queue refused"
        self.handed_over += 1
        if not self._queue.put(batch):
            self._refused = batch
        self.is_blocked = self._refused is not None or self._queue.is_overfull

    def put_position(self, lsn: int) -> None:
        """Hand on a batch without rows: nothing before `lsn` is missing."""
        batch = Batch()
        batch.end_lsn = lsn
        self.put(batch)

    def retry(self) -> None:
        """Offer the refused batch to the queue again, if there is one."""
        if self._refused is not None and self._queue.put(self._refused):
            self._refused = None
        self.is_blocked = self._refused is not None or self._queue.is_overfull

    @property
    def has_work(self) -> bool:
        """Batches wait for the sink."""
        return self.is_blocked or self._queue.has_batch

    @property
    def is_idle(self) -> bool:
        """The queue is empty: the sink has nothing to do."""
        return not self._queue.has_batch

    def has_less_than(self, size_bytes: int) -> bool:
        """Whether the batches in the queue take less memory than about this; if not, `wake` is called once they do."""
        return self._queue.has_less_than(size_bytes)

    @property
    def durable(self) -> int:
        """How many of the batches that were handed on are in Kafka."""
        return self.worker.durable

    @property
    def is_drained(self) -> bool:
        """Kafka holds every batch that was handed on."""
        return not self.is_blocked and self.worker.durable == self.handed_over

    @property
    def published(self) -> int:
        """A number that grows whenever the sink publishes something."""
        return self.worker.published

    @property
    def is_committing(self) -> bool:
        """A commit is under way: a batch that is handed on now waits for milliseconds."""
        return self.worker.committing

    def next_commit(self) -> Commit | None:
        """Return the next Kafka transaction that was committed, oldest first; None if there is no other."""
        return self._committed.popleft() if self._committed else None

    def check(self) -> None:
        """Raises the error that ended the sink's thread, if one did."""
        self.worker.check()

    def start(self) -> None:
        """Start the sink's thread."""
        self.worker.start()

    def stop(self, within_s: float) -> None:
        """Ask the sink's thread to finish its Kafka transaction within so many seconds, and to end. Returns at once."""
        self.worker.stop(within_s)

    def join(self, wait_s: float) -> bool:
        """Wait for the end of the sink's thread; False if it did not come in time."""
        return self.worker.join(wait_s)

    def _on_durable(self, result: CommitResult, commit_s: float) -> None:
        """Called in the sink's thread."""
        self._committed.append(Commit(result, commit_s, self._clock() - result.opened_at))
        self._wake()
