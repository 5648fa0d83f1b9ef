from __future__ import annotations

from cdcd.source.liveness import TIMEOUT_MIN_S, TIMEOUT_S, ServerLiveness


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


def test_a_short_timeout_is_lengthened() -> None:
    assert ServerLiveness(0.0, 1.0).timeout_s == TIMEOUT_MIN_S


def test_a_lost_server_is_given_up_even_if_the_server_gives_no_client_up() -> None:
    liveness = ServerLiveness(0.0, 0.0)
    assert liveness.should_probe(TIMEOUT_S / 4)
    assert not liveness.is_dead(TIMEOUT_S - 0.1)
    assert liveness.is_dead(TIMEOUT_S)
