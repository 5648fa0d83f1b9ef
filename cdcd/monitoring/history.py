"""Samples of the last quarter of an hour, for the plots of the status page.

Before: the slot monitor takes a sample every few seconds. After: `status_page` draws the samples.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

SAMPLES_MAX: Final = 180
"""A quarter of an hour at one sample every 5 s."""


@dataclass(frozen=True)
class Sample:
    """The daemon at one moment."""

    at_s: float
    """Monotonic seconds."""
    lag_s: float
    lag_bytes: int
    rows_per_s: float


class History:
    """The last SAMPLES_MAX samples, oldest first. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)

    def add(self, sample: Sample) -> None:
        """Add a sample. The oldest one is dropped if there are SAMPLES_MAX already."""
        self._samples.append(sample)

    def samples(self) -> tuple[Sample, ...]:
        """Return all samples."""
        return tuple(self._samples.copy())
