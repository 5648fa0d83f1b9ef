from __future__ import annotations

from cdcd.source.liveness import TIMEOUT_MIN_S, ServerLiveness


def test_a_silent_server_is_asked_and_then_given_up_after_twice_its_own_patience() -> None:
    silence = ServerLiveness(100.0, 60.0)
    assert silence.timeout_s == 120
    assert [second for second in range(121) if silence.should_probe(100.0 + second)] == [30, 60, 90, 120]
    assert not silence.is_dead(219.9)
    assert silence.is_dead(220.0)


def test_whatever_is_heard_starts_it_over() -> None:
    silence = ServerLiveness(0.0, 60.0)
    silence.on_data(119.0)
    assert not silence.is_dead(238.0)
    assert not silence.should_probe(148.0)
    assert silence.should_probe(149.0)


def test_a_server_of_little_patience_gets_more_and_one_of_endless_patience_is_never_given_up() -> None:
    assert ServerLiveness(0.0, 1.0).timeout_s == TIMEOUT_MIN_S
    endless = ServerLiveness(0.0, 0.0)
    assert not endless.is_dead(1e9)
    assert not endless.should_probe(1e9)
