"""Watches the server through the session next to the stream: does it shut down, was the standby promoted?

Before: the loop waits on the session's socket together with the stream's, and reports what it sees.
After: the loop ends the stream when this raises PostgresUnavailable, or when the standby was promoted.

The stream itself shows neither: during a shutdown the walsender goes on until all WAL is confirmed, and after a
promotion it goes on as before.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdcd.daemon.server_shutdown import ShutdownPolicy
from cdcd.errors import PostgresUnavailable
from cdcd.source.session import Session


class ServerWatch:
    """The server of one stream. For the thread that owns the stream."""

    def __init__(self, session: Session, *, is_standby: bool, recovery_check_interval_s: float) -> None:
        """`is_standby`: the server was one when the stream began."""
        self._session = session
        self._is_standby = is_standby
        self._recovery_check_interval_s = recovery_check_interval_s
        self._last_recovery_check_s = 0.0
        self._is_promoted = False
        self._policy = ShutdownPolicy()

    def sockets(self) -> list[int]:
        """Return the session's socket, to wait on; nothing if the session is closed."""
        return self._session.sockets()

    def on_readable(self, now: float, ready: Sequence[int]) -> None:
        """Note the end of the session, if `ready` holds its socket and the server has ended it."""
        if self._session.ended(ready):
            self._policy.on_session_end(now)

    def on_commit(self, now: float) -> None:
        """Kafka committed a transaction."""
        self._policy.on_commit(now)

    def on_reply_request(self, now: float, wal_end: int, *, is_held_only_by_prepares: bool) -> None:
        """The server asked for a reply. Raises PostgresUnavailable if it waits too long for a prepared transaction."""
        if self._policy.leaves_for_prepared(now, wal_end, is_held_only_by_prepares=is_held_only_by_prepares):
            raise PostgresUnavailable(
                "PostgreSQL is shutting down, and would wait for a prepared transaction to end",
                code="postgres-interrupted",
            )

    def check_shutdown(self, now: float, *, has_work: bool) -> None:
        """Raises PostgresUnavailable if the server shuts down and waits too long for Kafka.

        `has_work`: Kafka does not hold everything that the server sent. A server that accepts a session is not shutting
        down: it ended the last session for another reason.
        """
        if not self._policy.leaves_for_kafka(now, has_work=has_work):
            return
        try:
            self._session.rows("SELECT 1")
        except PostgresUnavailable as error:
            raise PostgresUnavailable(
                "PostgreSQL is shutting down, and Kafka does not take the rest", code="postgres-interrupted"
            ) from error
        self._policy.on_session_open()

    def is_promoted(self, now: float, *, at_once: bool = False) -> bool:
        """Whether the server was a standby when the stream began, and is a primary now.

        Asks once an interval, or `at_once`: if it is a standby still, then all that was received is of its timeline.
        """
        if not self._is_standby or self._is_promoted:
            return self._is_promoted
        if at_once or now - self._last_recovery_check_s >= self._recovery_check_interval_s:
            self._last_recovery_check_s = now
            self._is_promoted = self._session.rows("SELECT pg_catalog.pg_is_in_recovery()") == [(False,)]
        return self._is_promoted
