"""What the last quarter of an hour was like: samples for the plot of the status page.

Before: `slot_monitor` takes a sample every few seconds. After: `status_page` draws them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

SAMPLES_MAX: Final = 180
"""At one every 5 s, a quarter of an hour."""


@dataclass(frozen=True)
class Sample:
    """The daemon at one moment."""

    at_s: float
    """Monotonic seconds."""
    lag_s: float
    lag_bytes: int
    rows_per_s: float


class History:
    """The last SAMPLES_MAX samples, oldest first. One thread adds, any reads."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)

    def add(self, sample: Sample) -> None:
        """Take one more; the oldest goes."""
        self._samples.append(sample)

    def samples(self) -> tuple[Sample, ...]:
        """All there are."""
        return tuple(self._samples.copy())
