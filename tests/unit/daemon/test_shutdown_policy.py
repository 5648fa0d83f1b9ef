from __future__ import annotations

from cdcd.daemon.shutdown_policy import PAUSE_S, ShutdownDetector


def test_a_server_insists_that_asks_without_a_pause_and_stays_where_it_is() -> None:
    insistence = ShutdownDetector()
    assert [insistence.asked(10 + n / 100, 4711) for n in range(3)] == [0, 10.01 - 10, 10.02 - 10]


def test_a_pause_or_new_wal_ends_the_insistence() -> None:
    insistence = ShutdownDetector()
    insistence.asked(10.0, 4711)
    assert insistence.asked(10.1 + PAUSE_S, 4711) == 0
    assert insistence.asked(10.2 + PAUSE_S, 4711) > 0
    assert insistence.asked(10.3 + PAUSE_S, 4712) == 0
