"""How fast the rows of snapshots may be read: a token bucket for rows, and one for bytes. Pure.

Before: the settings give the limits of the daemon, also while rows are read; `table_rules` gives those of tables.
After: `daemon.snapshot_rows` reads no more than there is room for.

A bucket is empty at first, so that a daemon that starts again and again reads no more than another one. It saves up
what one second gives. A row cannot be divided: one that is larger than the room is read, and the rows after it wait
longer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

SAVED_S: Final = 1.0
"""A bucket holds what so many seconds give."""

STEP_S: Final = 0.05
"""An empty bucket is filled for so long before rows are read again, so that they come in batches."""

UNLIMITED: Final = 1 << 40
"""The room where there is no limit: more than is ever read at once."""


class CopyRate:
    """The limits of one daemon or of one table, and what was read. For one thread, `limit` excepted."""

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


class TableRate:
    """The limits that hold for the rows of one table: those of the daemon, and the table's own."""

    def __init__(self, *rates: CopyRate) -> None:
        self._rates = rates

    @property
    def is_limited(self) -> bool:
        """There is a limit."""
        return any(rate.is_limited for rate in self._rates)

    def room(self, now: float) -> tuple[int, int]:
        """As `CopyRate.room`."""
        rooms = [rate.room(now) for rate in self._rates]
        return min(rows for rows, _ in rooms), min(size_bytes for _, size_bytes in rooms)

    def take(self, rows: int, size_bytes: int) -> None:
        """Rows of the table were read."""
        for rate in self._rates:
            rate.take(rows, size_bytes)

    def wait_s(self) -> float:
        """Return after how many seconds there is room again; 0 if there is some."""
        return max(rate.wait_s() for rate in self._rates)


class TableRates:
    """The rates of all tables of one stream. For one thread."""

    def __init__(
        self, of_all: CopyRate | None = None, limits: Callable[[str, str], tuple[int, int]] = lambda _, __: (0, 0)
    ) -> None:
        """`of_all`: that of the daemon. `limits`: a table's own rows and bytes a second (schema and name); 0: none."""
        self.of_all = of_all or CopyRate()
        self._limits = limits
        self._of_tables: dict[tuple[str, str], TableRate] = {}

    def of(self, schema: str, table: str) -> TableRate:
        """Return the rate of a table. It lasts as long as the stream: another snapshot of the table gets no more."""
        found = self._of_tables.get((schema, table))
        if found is None:
            found = TableRate(self.of_all, CopyRate(*self._limits(schema, table)))
            self._of_tables[schema, table] = found
        return found


def _enough(limit: int) -> float:
    """The rows or bytes from which on it is worth to read."""
    return max(1.0, limit * STEP_S)
