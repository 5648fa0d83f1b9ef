"""How long one call to Kafka may take: its timeout, or less once somebody is in a hurry.

Before: `kafka.producer` and `kafka.admin` ask at the start of a call, and each time a slice of waiting has passed.
After: they give up, and raise what that means. Another thread may hurry them.
"""

from __future__ import annotations

from math import inf
from typing import Final

from cdcd.clock import monotonic_s

SLICE_S: Final = 0.2
"""Longest wait inside librdkafka: so often deadlines and requests to stop are looked at. A result ends it at once."""


class Deadline:
    """Deadlines on the monotonic clock, in seconds."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` bounds each call."""
        self.timeout_s = timeout_s
        self._ends_at = inf

    def hurry(self, within_s: float) -> None:
        """From now on no call lasts beyond `within_s` seconds from now. May be called by another thread."""
        self._ends_at = monotonic_s() + within_s

    def deadline(self) -> float:
        """Of a call that begins now."""
        return monotonic_s() + self.timeout_s

    def is_over(self, deadline: float) -> bool:
        """Whether a call with this deadline must give up."""
        return monotonic_s() >= min(deadline, self._ends_at)
