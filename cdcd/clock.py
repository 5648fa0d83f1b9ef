"""The daemon's clock. Pure modules take the time as an argument, so that tests can choose it.

Before: the operating system. After: the loops of `pipeline` and `supervisor` read the time once a turn and pass it on.
Other modules read it only for the deadlines of their I/O.
"""

from __future__ import annotations

import time


def monotonic_s() -> float:
    """Seconds since some fixed moment, for intervals and deadlines. It never goes back."""
    return time.monotonic()


def wall_us() -> int:
    """Microseconds since 1970-01-01 UTC, for the latency since PostgreSQL's commit time. It may jump."""
    return time.time_ns() // 1000
