from __future__ import annotations

from cdcd.daemon.server_shutdown import (
    REQUEST_PAUSE_MAX_S,
    WAIT_FOR_KAFKA_S,
    WAIT_FOR_PREPARED_S,
    ShutdownDetector,
    ShutdownPolicy,
)


def test_a_server_shuts_down_that_asks_without_a_pause_and_stays_where_it_is() -> None:
    detector = ShutdownDetector()
    assert [detector.on_reply_request(10 + n / 100, 4711) for n in range(3)] == [0, 10.01 - 10, 10.02 - 10]


def test_a_pause_or_new_wal_ends_the_shutdown() -> None:
    detector = ShutdownDetector()
    detector.on_reply_request(10.0, 4711)
    assert detector.on_reply_request(10.1 + REQUEST_PAUSE_MAX_S, 4711) == 0
    assert detector.on_reply_request(10.2 + REQUEST_PAUSE_MAX_S, 4711) > 0
    assert detector.on_reply_request(10.3 + REQUEST_PAUSE_MAX_S, 4712) == 0


def test_a_server_waits_for_a_prepared_transaction_for_a_second_and_only_if_nothing_else_is_left() -> None:
    for is_held, leaves in ((True, True), (False, False)):
        policy = ShutdownPolicy()
        last_s = 10 + WAIT_FOR_PREPARED_S
        at_s = 10.0
        while at_s <= last_s:
            assert not policy.leaves_for_prepared(at_s, 4711, is_held_only_by_prepares=is_held)
            at_s += 0.25
        assert policy.leaves_for_prepared(last_s + 0.1, 4711, is_held_only_by_prepares=is_held) == leaves


def test_a_server_that_leaves_waits_for_a_kafka_that_takes_nothing_for_some_seconds() -> None:
    policy = ShutdownPolicy()
    assert not policy.leaves_for_kafka(1000.0, has_work=True), "its session is open"
    policy.on_session_end(1000.0)
    assert not policy.leaves_for_kafka(1000.0 + WAIT_FOR_KAFKA_S, has_work=True)
    assert policy.leaves_for_kafka(1000.1 + WAIT_FOR_KAFKA_S, has_work=True)
    assert not policy.leaves_for_kafka(1000.1 + WAIT_FOR_KAFKA_S, has_work=False), "Kafka has everything"


def test_each_commit_of_kafka_renews_the_patience_with_it() -> None:
    policy = ShutdownPolicy()
    policy.on_commit(1.0)
    assert not policy.leaves_for_kafka(1000.0, has_work=True), "the server is not leaving"
    policy.on_session_end(1000.0)
    policy.on_commit(1004.0)
    assert not policy.leaves_for_kafka(1004.0 + WAIT_FOR_KAFKA_S, has_work=True)
    assert policy.leaves_for_kafka(1004.1 + WAIT_FOR_KAFKA_S, has_work=True)


def test_a_server_that_accepts_a_session_is_not_leaving() -> None:
    policy = ShutdownPolicy()
    policy.on_session_end(1000.0)
    policy.on_session_open()
    assert not policy.leaves_for_kafka(2000.0, has_work=True)
