from __future__ import annotations

import random
from dataclasses import astuple

import pytest
from bench.ratios import Interval, interval, t_quantile


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    [(0.95, 1, 12.70620), (0.95, 2, 4.30265), (0.95, 4, 2.77645), (0.99, 4, 4.60409), (0.999, 9, 4.78091)],
)
def test_the_quantiles_are_those_of_the_tables(confidence: float, freedom: int, quantile: float) -> None:
    assert t_quantile(confidence, freedom) == pytest.approx(quantile, abs=1e-5)


def test_the_ratio_is_the_mean_of_the_pairs_ratios_and_swapping_them_inverts_it() -> None:
    found = interval([100.0, 200.0, 400.0], [200.0, 200.0, 200.0], 0.95)
    assert found.ratio == pytest.approx(1.0)
    assert found.low == pytest.approx(1 / found.high)
    old, new = [100.0, 210.0, 330.0], [120.0, 230.0, 300.0]
    forth, back = interval(old, new, 0.9), interval(new, old, 0.9)
    assert (forth.ratio, forth.low) == pytest.approx((1 / back.ratio, 1 / back.high))


def test_an_interval_by_hand() -> None:
    # The logarithms are 0 and ln 4: mean ln 2, standard error ln 2; t of one degree of freedom at 50 % is 1.
    assert astuple(interval([1.0, 1.0], [1.0, 4.0], 0.5)) == pytest.approx((2.0, 1.0, 4.0))


def test_what_slows_both_of_a_pair_does_not_widen_the_interval() -> None:
    slow = [1.0, 5.0, 2.0, 9.0]
    found = interval([100.0 / s for s in slow], [98.0 / s for s in slow], 0.99)
    assert (found.low, found.ratio, found.high) == pytest.approx((0.98, 0.98, 0.98))


def test_one_pair_has_no_interval() -> None:
    with pytest.raises(ValueError, match="two pairs, not 1"):
        interval([1.0], [2.0], 0.95)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance = random.Random(34)
    held = 0
    for _ in range(300):
        old = [chance.lognormvariate(0.0, 0.1) for _ in range(5)]
        new = [1.1 * chance.lognormvariate(0.0, 0.1) for _ in range(5)]
        found = interval(old, new, 0.8)
        held += found.low <= 1.1 <= found.high
    assert 0.75 <= held / 300 <= 0.85


@pytest.mark.parametrize(
    ("low", "high", "more_is_better", "word"),
    [
        (0.90, 0.98, True, "worse"),
        (0.90, 0.98, False, "better"),
        (1.02, 1.10, True, "better"),
        (1.02, 1.10, False, "worse"),
        (0.90, 1.10, True, ""),
        (0.90, 0.995, True, ""),  # it may be within the tolerance
        (1.005, 1.10, False, ""),
    ],
)
def test_only_a_whole_interval_beyond_the_tolerance_is_a_verdict(
    low: float, high: float, more_is_better: bool, word: str
) -> None:
    assert Interval((low * high) ** 0.5, low, high).judge(0.01, more_is_better=more_is_better) == word
