from __future__ import annotations

from typing import Any, cast

import pytest

from cdcd.daemon.server_shutdown import WAIT_FOR_KAFKA_S, WAIT_FOR_PREPARED_S
from cdcd.daemon.server_watch import ServerWatch
from cdcd.errors import PostgresUnavailable
from cdcd.source.session import Session


class PlayedSession:
    """A session that the server ends when a test says so, and that answers `answer` or refuses."""

    def __init__(self) -> None:
        self.has_ended = False
        self.answer: list[tuple[Any, ...]] | None = None
        self.asked: list[str] = []

    def sockets(self) -> list[int]:
        return [7]

    def ended(self, ready: list[int]) -> bool:
        return self.has_ended and 7 in ready

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        self.asked.append(query)
        if self.answer is None:
            raise PostgresUnavailable("the database system is shutting down", code="postgres-interrupted")
        return self.answer


@pytest.fixture
def session() -> PlayedSession:
    return PlayedSession()


def watch(session: PlayedSession, *, is_standby: bool = False) -> ServerWatch:
    return ServerWatch(cast("Session", session), is_standby=is_standby, recovery_check_interval_s=10.0)


def test_the_stream_ends_when_the_server_accepts_no_session_and_kafka_takes_nothing(session: PlayedSession) -> None:
    it = watch(session)
    it.on_readable(1000.0, [7])
    it.check_shutdown(1000.1 + WAIT_FOR_KAFKA_S, has_work=True)
    session.has_ended = True
    it.on_readable(1000.0, [3])
    it.check_shutdown(1000.1 + WAIT_FOR_KAFKA_S, has_work=True)
    it.on_readable(1000.0, [7])
    it.check_shutdown(1000.0 + WAIT_FOR_KAFKA_S, has_work=True)
    assert session.asked == []
    with pytest.raises(PostgresUnavailable, match="shutting down, and Kafka does not take"):
        it.check_shutdown(1000.1 + WAIT_FOR_KAFKA_S, has_work=True)


def test_a_session_that_was_ended_for_another_reason_ends_no_stream(session: PlayedSession) -> None:
    it = watch(session)
    session.has_ended, session.answer = True, [(1,)]
    it.on_readable(1000.0, [7])
    it.check_shutdown(2000.0, has_work=True)
    session.answer = None
    it.check_shutdown(3000.0, has_work=True)
    assert len(session.asked) == 1


def test_the_stream_ends_when_the_server_waits_for_a_prepared_transaction(session: PlayedSession) -> None:
    it = watch(session)
    for number in range(11):
        it.on_reply_request(10 + number * WAIT_FOR_PREPARED_S / 10, 4711, is_held_only_by_prepares=True)
    with pytest.raises(PostgresUnavailable, match="prepared transaction"):
        it.on_reply_request(10.1 + WAIT_FOR_PREPARED_S, 4711, is_held_only_by_prepares=True)


def test_a_standby_is_asked_once_an_interval_whether_it_was_promoted(session: PlayedSession) -> None:
    it = watch(session, is_standby=True)
    session.answer = [(True,)]
    assert not it.is_promoted(1000.0)
    session.answer = [(False,)]
    assert not it.is_promoted(1009.9)
    assert it.is_promoted(1010.0)
    assert len(session.asked) == 2


def test_a_standby_is_asked_at_once_and_a_promotion_is_not_forgotten(session: PlayedSession) -> None:
    it = watch(session, is_standby=True)
    session.answer = [(True,)]
    assert not it.is_promoted(1000.0)
    session.answer = [(False,)]
    assert it.is_promoted(1000.1, at_once=True)
    assert it.is_promoted(1000.2)
    assert len(session.asked) == 2


def test_a_primary_is_never_asked(session: PlayedSession) -> None:
    assert not watch(session).is_promoted(1000.0)
    assert session.asked == []
