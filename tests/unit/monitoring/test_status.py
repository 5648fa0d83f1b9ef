from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.errors import PostgresUnavailable
from cdcd.monitoring.history import SAMPLES_MAX
from cdcd.monitoring.stall_detection import SERVER, SINK, STALLED_AFTER_S, STREAM
from cdcd.monitoring.status import ERRORS_MAX, RATE_WINDOW_S, Rate, State, Status
from cdcd.monitoring.status_page import TABLES_SHOWN, render


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
    assert it.positions.lag_bytes == 0
    it.positions.server_lsn, it.positions.durable_lsn = 0x5000, 0x4000
    assert it.positions.lag_bytes == 0x1000
    it.positions.durable_lsn = 0x6000
    assert it.positions.lag_bytes == 0


def test_only_streaming_is_ready() -> None:
    it = status()
    for state in State:
        it.state = state
        assert it.is_ready() == (state is State.STREAMING)


def test_only_streaming_and_standing_by_are_available() -> None:
    it = status()
    for state in State:
        it.state = state
        assert it.is_available() == (state in (State.STREAMING, State.WAITING))


def test_a_loop_that_stops_turning_is_not_alive_but_opening_has_its_own_bounds() -> None:
    it = status()
    assert it.state is State.STARTING
    assert it.is_alive(1000.0 + STALLED_AFTER_S)
    it.begin_stream(1000.0)
    assert it.is_alive(1000.0 + STALLED_AFTER_S - 1)
    assert not it.is_alive(1000.0 + STALLED_AFTER_S)


@pytest.mark.parametrize("stage", [SERVER, SINK, STREAM])
def test_a_stage_with_work_that_does_not_move_is_not_alive(stage: str) -> None:
    it = status()
    it.begin_stream(1000.0)
    it.stages.last_loop_s = 5000.0
    waiting = {SERVER: it.stages.server, SINK: it.stages.sink, STREAM: it.stages.stream}[stage]
    waiting.note(2000.0, True, "mark")
    for now in (2000.0, 2000.0 + STALLED_AFTER_S - 1):
        waiting.note(now, True, "mark")
        assert it.is_alive(now)
    assert it.longest_stall(2000.0 + STALLED_AFTER_S) == (stage, STALLED_AFTER_S)
    assert not it.is_alive(2000.0 + STALLED_AFTER_S)
    waiting.note(2000.0 + STALLED_AFTER_S, True, "moved")
    assert it.is_alive(2000.0 + STALLED_AFTER_S)


def test_a_stage_without_work_never_stalls_and_its_time_begins_with_the_work() -> None:
    it = status()
    it.begin_stream(1000.0)
    it.stages.last_loop_s = 9001.0
    for now in range(1000, 9000, 100):
        it.stages.sink.note(now, False, "mark")
    it.stages.sink.note(9000.0, True, "mark")
    assert it.longest_stall(9001.0) == (SINK, 1.0)


def test_a_stream_that_does_not_come_about_again_is_not_alive_but_a_standby_is() -> None:
    it = status()
    it.begin_stream(1000.0)
    it.end_stream(1100.0, 7_000_000)
    it.state = State.RESTARTING
    it.stages.last_loop_s = 5000.0
    assert it.longest_stall(1101.0) == (STREAM, 1.0)
    assert not it.is_alive(1100.0 + STALLED_AFTER_S)
    it.stand_by(1150.0)
    assert it.is_alive(5000.0)


def test_lag_in_seconds_goes_on_while_there_is_no_stream() -> None:
    it = status()
    it.begin_stream(1000.0)
    assert it.positions.lag_s(9_000_000) == 0
    it.positions.oldest_pending_us = 4_000_000
    assert it.positions.lag_s(9_000_000) == 5
    it.end_stream(1001.0, 9_000_000)
    assert it.positions.lag_s(10_000_000) == 6
    it.positions.oldest_pending_us = 0
    it.end_stream(1001.0, 9_000_000)
    assert it.positions.lag_s(10_000_000) == 1


def test_wal_that_the_server_has_not_sent_is_lag_from_when_it_was_written() -> None:
    it = status()
    positions = it.positions
    positions.received_lsn = positions.durable_lsn = 0x1000
    for second, wal_lsn in enumerate((0x1000, 0x1000, 0x5000, 0x5000, 0x9000), 10):
        positions.wal.add(second * 1_000_000, wal_lsn, positions.durable_lsn)
    assert positions.lag_s(20_000_000) == 8
    positions.received_lsn = 0x5000
    assert positions.lag_s(20_000_000) == 6
    positions.oldest_pending_us = 13_000_000
    assert positions.lag_s(20_000_000) == 7
    positions.received_lsn, positions.oldest_pending_us = 0x9000, 0
    assert positions.lag_s(20_000_000) == 0


def test_a_standby_that_has_streamed_does_not_lag() -> None:
    it = status()
    it.positions.received_lsn = it.positions.durable_lsn = 0x1000
    it.positions.server_lsn = 0x5000
    it.positions.wal.add(1_000_000, 0x5000, 0x1000)
    it.stand_by(1150.0)
    assert (it.positions.lag_bytes, it.positions.lag_s(9_000_000)) == (0, 0)


def test_what_is_published_adds_up_by_table() -> None:
    it = status()
    it.published.add(1001.0, 2, {"public.a": 3})
    it.published.add(1002.0, 1, {"public.a": 1, "public.b": 4})
    assert (it.published.rows, it.published.transactions) == (8, 3)
    assert {name: table.rows for name, table in it.published.tables.items()} == {"public.a": 4, "public.b": 4}
    assert it.published.tables["public.b"].rate.per_second(1003.5) == pytest.approx(4 / RATE_WINDOW_S)


def page(it: Status, now_s: float) -> str:
    return render(it, now_s, 10_000_000)


def test_the_page_escapes_what_comes_from_outside() -> None:
    it = status()
    it.published.add(1001.0, 1, {"public.<script>": 1})
    it.errors.add(1001.0, ValueError("<b>boom</b>"))
    shown = page(it, 1002.0)
    assert "<script>" not in shown
    assert "public.&lt;script&gt;" in shown
    assert "&lt;b&gt;boom" in shown


def test_the_page_shows_the_busiest_tables_and_counts_the_rest() -> None:
    it = status()
    it.published.add(1001.0, 1, {f"public.t{number}": number for number in range(1, TABLES_SHOWN + 4)})
    shown = page(it, 1002.0)
    assert f"public.t{TABLES_SHOWN + 3}<" in shown
    assert "public.t3<" not in shown
    assert '<th scope="row">3 more tables</th><td>6</td>' in shown


def test_the_page_names_what_is_of_no_table() -> None:
    it = status()
    it.published.add(1001.0, 1, {".messages": 1})
    assert ".messages" not in page(it, 1002.0)
    assert '<th scope="row">logical messages' in page(it, 1002.0)


def test_the_page_says_what_stalls() -> None:
    it = status()
    it.begin_stream(1000.0)
    assert 'class="state streaming"' in page(it, 1001.0)
    assert "stalled: nothing moves at the loop for 5 min 0 s" in page(it, 1300.0)


def test_the_page_shows_the_last_errors_with_their_hint_newest_first() -> None:
    it = status()
    for number in range(ERRORS_MAX + 2):
        it.errors.add(1000.0 + number, PostgresUnavailable(f"gone {number}", f"do {number}"))
    shown = page(it, 1010.0)
    assert "gone 1" not in shown
    assert shown.index("<li>4.0 s ago: gone 6. <strong>do 6</strong>") < shown.index("gone 5")


def test_the_page_plots_the_last_quarter_of_an_hour_in_words_too() -> None:
    it = status()
    assert "<svg" not in page(it, 1000.0)
    for number in range(SAMPLES_MAX + 20):
        it.positions.oldest_pending_us = 1_000_000 if number % 2 else 0
        it.sample(1000.0 + number, 3_000_000)
    assert len(it.history.samples()) == SAMPLES_MAX
    shown = page(it, 1200.0)
    assert 'role="img" aria-label="Lag over the last 2 min 59 s: now 2.0 s, at most 2.0 s"' in shown
    assert shown.count("<svg") == 2


def test_the_page_reloads_itself_unless_it_is_told_to_keep_still() -> None:
    it = status()
    assert 'http-equiv="refresh"' in page(it, 1000.0)
    still = render(it, 1000.0, 0, still=True)
    assert 'http-equiv="refresh"' not in still
    assert '<a href="/">Reload by itself</a>' in still
