"""What bound a drain, judged by the CPU time of its parts. Pure.

Before: `contestants` has counted the CPU time.
After: `compare` prints the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping

BUSY_SHARE = 0.9
FULL_SHARE = 0.95


def bound_by(cores: Mapping[str, float], machine_share: float) -> str:
    """Return the name of what bound a drain: one of the parts in `cores`, `machine`, or `waits`.

    `cores` says how many cores each part has used on average; `machine_share` is the busy share of all cores, 0 to 1.
    The rule:

    1. A part that works on one core at a time binds if it was busy for BUSY_SHARE of the drain: it could not have done
       more. If several were, the busiest binds. Such parts are the walsender (one process), the daemon (its Python
       threads share a lock), librdkafka (its two producers take turns) and the broker's serving threads (the broker
       serves one request of a connection at a time).
    2. Else the machine binds if its cores were busy for FULL_SHARE: the parts waited for a core.
    3. Else they waited for each other: for commits, pauses between reads, the disk.

    A contestant in a JVM uses several cores. It is judged as if it used one.
    """
    busiest = max(cores, key=lambda part: cores[part])
    if cores[busiest] >= BUSY_SHARE:
        return busiest
    return "machine" if machine_share >= FULL_SHARE else "waits"
