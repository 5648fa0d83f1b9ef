"""A call lasts until its timeout, or until the shortened deadline."""

from __future__ import annotations

from cdcd.sink.kafka.deadline import Deadline


def test_a_call_is_over_at_its_timeout_or_at_the_shortened_deadline() -> None:
    now = [100.0]
    made = Deadline(60, clock=lambda: now[0])
    deadline = made.of_call()
    assert deadline == 160
    now[0] = 159.9
    assert not made.is_over(deadline)
    now[0] = 160
    assert made.is_over(deadline)
    later = made.of_call()
    made.shorten(2)
    assert not made.is_over(later)
    now[0] = 162
    assert made.is_over(later)
    assert made.is_over(made.of_call()), "calls that begin later are bounded, too"
