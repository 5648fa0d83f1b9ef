from __future__ import annotations

import pytest

from cdcd.source.read_pacing import BURST_BYTES, INTERVAL_MIN_S, INTERVAL_S, ReadPacing

FRAME_BYTES = 200


def flow(pacing: ReadPacing, frames_per_s: float, seconds: float, step_s: float = 0.0005) -> list[float]:
    """Reads every `step_s` what came in that time; returns the pauses asked for."""
    now, due, pauses = 100.0, 0.0, []
    for _ in range(int(seconds / step_s)):
        now += step_s
        due += frames_per_s * step_s
        frames, due = int(due), due % 1
        pacing.note_read(now, frames, frames * FRAME_BYTES)
        pauses.append(pacing.pause_s(now))
    return pauses


@pytest.mark.parametrize("transactions_per_s", [1, 200, 1_000, 3_000, 8_000])
def test_single_row_transactions_never_wait(transactions_per_s: int) -> None:
    # Begin, Insert, Commit and a keepalive each.
    assert not any(flow(ReadPacing(), 4 * transactions_per_s, 2.0))


def test_a_backlog_is_paced_from_the_first_milliseconds_on() -> None:
    pauses = flow(ReadPacing(), 300_000, 0.1)
    assert all(pauses[10:])
    assert max(pauses) == pytest.approx(INTERVAL_S)


def test_after_a_backlog_the_next_lone_frame_is_read_at_once() -> None:
    pacing = ReadPacing()
    flow(pacing, 300_000, 1.0)
    pacing.note_read(101.0 + 2 * pacing.backlog_frames / pacing.frames_per_s, 1, 200)
    assert pacing.pause_s(101.1) == 0


def test_a_transaction_of_a_few_hundred_rows_is_no_backlog() -> None:
    pacing = ReadPacing()
    for second in range(100):
        pacing.note_read(second * 0.1, 400, 80_000)
        assert pacing.pause_s(second * 0.1) == 0


def test_time_spent_on_decoding_counts_as_pause() -> None:
    pacing = ReadPacing(interval_s=0.004)
    pacing.note_read(10.0, 5_000, 100_000)
    assert pacing.pause_s(10.0) == pytest.approx(0.004)
    assert pacing.pause_s(10.003) == pytest.approx(0.001)
    assert pacing.pause_s(10.005) == 0


def test_bursts_that_fill_a_socket_shorten_the_interval_and_small_ones_restore_it() -> None:
    pacing = ReadPacing(interval_s=0.004)
    pacing.note_read(10.0, 5_000, 2 * BURST_BYTES)
    assert pacing.pause_s(10.0) == pytest.approx(0.002)
    for _ in range(10):
        pacing.note_read(10.0, 5_000, 8 * BURST_BYTES)
    assert pacing.pause_s(10.0) == pytest.approx(INTERVAL_MIN_S)
    for _ in range(10):
        pacing.note_read(10.0, 5_000, 1_000)
    assert pacing.pause_s(10.0) == pytest.approx(0.004)


def test_what_would_only_wait_behind_a_commit_is_left_to_gather() -> None:
    pacing = ReadPacing(interval_s=0.004)
    pacing.note_read(10.0, 3, 600)
    assert pacing.pause_s(10.001) == 0
    assert pacing.pause_s(10.001, commit_in_progress=True) == pytest.approx(0.003)
    assert pacing.pause_s(10.005, commit_in_progress=True) == 0, "a long commit is no reason to leave the server alone"
    assert not pacing.has_backlog
    assert ReadPacing(interval_s=0).pause_s(10.0, commit_in_progress=True) == 0


def test_an_empty_read_of_a_backlog_changes_nothing_but_the_time() -> None:
    pacing = ReadPacing()
    pacing.note_read(10.0, 5_000, 100_000)
    pacing.note_read(10.001, 0, 0)
    assert pacing.has_backlog
    assert pacing.pause_s(10.001) == pytest.approx(INTERVAL_S)


def test_an_interval_of_nothing_turns_pacing_off() -> None:
    assert not any(flow(ReadPacing(interval_s=0), 300_000, 0.1))


def test_a_clock_that_stands_still_is_no_harm() -> None:
    pacing = ReadPacing()
    for _ in range(3):
        pacing.note_read(5.0, 10_000, 1_000_000)
    assert 0 < pacing.pause_s(5.0) <= INTERVAL_S
