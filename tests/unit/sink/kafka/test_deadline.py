"""A call lasts until its timeout, or until the hurry ends."""

from __future__ import annotations

import pytest

from cdcd.sink.kafka.deadline import Deadline


def test_a_call_is_over_at_its_timeout_or_when_the_hurry_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("cdcd.sink.kafka.deadline.monotonic_s", lambda: now[0])
    patience = Deadline(60)
    deadline = patience.deadline()
    assert deadline == 160
    now[0] = 159.9
    assert not patience.is_over(deadline)
    now[0] = 160
    assert patience.is_over(deadline)
    later = patience.deadline()
    patience.hurry(2)
    assert not patience.is_over(later)
    now[0] = 162
    assert patience.is_over(later)
    assert patience.is_over(patience.deadline()), "calls that begin after the hurry are bounded too"
