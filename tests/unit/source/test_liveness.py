from __future__ import annotations

from cdcd.source.liveness import TIMEOUT_MIN_S, ServerLiveness


def test_a_silent_server_is_probed_and_then_given_up_after_twice_its_own_timeout() -> None:
    liveness = ServerLiveness(100.0, 60.0)
    assert liveness.timeout_s == 120
    assert [second for second in range(121) if liveness.should_probe(100.0 + second)] == [30, 60, 90, 120]
    assert not liveness.is_dead(219.9)
    assert liveness.is_dead(220.0)


def test_anything_that_comes_starts_it_over() -> None:
    liveness = ServerLiveness(0.0, 60.0)
    liveness.on_data(119.0)
    assert not liveness.is_dead(238.0)
    assert not liveness.should_probe(148.0)
    assert liveness.should_probe(149.0)


def test_a_short_timeout_is_lengthened_and_without_one_the_server_is_never_given_up() -> None:
    assert ServerLiveness(0.0, 1.0).timeout_s == TIMEOUT_MIN_S
    endless = ServerLiveness(0.0, 0.0)
    assert not endless.is_dead(1e9)
    assert not endless.should_probe(1e9)
