"""Decides when a position without rows goes to Kafka, so that the slot advances while nothing is published. Pure.

Before: `progress.ack_tracker` says which position the server has reached without a row for this daemon.
After: the loop hands on a batch without rows at that position. The position is acknowledged when Kafka has it.

One such slot record within a status interval is enough to keep WAL from piling up. A COMMIT that waits for this daemon
as its synchronous standby cannot wait that long, and a server that asks for a reply gets it at once.
"""

from __future__ import annotations

from math import inf
from typing import Final

SYNCHRONOUS_INTERVAL_S: Final = 0.01
"""The least time between two slot records without rows, while COMMITs wait for this daemon."""


class IdleAdvance:
    """The positions without rows of one stream. LSNs are end-exclusive; times are seconds that never go back."""

    def __init__(self, status_interval_s: float) -> None:
        """`status_interval_s`: the least time between two slot records without rows, while no COMMIT waits."""
        self._status_interval_s = status_interval_s
        self._last_idle_record_s = -inf
        self.lsn = 0
        """The last position that was handed on; 0 before the first."""

    def is_due(self, now: float, *, synchronous: bool) -> bool:
        """Whether the interval since the last slot record is over. `synchronous`: COMMITs wait for this daemon."""
        return now >= self._due_s(synchronous)

    def advance(self, now: float, idle_lsn: int) -> bool:
        """Note a position. Returns whether to hand it on: it is beyond the last one. 0: there is no such position."""
        if idle_lsn <= self.lsn:
            return False
        self.lsn = idle_lsn
        self._last_idle_record_s = now
        return True

    def wait_s(self, now: float, idle_lsn: int, *, synchronous: bool) -> float:
        """Return how long the loop may wait until `idle_lsn` is due; infinite if there is nothing to hand on."""
        return max(0.0, self._due_s(synchronous) - now) if idle_lsn > self.lsn else inf

    def _due_s(self, synchronous: bool) -> float:
        return self._last_idle_record_s + (SYNCHRONOUS_INTERVAL_S if synchronous else self._status_interval_s)
