"""How long one call to Kafka may take: the timeout of its client, or less once the daemon stops.

Before: `producer_client` and `admin_calls` ask when a call begins, and after each slice of waiting.
After: they give up, and raise an error that says what they waited for. Another thread may shorten all deadlines.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from cdcd.clock import monotonic_s

SLICE_S: Final = 0.2
"""Longest wait inside librdkafka, in seconds. Deadlines and requests to stop are looked at this often; a result ends
the wait at once."""


class Deadline:
    """The deadlines of one client's calls, in seconds on the monotonic clock."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = monotonic_s) -> None:
        """`timeout_s` bounds each call."""
        self.timeout_s = timeout_s
        self._clock = clock
        self._shortened_to = inf

    def shorten(self, within_s: float) -> None:
        """From now on no call lasts beyond `within_s` seconds from now. May be called by another thread."""
        self._shortened_to = self._clock() + within_s

    def of_call(self) -> float:
        """Return the deadline of a call that begins now."""
        return self._clock() + self.timeout_s

    def is_over(self, deadline: float) -> bool:
        """Whether a call with this deadline must give up."""
        return self._clock() >= min(deadline, self._shortened_to)
