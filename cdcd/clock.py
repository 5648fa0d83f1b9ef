"""The daemon's clock. Pure modules take the time as an argument, so that tests can choose it.

Before: the operating system. After: the loops of `pipeline` and `supervisor` read it once a turn and pass it on;
beside them only modules that do I/O read the time at all, for their deadlines.
"""

from __future__ import annotations

import time


def monotonic_s() -> float:
    """Seconds since some fixed moment: for intervals and deadlines. Never goes back."""
    return time.monotonic()


def wall_us() -> int:
    """Microseconds since 1970-01-01 UTC: for latencies against PostgreSQL's commit times. May jump."""
    return time.time_ns() // 1000
