"""The token buckets: what a second allows, and no more."""

from __future__ import annotations

import pytest

from cdcd.snapshot.copy_rate import STEP_S, UNLIMITED, CopyRate, TableRate, TableRates


def read_all(rate: CopyRate | TableRate, begin_s: float, seconds: float, row_bytes: int = 10) -> tuple[int, int]:
    """Read rows as soon as there is room, as the loop does; returns rows and bytes."""
    now, rows, size_bytes = begin_s, 0, 0
    while now < begin_s + seconds:
        rows_room, bytes_room = rate.room(now)
        if rows_room:
            count = max(1, min(rows_room, bytes_room // row_bytes))
            rate.take(count, count * row_bytes)
            rows, size_bytes = rows + count, size_bytes + count * row_bytes
        now += max(1e-6, rate.wait_s())
    return rows, size_bytes


def test_without_a_limit_there_is_always_room() -> None:
    rate = CopyRate()
    assert not rate.is_limited
    assert rate.room(5.0) == (UNLIMITED, UNLIMITED)
    assert rate.wait_s() == 0


@pytest.mark.parametrize("rows_per_second", [1, 3, 1_000, 250_000])
def test_no_more_rows_than_the_limit_gives(rows_per_second: int) -> None:
    rows, _ = read_all(CopyRate(rows_per_second), 1000.0, 20)
    assert 19 * rows_per_second <= rows <= 20 * rows_per_second


@pytest.mark.parametrize("bytes_per_second", [100, 10_000, 50_000_000])
def test_no_more_bytes_than_the_limit_gives(bytes_per_second: int) -> None:
    _, size_bytes = read_all(CopyRate(0, bytes_per_second), 1000.0, 20)
    assert 19 * bytes_per_second <= size_bytes <= 20 * bytes_per_second


def test_both_limits_hold() -> None:
    rows, _ = read_all(CopyRate(100, 500), 0.0, 20)
    assert 950 <= rows <= 1000
    rows, _ = read_all(CopyRate(100, 500_000), 0.0, 20)
    assert 1900 <= rows <= 2000


def test_a_row_that_is_larger_than_the_room_makes_the_next_one_wait() -> None:
    rate = CopyRate(0, 1_000)
    rate.room(0.0)
    assert rate.room(1.0)[1] == 1_000
    rate.take(1, 5_000)
    assert rate.room(4.0) == (0, 0)
    assert rate.wait_s() == pytest.approx(1.0 + STEP_S)
    assert rate.room(5.06)[1] > 0


def test_the_first_rows_wait_and_a_rest_saves_up_one_second() -> None:
    rate = CopyRate(100)
    assert rate.room(0.0) == (0, 0)
    assert rate.room(3600.0)[0] == 100
    rate.take(100, 0)
    assert rate.room(3600.0) == (0, 0)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    rate = CopyRate(100)
    rate.room(10.0)
    assert rate.room(5.0) == (0, 0)


def test_a_new_limit_holds_at_once() -> None:
    rate = CopyRate(1)
    rate.room(0.0)
    rate.take(1_000, 0)
    assert rate.wait_s() > 900
    rate.limit(0, 0)
    assert rate.wait_s() == 0
    assert rate.room(1.0) == (UNLIMITED, UNLIMITED)
    rate.limit(10, 0)
    assert rate.room(2.0)[0] == 10, "what was owed under an old limit is forgotten"


def test_a_table_has_its_own_limit_below_that_of_all() -> None:
    rates = TableRates(CopyRate(100), lambda _, name: (10, 0) if name == "slow" else (0, 500))
    assert 190 <= read_all(rates.of("public", "slow"), 0.0, 20)[0] <= 200
    assert 950 <= read_all(rates.of("public", "fast"), 20.0, 20)[0] <= 1000, "500 bytes are 50 rows"


def test_the_limit_of_all_holds_for_tables_together() -> None:
    rates = TableRates(CopyRate(100))
    now, rows = 0.0, 0
    tables = [rates.of("public", name) for name in ("a", "b")]
    while now < 20:
        for rate in tables:
            room = rate.room(now)[0]
            rate.take(room, 0)
            rows += room
        now += max(1e-6, min(rate.wait_s() for rate in tables))
    assert 1900 <= rows <= 2000


def test_a_limit_lasts_from_one_snapshot_of_a_table_to_the_next() -> None:
    rates = TableRates(limits=lambda *_: (10, 0))
    rates.of("public", "t").room(0.0)
    rates.of("public", "t").take(100, 0)
    assert rates.of("public", "t").wait_s() > 10
    assert rates.of("public", "other").wait_s() < 1
