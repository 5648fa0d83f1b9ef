from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.monitoring.identity import Identity
from cdcd.monitoring.stall_detection import SERVER, SINK, STALLED_AFTER_S, STREAM
from cdcd.monitoring.status import RATE_WINDOW_S, CommitTimes, Rate, State, Status


def status() -> Status:
    return Status(Identity("1.0", "slot", "pub"), 1000.0)


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


def test_rows_that_were_copied_count_apart_from_changes() -> None:
    it = status()
    it.published.add_copied(1001.0, {"public.a": 100})
    it.published.add(1002.0, 1, {"public.a": 3}, CommitTimes(7_000_000, 0.25))
    it.published.add(1003.0, 1, {"public.b": 1}, CommitTimes(8_000_000, 0.5))
    assert (it.published.rows, it.published.copied_rows, it.published.transactions) == (4, 100, 2)
    a = it.published.tables["public.a"]
    assert (a.rows, a.copied_rows, a.last_commit_us, a.delay_s) == (3, 100, 7_000_000, 0.25)
    assert it.published.rows_rate.per_second(1004.5) == pytest.approx(104 / RATE_WINDOW_S)
