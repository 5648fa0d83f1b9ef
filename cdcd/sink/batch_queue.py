"""The bounded queue between the thread that owns the replication connection and the one that owns the producer.

Before: the source thread puts batches, and goes on answering the server when there is no room.
After: `worker` takes them.

It is the backpressure of the whole daemon: bounded in batches and in bytes, by what the batches really occupy.
Neither side polls: the taker sleeps on a condition; the putter, once refused, is woken through `on_room`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Final

from cdcd.sink.batches import Batch

_ROW_OVERHEAD_BYTES: Final = 320
"""Of a message in memory beside its key and value: a dict of two, two bytes objects, a place in a list."""


def occupied_bytes(batch: Batch) -> int:
    """About what a batch occupies in memory."""
    return batch.bytes + _ROW_OVERHEAD_BYTES * batch.rows


class BatchQueue:
    """First in, first out. `put` and `take` are for one thread each; all other methods for any."""

    def __init__(self, batches_max: int, bytes_max: int, on_room: Callable[[], None]) -> None:
        """`on_room` is called, in the taking thread, when there is room again after `put` was refused."""
        self._batches_max = batches_max
        self._bytes_max = bytes_max
        self._on_room = on_room
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        self._ends = 0
        self._copies = 0
        self._refused = False
        self._closed = False
        self._changed = Condition()

    def put(self, batch: Batch) -> bool:
        """Hand over a batch; False, at once, if there is no room (or the other side has gone: see `thread.check`).

        A batch larger than the whole queue is taken when the queue is empty.
        """
        size = occupied_bytes(batch)
        with self._changed:
            full = len(self._batches) >= self._batches_max or self._bytes + size > self._bytes_max
            if self._closed or (full and self._batches):
                self._refused = True
                return False
            self._batches.append(batch)
            self._bytes += size
            self._ends += batch.transactions > 0
            self._copies += batch.copies is not None
            self._changed.notify()
            return True

    def take(self, wait_s: float, *, copies: bool = True) -> Batch | None:
        """The next batch, as soon as there is one; None if none came within `wait_s` seconds, or after `close`.

        Without `copies` also if it holds rows of a snapshot: one may come while this waits.
        """
        with self._changed:
            if not self._batches and not self._closed:
                self._changed.wait(wait_s)
            if not self._batches or (not copies and self.copies_next):
                return None
            batch = self._batches.popleft()
            self._bytes -= occupied_bytes(batch)
            self._ends -= batch.transactions > 0
            self._copies -= batch.copies is not None
            room = self._refused
            self._refused = False
        if room:
            self._on_room()
        return batch

    def close(self) -> None:
        """Take in no more, and let nobody wait; what is inside can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def batches(self) -> int:
        """How many are inside."""
        return len(self._batches)

    @property
    def waiting(self) -> bool:
        """Whether a batch could be taken at once."""
        return bool(self._batches)

    @property
    def stream_waiting(self) -> bool:
        """Whether a batch of the stream is inside, which rows of a snapshot are not."""
        return len(self._batches) > self._copies

    @property
    def copies_next(self) -> bool:
        """Whether the next batch holds rows of a snapshot. For the taking thread."""
        return bool(self._batches) and self._batches[0].copies is not None

    @property
    def end_waiting(self) -> bool:
        """Whether the end of a transaction is inside: if the batch taken last is open, the end of the one it opens."""
        return self._ends > 0

    @property
    def bytes(self) -> int:
        """What is inside occupies about this much memory."""
        return self._bytes
