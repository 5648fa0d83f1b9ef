from __future__ import annotations

from math import nan

from bench.compare import in_turn, medians, summary
from bench.contestants import Figures
from bench.workloads import WORKLOADS


def test_each_contestant_is_first_as_often_as_any_other_and_follows_both_its_neighbours() -> None:
    orders = [in_turn("abc", run) for run in range(6)]
    assert sorted(order[0] for order in orders) == ["a", "a", "b", "b", "c", "c"]
    assert orders[:4] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["c", "b", "a"]]


def drains(*seconds: float, warm_rate: float = 700.0) -> list[Figures]:
    return [Figures(s, 0.5, 1.0, 2.0, 3.0, 4.0, 100.0, warm_rate, 0.5, 0.8, 0.9) for s in seconds]


def test_the_ratios_are_of_the_medians_of_the_whole_drain_and_of_its_second_half() -> None:
    results = {"cdcd": drains(1.0, 9.0, 2.0), "debezium-json": drains(6.0, 8.0, 99.0, warm_rate=350.0)}
    ours, theirs = medians(results, 1000)
    assert ours.split()[:5] == ["cdcd", "500", "700", "1.00", "1.00"]
    assert theirs.split()[:5] == ["debezium-json", "125", "350", "4.00", "2.00"]


def test_a_workload_says_its_ratio_to_each_limit_and_what_bound_it() -> None:
    results = {"limit": drains(1.0, warm_rate=1400.0), "broker": drains(0.5, warm_rate=nan), "cdcd": drains(4.0)}
    [said] = summary(results)
    assert said == (
        "cdcd is 0.25 of limit (warm 0.50), 0.12 of broker (warm unknown); bound by: waits "
        "(cores: walsender 0.75, daemon 0.38, librdkafka 0.12, broker 0.20; machine 90% busy)"
    )
    assert summary({"limit": drains(1.0)}) == []


def test_a_backlog_has_the_changes_that_its_workload_says() -> None:
    assert WORKLOADS["mixed"].changes(1_234) == 1_200
    assert WORKLOADS["toast"].changes(600_000) == 200
    assert WORKLOADS["relations"].changes(10) == 1_000
    assert len(list(WORKLOADS["orders"].backlog(25_000))) == 3
