from __future__ import annotations

import math

import pytest
from bench.contestants import Figures, second_half_rate


def test_the_second_half_begins_when_half_of_the_bytes_are_written() -> None:
    written = [(10.0, 0), (11.0, 40), (12.0, 60), (13.0, 90), (14.0, 100)]
    assert second_half_rate(written, 1_000, 14.0) == pytest.approx(200.0)  # the other 400 changes in 2 s


@pytest.mark.parametrize("written", [[], [(10.0, 0), (11.0, 0)], [(12.0, 40), (13.0, 100)]])
def test_without_a_moment_between_half_and_end_the_second_half_is_not_known(written: list[tuple[float, int]]) -> None:
    assert math.isnan(second_half_rate(written, 1_000, 14.0))


def test_librdkafkas_threads_are_not_the_daemons_part() -> None:
    figures = Figures(2.0, 0.5, 1.0, 1.6, 1.9, 4.0, 100.0, 700.0, 0.6, 0.8, 0.99)
    assert figures.cores("daemon") == pytest.approx(
        {"walsender": 0.95, "daemon": 0.5, "librdkafka": 0.3, "broker": 0.4}
    )
    assert figures.bound("daemon") == "walsender"
