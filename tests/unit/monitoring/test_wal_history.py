from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdcd.monitoring.wal_history import SAMPLES_MAX, WalHistory


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=60), st.integers(0, 200))
def test_a_position_is_as_old_as_the_first_look_that_found_more(steps: list[tuple[int, int]], lsn: int) -> None:
    history, now_us, wal_lsn, expected = WalHistory(), 0, 1, 0
    for seconds, grown in steps:
        now_us += seconds * 1_000_000
        wal_lsn += grown
        history.add(now_us, wal_lsn, 0)
        if wal_lsn > lsn and not expected:
            expected = now_us
    assert history.beyond_us(lsn) == expected


def test_what_is_durable_is_forgotten_and_nothing_else() -> None:
    history = WalHistory()
    for number in range(1, 6):
        history.add(number, number * 100, 0)
    history.add(6, 600, 300)
    assert history.beyond_us(300) == 4
    assert history.beyond_us(0) == 4


def test_a_long_history_is_bounded_and_keeps_its_beginning() -> None:
    history = WalHistory()
    for number in range(1, SAMPLES_MAX * 10):
        history.add(number, number, 0)
    assert len(history._seen) <= SAMPLES_MAX
    assert history.beyond_us(0) == 1
    assert 0 < history.beyond_us(SAMPLES_MAX * 9) - SAMPLES_MAX * 9 < SAMPLES_MAX


def test_a_wal_that_does_not_grow_has_no_later_time() -> None:
    history = WalHistory()
    history.add(1, 100, 50)
    history.add(2, 100, 50)
    assert history.beyond_us(50) == 1
    assert history.beyond_us(100) == 0
