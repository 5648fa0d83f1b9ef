"""The ack: never beyond what Kafka holds, and never behind what an idle server allows."""

from __future__ import annotations

import pytest

from cdcd.progress.ack_tracker import AckTracker


def test_nothing_is_acked_beyond_the_progress_at_start() -> None:
    assert AckTracker(100, 100).ack() == 100
    assert AckTracker(0, 0).ack() == 0


def test_a_progress_ahead_of_the_slot_is_acked_only_as_far_as_the_server_has_told() -> None:
    tracker = AckTracker(100, 300)
    assert tracker.ack() == 100
    tracker.on_begin()
    tracker.on_skipped(250)
    assert tracker.ack() == 250
    tracker.on_keepalive(400)
    assert tracker.ack() == 300


def test_a_slot_ahead_of_its_progress_is_never_tracked() -> None:
    with pytest.raises(AssertionError):
        AckTracker(101, 100)


def test_ack_never_passes_an_unpublished_transaction() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_begin()
    tracker.on_received(200)
    tracker.on_keepalive(900)
    assert tracker.ack() == 100
    assert tracker.idle_position() == 0
    tracker.on_durable(200)
    assert tracker.ack() == 200


def test_of_several_transactions_only_the_durable_ones_are_acked() -> None:
    tracker = AckTracker(100, 100)
    for end_lsn in (200, 300, 400):
        tracker.on_begin()
        tracker.on_received(end_lsn)
    tracker.on_durable(300)
    assert tracker.ack() == 300
    assert tracker.idle_position() == 0
    tracker.on_durable(400)
    assert tracker.ack() == 400


def test_between_begin_and_commit_a_keepalive_moves_nothing() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_begin()
    tracker.on_keepalive(500)
    assert tracker.idle_position() == 0
    assert tracker.ack() == 100
    assert tracker.server_position == 100
    tracker.on_received(200)
    tracker.on_durable(200)
    assert tracker.idle_position() == 0, "what was said in between is forgotten"


def test_there_is_no_idle_position_while_a_transaction_is_open() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_keepalive(500)
    tracker.on_begin()
    assert tracker.idle_position() == 0
    tracker.on_skipped(600)
    assert tracker.idle_position() == 600


def test_an_idle_server_is_acked_only_once_its_slot_record_is_durable() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_keepalive(500)
    assert tracker.idle_position() == 500
    assert tracker.ack() == 100
    assert tracker.idle_position() == 500
    tracker.on_durable(500)
    assert tracker.ack() == 500
    assert tracker.idle_position() == 0


def test_a_commit_after_an_idle_position_was_offered_is_not_acked_with_it() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_keepalive(500)
    tracker.on_begin()
    tracker.on_received(600)
    tracker.on_durable(500)
    assert tracker.ack() == 500
    assert tracker.idle_position() == 0
    tracker.on_durable(600)
    assert tracker.ack() == 600


def test_an_empty_transaction_is_an_idle_position_not_an_ack() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_begin()
    tracker.on_skipped(200)
    assert tracker.ack() == 100
    assert tracker.idle_position() == 200


def test_a_keepalive_that_goes_back_is_ignored() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_keepalive(500)
    tracker.on_keepalive(50)
    assert tracker.idle_position() == 500


def test_a_transaction_that_the_progress_covers_is_not_received_again() -> None:
    tracker = AckTracker(100, 300)
    with pytest.raises(AssertionError, match="skipped"):
        tracker.on_received(300)


def test_what_was_never_received_cannot_be_durable() -> None:
    with pytest.raises(AssertionError, match="never received"):
        AckTracker(100, 100).on_durable(200)


def test_a_slot_record_never_goes_back() -> None:
    with pytest.raises(AssertionError, match="never goes back"):
        AckTracker(100, 100).on_durable(99)


def test_the_ack_stays_at_an_unresolved_prepare_though_later_transactions_are_durable() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_begin()
    tracker.on_prepare("gid", 200)
    tracker.on_begin()
    tracker.on_received(300)
    tracker.on_durable(300)
    assert tracker.ack() == 200
    tracker.on_keepalive(900)
    assert tracker.idle_position() == 0


def test_a_prepared_transaction_holds_the_ack_until_its_rows_are_durable() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_prepare("gid", 200)
    tracker.on_received(300)
    tracker.on_durable(300)
    tracker.on_received(400)
    tracker.on_commit_prepared("gid", 400)
    assert tracker.ack() == 200
    tracker.on_durable(400)
    assert tracker.ack() == 400
    tracker.on_keepalive(500)
    assert tracker.idle_position() == 500


def test_a_prepared_transaction_that_was_published_before_the_restart_is_released_at_once() -> None:
    tracker = AckTracker(100, 400)
    tracker.on_prepare("gid", 200)
    assert tracker.ack() == 200
    tracker.on_skipped(400)
    tracker.on_commit_prepared("gid", 400)
    assert tracker.ack() == 400


def test_a_rollback_releases_at_once() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_prepare("one", 200)
    tracker.on_prepare("two", 300)
    tracker.on_keepalive(500)
    tracker.on_rollback_prepared("one")
    assert tracker.idle_position() == 0
    tracker.on_rollback_prepared("two")
    assert tracker.idle_position() == 500


def test_resolving_what_was_never_held_changes_nothing() -> None:
    tracker = AckTracker(100, 100)
    tracker.on_received(200)
    tracker.on_commit_prepared("gid", 200)
    tracker.on_rollback_prepared("other")
    tracker.on_durable(200)
    assert tracker.ack() == 200


def test_positions_reach_to_the_end_of_a_signed_64_bit_integer() -> None:
    end = (1 << 63) - 1
    tracker = AckTracker(0, 0)
    tracker.on_keepalive(end)
    assert tracker.idle_position() == end
    tracker.on_durable(end)
    assert tracker.ack() == end
    assert (tracker.server_position, tracker.received_lsn, tracker.durable_lsn) == (end, end, end)


def test_nothing_is_acknowledged_or_recorded_until_the_last_published_transaction_came_again() -> None:
    tracker = AckTracker(100, 300)
    tracker.awaits_last_published = True
    tracker.on_skipped(200)
    tracker.on_keepalive(400)
    assert (tracker.ack(), tracker.idle_position()) == (100, 0)
    tracker.awaits_last_published = False
    assert (tracker.ack(), tracker.idle_position()) == (300, 400)


def test_the_history_of_a_server_is_known_once_it_has_sent_again_all_that_kafka_has() -> None:
    tracker = AckTracker(100, 300)
    tracker.awaits_last_published = True
    assert not tracker.is_history_known
    tracker.on_keepalive(400)
    assert not tracker.is_history_known, "the last published transaction may lie before it"
    tracker.awaits_last_published = False
    assert tracker.is_history_known
    behind = AckTracker(100, 300)
    behind.on_keepalive(299)
    assert not behind.is_history_known
