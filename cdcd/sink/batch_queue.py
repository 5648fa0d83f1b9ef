"""The bounded queue between the thread that owns the replication connection and the thread that owns the producer.

Before: the source thread puts batches. If there is no room, it goes on answering the server.
After: `worker` gets them.

The queue is the backpressure of the whole daemon. It is bounded in batches and in bytes of memory.
Neither side polls. The sink thread sleeps on a condition. After `put` has refused a batch, `on_room` wakes the source
thread once there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Final, NamedTuple

from cdcd.sink.batches import Batch

_ROW_OVERHEAD_BYTES: Final = 320
"""The memory of a message in addition to its key and value: a dict of two, two bytes objects, a place in a list."""
_HEADERS_OVERHEAD_BYTES: Final = 200
"""And that of its headers, of which few are its own: a list, tuples, bytes objects."""


class QueueHead(NamedTuple):
    """The next batch, and what else waits in the queue."""

    batch: Batch | None = None
    """The next batch; None if the queue is empty."""
    has_stream_batch: bool = False
    """A batch of the stream is in the queue: rows of a snapshot do not count."""
    has_later_commit: bool = False
    """A batch after the next one ends a PostgreSQL transaction."""


EMPTY: Final = QueueHead()


def occupied_bytes(batch: Batch) -> int:
    """Return about how many bytes a batch takes in memory."""
    headed = sum(len(table.messages) for table in batch.tables if table.has_headers)
    return batch.bytes + _ROW_OVERHEAD_BYTES * batch.rows + _HEADERS_OVERHEAD_BYTES * headed


class BatchQueue:
    """First in, first out.

    `put` is for the source thread; `wait`, `head` and `get` are for the sink thread; the rest is for any thread.
    """

    def __init__(self, batches_max: int, bytes_max: int, on_room: Callable[[], None]) -> None:
        """The sink thread calls `on_room` when there is room after `put` was refused, or `has_less_than` was false."""
        self._batches_max = batches_max
        self._bytes_max = bytes_max
        self._on_room = on_room
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        self._commits = 0
        """Batches inside that end a PostgreSQL transaction."""
        self._snapshots = 0
        """Batches inside that hold rows of a snapshot."""
        self._out_bytes: int | None = None
        """The size of the batch that `get` has returned: it counts until `done`. None: no batch is out."""
        self._refused = False
        self._awaited_bytes = 0
        """`on_room` is called once the batches take less than this; 0: nobody waits for that."""
        self._closed = False
        self._changed = Condition()

    def put(self, batch: Batch) -> bool:
        """Add a batch; False, at once, if there is no room, or if the queue is closed (then see `SinkWorker.check`).

        An empty queue takes any batch, however large. Then it `is_overfull`, and calls `on_room` once it is not.
        """
        size = occupied_bytes(batch)
        with self._changed:
            full = len(self._batches) >= self._batches_max or self._bytes + size > self._bytes_max
            is_empty = not self._batches and self._out_bytes is None
            if self._closed or (full and not is_empty):
                self._refused = True
                return False
            self._batches.append(batch)
            self._bytes += size
            self._refused = self._bytes > self._bytes_max
            self._commits += batch.transactions > 0
            self._snapshots += batch.snapshot_records is not None
            self._changed.notify()
            return True

    def wait(self, seconds: float) -> bool:
        """Wait until there is a batch, at most so long; at once after `close`. Returns whether there is one."""
        with self._changed:
            if not self._batches and not self._closed:
                self._changed.wait(seconds)
            return bool(self._batches)

    def head(self) -> QueueHead:
        """Return what waits, without taking it out."""
        if not self._batches:
            return EMPTY
        batch = self._batches[0]
        later_commits = self._commits - (batch.transactions > 0)
        return QueueHead(batch, len(self._batches) > self._snapshots, later_commits > 0)

    def get(self) -> Batch:
        """Take the next batch out; there must be one. `done` follows."""
        with self._changed:
            batch = self._batches.popleft()
            self._out_bytes = occupied_bytes(batch)
            self._commits -= batch.transactions > 0
            self._snapshots -= batch.snapshot_records is not None
            return batch

    def done(self) -> None:
        """The producer has the batch of the last `get`, and nobody keeps it."""
        with self._changed:
            assert self._out_bytes is not None, "no batch is out"
            self._bytes -= self._out_bytes
            self._out_bytes = None
            is_awaited, self._refused = self._refused, False
            if self._bytes < self._awaited_bytes:
                is_awaited, self._awaited_bytes = True, 0
        if is_awaited:
            self._on_room()

    def close(self) -> None:
        """Refuse more batches and end every wait; the batches inside can still be taken out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def batches(self) -> int:
        """How many batches are inside."""
        return len(self._batches)

    @property
    def has_batch(self) -> bool:
        """Whether a batch is inside."""
        return bool(self._batches)

    @property
    def bytes(self) -> int:
        """About how much memory the batches take that the producer does not have."""
        return self._bytes

    def has_less_than(self, size_bytes: int) -> bool:
        """Whether the batches that the producer does not have take less memory than about this.

        If not, `on_room` is called once they do.
        """
        if self._bytes < size_bytes:
            return True
        with self._changed:
            if self._bytes < size_bytes:
                return True
            self._awaited_bytes = size_bytes
            return False

    @property
    def is_overfull(self) -> bool:
        """A batch is larger than the queue: read nothing before the producer has it, because memory would not do."""
        return self._bytes > self._bytes_max
