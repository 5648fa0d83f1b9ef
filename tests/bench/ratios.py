"""Ratios of paired figures, and their confidence intervals. Pure.

Before: `guard` has measured an old and a new cdcd in turn; the two figures of one run are a pair.
After: `guard` prints the intervals, and judges by them.
Source: Student's t distribution; its density is even, and is a power of a cosine after the substitution below.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

STEPS = 400
"""Of Simpson's rule, an even number: the quantiles are right to six digits."""


@dataclass(frozen=True)
class Interval:
    """The ratio new/old, and the interval that holds the true ratio with the wanted confidence."""

    ratio: float
    low: float
    high: float

    def judge(self, tolerance: float, *, more_is_better: bool) -> str:
        """`worse` or `better` if the whole interval is, by more than `tolerance` (0.01: one per cent); else nothing."""
        if self.low > 1 + tolerance:
            return "better" if more_is_better else "worse"
        if self.high < 1 / (1 + tolerance):
            return "worse" if more_is_better else "better"
        return ""


def interval(old: Sequence[float], new: Sequence[float], confidence: float) -> Interval:
    """Return the ratio new/old (the geometric mean of the pairs' ratios) and its interval at `confidence`, 0 to 1.

    Student's t interval of the mean of log(new/old), one value for each pair. So what differs from run to run, and
    slows both of a pair, does not count. All figures are above 0. Raises ValueError with fewer than two pairs.
    """
    logs = [math.log(after / before) for before, after in zip(old, new, strict=True)]
    if len(logs) < 2:
        raise ValueError(f"an interval needs two pairs, not {len(logs)}")
    mean = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    margin = t_quantile(confidence, len(logs) - 1) * error
    return Interval(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin))


@cache
def t_quantile(confidence: float, freedom: int) -> float:
    """Return t such that Student's t with `freedom` degrees of freedom lies in -t to t with this probability.

    With t = sqrt(freedom) * tan(angle) the density becomes cos(angle) ** (freedom - 1), on -pi/2 to pi/2.
    """
    whole = _cosine_power(math.pi / 2, freedom - 1)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if _cosine_power(angle, freedom - 1) < confidence * whole:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan(low)


def _cosine_power(end: float, power: int) -> float:
    """The integral of cos ** power from 0 to `end`, by Simpson's rule."""
    width = end / STEPS
    inner = math.fsum((4 if step % 2 else 2) * math.cos(step * width) ** power for step in range(1, STEPS))
    return (1.0 + inner + math.cos(end) ** power) * width / 3
