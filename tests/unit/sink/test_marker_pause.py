"""The pause after a commit follows how long Kafka's markers take."""

from __future__ import annotations

import pytest

from cdcd.sink.marker_pause import MarkerPause

RETRY_S = 0.02


def played(markers_s: float, *, transactions: int, records: int = 1, gap_s: float = 0.0) -> tuple[list[float], int]:
    """Commit after commit, the next transaction at once or after a gap: the pauses, and how often it was refused."""
    pause, now, pauses, refused = MarkerPause(), 100.0, list[float](), 0
    written_at = 0.0
    for _ in range(transactions):
        waits_s = max(0.0, pause.left_s(now))
        pauses.append(waits_s)
        first_at = now + waits_s
        took_s = 0.003
        if first_at + 0.001 < written_at:  # librdkafka asks a millisecond later
            took_s += RETRY_S
            refused += 1
        now = first_at + took_s
        pause.delivered(records, first_at, first_at + 0.001, now)
        now += 0.001
        pause.committed(now)
        written_at = now + markers_s
        now += gap_s
    return pauses, refused


@pytest.mark.parametrize("markers_s", [0.003, 0.006, 0.012])
def test_it_comes_to_last_as_long_as_the_markers_take(markers_s: float) -> None:
    pauses, refused = played(markers_s, transactions=2_000)
    assert pauses[0] == 0.0
    assert markers_s - 0.003 < sum(pauses[1_000:]) / 1_000 < markers_s + 0.001
    assert refused < 250


def test_markers_that_are_there_in_time_are_not_waited_for() -> None:
    assert played(0.0005, transactions=500) == ([0.0] * 500, 0)
    pauses, refused = played(0.006, transactions=500, gap_s=0.01)
    assert (max(pauses), refused) == (0.0, 0)


def test_what_many_records_take_is_no_sign_and_they_do_not_wait() -> None:
    pauses, refused = played(0.006, transactions=500, records=50_000)
    assert max(pauses) == 0.0
    assert refused == 499


def test_it_never_waits_as_long_as_librdkafka_would() -> None:
    pauses, _ = played(0.5, transactions=500)
    assert max(pauses) < RETRY_S
