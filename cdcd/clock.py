"""The only module that reads the time; everything else takes it as an argument, so that tests can choose it.

Before: the operating system. After: the loops of `pipeline` and `supervisor` read it once a turn and pass it on.
"""

from __future__ import annotations

import time


def monotonic_s() -> float:
    """Seconds since some fixed moment: for intervals and deadlines. Never goes back."""
    return time.monotonic()


def wall_us() -> int:
    """Microseconds since 1970-01-01 UTC: for latencies against PostgreSQL's commit times. May jump."""
    return time.time_ns() // 1000


def sleep(seconds: float) -> None:
    """Wait; only for loops that have nothing to listen to. Whoever can wait on a socket or an event does that."""
    time.sleep(seconds)
