from __future__ import annotations

from cdcd.source.liveness import LEAST_S, ServerLiveness


def test_a_silent_server_is_asked_and_then_given_up_after_twice_its_own_patience() -> None:
    silence = ServerLiveness(100.0, 60.0)
    assert silence.patience_s == 120
    assert [second for second in range(121) if silence.asks(100.0 + second)] == [30, 60, 90, 120]
    assert not silence.lost(219.9)
    assert silence.lost(220.0)


def test_whatever_is_heard_starts_it_over() -> None:
    silence = ServerLiveness(0.0, 60.0)
    silence.heard(119.0)
    assert not silence.lost(238.0)
    assert not silence.asks(148.0)
    assert silence.asks(149.0)


def test_a_server_of_little_patience_gets_more_and_one_of_endless_patience_is_never_given_up() -> None:
    assert ServerLiveness(0.0, 1.0).patience_s == LEAST_S
    endless = ServerLiveness(0.0, 0.0)
    assert not endless.lost(1e9)
    assert not endless.asks(1e9)
