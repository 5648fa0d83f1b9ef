from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.status import ALIVE_WITHIN_S, RATE_WINDOW_S, Rate, State, Status
from cdcd.status_page import TABLES_SHOWN, duration, render, size


def status() -> Status:
    return Status("1.0", "slot", "pub", 1000.0)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 1000)), max_size=40), st.integers(40, 60))
def test_a_rate_is_the_mean_of_the_whole_seconds_before_now(events: list[tuple[int, int]], now: int) -> None:
    rate = Rate()
    for second, count in sorted(events):
        rate.add(second + 0.5, count)
    expected = sum(count for second, count in events if now - RATE_WINDOW_S <= second < now) / RATE_WINDOW_S
    assert rate.per_second(now + 0.1) == pytest.approx(expected)


def test_lag_in_bytes_follows_from_the_positions() -> None:
    it = status()
    assert it.lag_bytes == 0
    it.server_lsn, it.durable_lsn = 0x5000, 0x4000
    assert it.lag_bytes == 0x1000
    it.durable_lsn = 0x6000
    assert it.lag_bytes == 0


def test_only_streaming_is_ready() -> None:
    it = status()
    for state in State:
        it.state = state
        assert it.is_ready() == (state is State.STREAMING)


def test_a_loop_that_stops_turning_is_not_alive_but_opening_has_its_own_bounds() -> None:
    it = status()
    assert it.state is State.STARTING
    assert it.is_alive(1000.0 + ALIVE_WITHIN_S)
    it.state = State.STREAMING
    assert it.is_alive(1000.0 + ALIVE_WITHIN_S - 1)
    assert not it.is_alive(1000.0 + ALIVE_WITHIN_S)


def test_what_is_published_adds_up_by_table() -> None:
    it = status()
    it.published(1001.0, 2, {"public.a": 3})
    before = it.tables
    it.published(1002.0, 1, {"public.a": 1, "public.b": 4})
    assert (it.rows, it.transactions, it.tables) == (8, 3, {"public.a": 4, "public.b": 4})
    assert before == {"public.a": 3}, "a reader in another thread holds a table that does not change under it"


def test_the_page_escapes_what_comes_from_outside() -> None:
    it = status()
    it.published(1001.0, 1, {"public.<script>": 1})
    it.failed(1001.0, ValueError("<b>boom</b>"))
    page = render(it, 1002.0)
    assert "<script>" not in page
    assert "public.&lt;script&gt;" in page
    assert "&lt;b&gt;boom" in page


def test_the_page_shows_the_busiest_tables_and_counts_the_rest() -> None:
    it = status()
    it.published(1001.0, 1, {f"public.t{number}": number for number in range(1, TABLES_SHOWN + 4)})
    page = render(it, 1002.0)
    assert f"public.t{TABLES_SHOWN + 3}<" in page
    assert "public.t3<" not in page
    assert "<th>3 more tables</th><td>6</td>" in page


def test_the_page_says_when_the_loop_is_stuck() -> None:
    it = status()
    it.state = State.STREAMING
    assert 'class="state streaming"' in render(it, 1001.0)
    assert "stuck: no turn for 5 min 0 s" in render(it, 1300.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (42.4, "42 s"),
        (60, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (7260, "2 h 1 min"),
        (187200, "2 d 4 h"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 50, "1024.0 TiB")]
)
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert size(count) == text
