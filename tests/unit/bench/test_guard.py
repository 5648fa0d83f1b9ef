from __future__ import annotations

import pytest
from bench.contestants import Figures
from bench.guard import Figure, of_drain, of_latency, verdicts
from bench.ratios import interval


def test_each_figure_is_judged_by_its_own_direction() -> None:
    def runs(rate: float, ms: float) -> list[Figure]:
        noise = (1.0, 1.001, 0.999, 1.002)
        return [f for n in noise for f in (Figure("rate", rate * n, more_is_better=True), Figure("p50", ms / n))]

    words = {v.name: v.word for v in verdicts(runs(100, 5.0), runs(90, 4.0), 0.95, 0.01)}
    assert words == {"rate": "worse", "p50": "better"}
    same = {v.name: v.word for v in verdicts(runs(100, 5.0), runs(100, 5.0), 0.95, 0.01)}
    assert same == {"rate": "", "p50": ""}


def test_the_confidence_is_shared_among_the_figures() -> None:
    old = [Figure(name, value) for value in (1.0, 1.1, 1.3) for name in ("a", "b")]
    new = [Figure(name, value) for value in (1.2, 1.1, 1.2) for name in ("a", "b")]
    found = verdicts(old, new, 0.9, 0.0)
    assert [verdict.interval for verdict in found] == 2 * [interval([1.0, 1.1, 1.3], [1.2, 1.1, 1.2], 0.95)]


def test_of_a_drain_and_of_a_latency() -> None:
    figures = Figures(2.0, 0.5, 0.4, 3.0, 3.0, 4.0, 100.0, 700.0, 0.5, 0.8, 0.9)
    assert [(f.value, f.more_is_better) for f in of_drain("orders", figures, 1_000_000)] == [
        (500_000.0, True),
        (pytest.approx(3.0), False),
        (0.4, False),
        (100.0, False),
    ]
    found = of_latency(1_000, [4.0, 9.0, 20.0, 30.0])
    assert [(f.name, f.value) for f in found] == [
        ("latency at 1,000 tx/s: p50 ms", 4.0),
        ("latency at 1,000 tx/s: p99 ms", 9.0),
    ]
