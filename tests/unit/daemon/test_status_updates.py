from __future__ import annotations

import pytest

from cdcd.daemon.status_updates import PROBE_AFTER_S, REPLY_INTERVAL_S, StatusUpdates
from cdcd.errors import PostgresUnavailable


def updates(*, loop_within_s: float = 30.0) -> StatusUpdates:
    """With a status interval of 10 s, and a wal_sender_timeout of 60 s."""
    return StatusUpdates(1000.0, 10.0, 60.0, loop_within_s)


def test_an_update_is_due_when_the_acknowledgement_moved_or_the_interval_is_over() -> None:
    it = updates()
    assert it.is_due(1000.0, 0), "the first is due at once"
    it.on_sent(1000.0, 100)
    assert not it.is_due(1009.9, 100)
    assert it.is_due(1000.1, 101)
    assert it.is_due(1010.0, 100)


def test_the_last_update_of_a_stream_is_sent_whatever_it_says() -> None:
    it = updates()
    it.on_sent(1000.0, 100)
    it.make_due()
    assert it.is_due(1000.0, 100)


def test_a_server_that_asks_all_the_time_is_answered_now_and_then() -> None:
    it = updates()
    it.on_sent(1000.0, 100)
    assert not it.may_answer(1000.0 + REPLY_INTERVAL_S / 2)
    assert it.may_answer(1000.0 + 1.1 * REPLY_INTERVAL_S)
    assert it.wait_s(1000.0, reply_requested=True) == REPLY_INTERVAL_S
    assert it.wait_s(1000.0, reply_requested=False) == 10.0


def test_the_loop_waits_no_longer_than_its_turn_may_take() -> None:
    assert updates(loop_within_s=3.0).wait_s(1000.0, reply_requested=False) == 0.0, "the first update is due"
    it = updates(loop_within_s=3.0)
    it.on_sent(1000.0, 100)
    assert it.wait_s(1000.0, reply_requested=False) == 3.0
    assert it.wait_s(1012.0, reply_requested=False) == 0.0


def test_a_silent_server_is_asked_for_a_sign_of_life_and_then_given_up() -> None:
    it = updates()
    assert not it.should_probe(1000.0 + PROBE_AFTER_S - 1)
    assert it.should_probe(1000.0 + PROBE_AFTER_S)
    assert it.has_unanswered_probe
    with pytest.raises(PostgresUnavailable, match="silent for 120 s"):
        it.should_probe(1120.0)
    it.on_data(1119.0)
    assert not it.has_unanswered_probe
    assert it.last_data_s == 1119.0
    assert not it.should_probe(1120.0)
