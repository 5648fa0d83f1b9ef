"""The daemon's clock. Pure modules take the time as an argument, so that tests can choose it.

Before: the operating system has the time. After: the loops of `daemon` read it once a turn, and pass it on. Other
modules read it only for the deadlines of their I/O.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


def monotonic_s() -> float:
    """Seconds since a fixed moment, for intervals and deadlines. It never goes back."""
    return time.monotonic()


def wall_us() -> int:
    """Microseconds since 1970-01-01 UTC, to compare with PostgreSQL's commit times. It may jump."""
    return time.time_ns() // 1000


def wall_ns() -> int:
    """The same in nanoseconds."""
    return time.time_ns()


def utc_now() -> datetime:
    """The same as a datetime, to compare with the dates of certificates."""
    return datetime.fromtimestamp(wall_us() / 1_000_000, UTC)
