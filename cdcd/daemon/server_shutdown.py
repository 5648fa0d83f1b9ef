"""Decides when the daemon leaves a server that shuts down. Pure: the time is an argument.

Before: the loop reports requests for a reply, the end of the session next to the stream, and the commits of Kafka.
After: the loop ends the stream, so that the server can stop. The supervisor opens the next stream.
Source: PostgreSQL, `WalSndDone` in walsender.c: a fast shutdown waits until all WAL is confirmed, and asks for a reply
meanwhile.

A server that shuts down ends its sessions first, and its walsenders when all WAL is confirmed. The daemon usually
publishes and confirms the rest within moments. It cannot do so in two cases, and then it leaves:

- The acknowledgement stays before a prepared transaction until that transaction ends, which can take days.
- Kafka takes nothing. The server sends the rest again after its restart.
"""

from __future__ import annotations

from typing import Final

REQUEST_PAUSE_MAX_S: Final = 0.5
"""A server that shuts down asks for replies with shorter pauses than this."""

WAIT_FOR_PREPARED_S: Final = 1.0
"""How long a server may wait for the end of a prepared transaction."""

WAIT_FOR_KAFKA_S: Final = 5.0
"""How long a server may wait for a Kafka that takes nothing."""


class ShutdownDetector:
    """Detects a server that shuts down: every keepalive asks for a reply, and the end of its WAL stays where it is.

    A server that runs asks at most twice within a `wal_sender_timeout`.
    """

    def __init__(self) -> None:
        self._since_s = self._last_s = float("-inf")
        self._wal_end = 0

    def on_reply_request(self, now: float, wal_end: int) -> float:
        """Take a request for a reply. `wal_end`: the end of the server's WAL (LSN).

        Returns for how many seconds the server has been asking without a pause.
        """
        if now - self._last_s > REQUEST_PAUSE_MAX_S or wal_end != self._wal_end:
            self._since_s = now
            self._wal_end = wal_end
        self._last_s = now
        return now - self._since_s


class ShutdownPolicy:
    """Whether to leave the server of one stream. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._detector = ShutdownDetector()
        self._server_leaving_since_s: float | None = None

    def on_session_end(self, now: float) -> None:
        """The server ended the session next to the stream: it may be shutting down."""
        self._server_leaving_since_s = now

    def on_session_open(self) -> None:
        """The server accepts sessions: it is not shutting down."""
        self._server_leaving_since_s = None

    def on_commit(self, now: float) -> None:
        """Kafka committed a transaction: the wait for Kafka starts again."""
        if self._server_leaving_since_s is not None:
            self._server_leaving_since_s = now

    def leaves_for_prepared(self, now: float, wal_end: int, *, is_held_only_by_prepares: bool) -> bool:
        """Take a request for a reply. Returns whether the server waits too long for a prepared transaction.

        `is_held_only_by_prepares`: nothing else keeps the acknowledgement from `wal_end` (LSN).
        """
        asking_s = self._detector.on_reply_request(now, wal_end)
        return asking_s > WAIT_FOR_PREPARED_S and is_held_only_by_prepares

    def leaves_for_kafka(self, now: float, *, has_work: bool) -> bool:
        """Whether the server waits too long for Kafka, if it is shutting down. `has_work`: Kafka does not hold all."""
        since_s = self._server_leaving_since_s
        return since_s is not None and has_work and now - since_s > WAIT_FOR_KAFKA_S
