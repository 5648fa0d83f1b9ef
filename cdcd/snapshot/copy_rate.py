"""How fast the rows of snapshots may be read: a token bucket for rows, and one for bytes. Pure.

Before: the settings give the limits, also while rows are read.
After: `daemon.snapshot_rows` reads no more than there is room for.

A bucket is empty at first, so that a daemon that starts again and again reads no more than another one. It saves up
what one second gives. A row cannot be divided: one that is larger than the room is read, and the rows after it wait
longer.
"""

from __future__ import annotations

from math import inf
from typing import Final

SAVED_S: Final = 1.0
"""A bucket holds what so many seconds give."""

STEP_S: Final = 0.05
"""An empty bucket is filled for so long before rows are read again, so that they come in batches."""

UNLIMITED: Final = 1 << 40
"""The room where there is no limit: more than is ever read at once."""


class CopyRate:
    """The limits of one daemon, and what was read. For one thread, `limit` excepted."""

    def __init__(self, rows_per_second: int = 0, bytes_per_second: int = 0) -> None:
        """0: no limit. The bytes are those that COPY sends for rows."""
        self._limits = (rows_per_second, bytes_per_second)
        self._left = [0.0, 0.0]
        """Rows and bytes that may be read; below 0 after a row that was larger than the room."""
        self._filled_s = inf

    def limit(self, rows_per_second: int, bytes_per_second: int) -> None:
        """From now on these are the limits. For any thread."""
        self._limits = (rows_per_second, bytes_per_second)

    @property
    def is_limited(self) -> bool:
        """There is a limit."""
        return any(self._limits)

    def room(self, now: float) -> tuple[int, int]:
        """Return how many rows and bytes may be read at `now` (monotonic seconds); both are 0 if nothing may."""
        passed_s = max(0.0, now - self._filled_s)
        self._filled_s = now
        room = []
        for at, limit in enumerate(self._limits):
            # What is owed is forgotten once there is no limit.
            self._left[at] = min(max(1.0, limit * SAVED_S), self._left[at] + limit * passed_s) if limit else 0.0
            room.append(int(self._left[at]) if limit else UNLIMITED)
            if limit and self._left[at] < _enough(limit):
                return 0, 0
        return room[0], room[1]

    def take(self, rows: int, size_bytes: int) -> None:
        """Rows were read."""
        self._left[0] -= rows
        self._left[1] -= size_bytes

    def wait_s(self) -> float:
        """Return after how many seconds there is room again; 0 if there is some."""
        waits = [(_enough(limit) - left) / limit for limit, left in zip(self._limits, self._left, strict=True) if limit]
        return max([0.0, *waits])


def _enough(limit: int) -> float:
    """The rows or bytes from which on it is worth to read."""
    return max(1.0, limit * STEP_S)
