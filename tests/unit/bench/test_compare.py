from __future__ import annotations

from bench.compare import in_turn, medians
from bench.contestants import Figures
from bench.workloads import WORKLOADS


def test_each_contestant_is_first_as_often_as_any_other_and_follows_both_its_neighbours() -> None:
    orders = [in_turn("abc", run) for run in range(6)]
    assert sorted(order[0] for order in orders) == ["a", "a", "b", "b", "c", "c"]
    assert orders[:4] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["c", "b", "a"]]


def test_the_ratio_is_of_the_medians() -> None:
    def drains(*seconds: float) -> list[Figures]:
        return [Figures(s, 0.5, 1.0, 2.0, 3.0, 4.0, 100.0, 700.0) for s in seconds]

    ours, theirs = medians({"cdcd": drains(1.0, 9.0, 2.0), "debezium-json": drains(6.0, 8.0, 99.0)}, 1000)
    assert ours.split()[:4] == ["cdcd", "500", "700", "1.00"]
    assert theirs.split()[:4] == ["debezium-json", "125", "700", "4.00"]


def test_a_backlog_has_the_changes_that_its_workload_says() -> None:
    assert WORKLOADS["mixed"].changes(1_234) == 1_200
    assert WORKLOADS["toast"].changes(600_000) == 200
    assert WORKLOADS["relations"].changes(10) == 1_000
    assert len(list(WORKLOADS["orders"].backlog(25_000))) == 3
