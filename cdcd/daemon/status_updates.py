"""Decides when the server gets a status update, and when it is asked for a sign of life. Pure.

Before: `progress.ack_tracker` says what may be acknowledged, the assembler that the server asks for a reply.
After: the loop sends the standby status update.
Source: PostgreSQL, "Streaming Replication Protocol" (Standby status update, Primary keepalive message).
"""

from __future__ import annotations

from math import inf
from typing import Final

from cdcd.errors import PostgresUnavailable
from cdcd.source.liveness import ServerLiveness

REPLY_INTERVAL_S: Final = 0.01
"""The least time between two answers. A server that shuts down asks with every keepalive, 25,000 times a second."""

PROBE_AFTER_S: Final = 30.0
"""After this much silence the daemon asks the server for a keepalive. An idle server is silent, too."""


class StatusUpdates:
    """The status updates of one stream. LSNs are end-exclusive; times are seconds of a clock that never goes back."""

    def __init__(self, now: float, interval_s: float, wal_sender_timeout_s: float, loop_within_s: float) -> None:
        """`interval_s`: the longest time between two updates. `loop_within_s`: the longest wait of a turn."""
        self._interval_s = interval_s
        self._loop_within_s = min(PROBE_AFTER_S, loop_within_s)
        self._liveness = ServerLiveness(now, wal_sender_timeout_s, self._loop_within_s)
        self._last_status_lsn = -1
        self._last_status_s = -inf

    def on_data(self, now: float) -> None:
        """The server sent something, or the loop did not listen."""
        self._liveness.on_data(now)

    def should_probe(self, now: float) -> bool:
        """Whether to ask the server for a keepalive now. Raises PostgresUnavailable if it has been silent too long."""
        if self._liveness.is_dead(now):
            raise PostgresUnavailable(
                f"PostgreSQL has been silent for {self._liveness.timeout_s:.0f} s, and does not answer",
                code="postgres-interrupted",
            )
        return self._liveness.should_probe(now)

    def may_answer(self, now: float) -> bool:
        """Whether a request for a reply may be answered now."""
        return now - self._last_status_s >= REPLY_INTERVAL_S

    def is_due(self, now: float, ack_lsn: int) -> bool:
        """Whether the acknowledgement moved to `ack_lsn`, or the interval is over."""
        return ack_lsn != self._last_status_lsn or now - self._last_status_s >= self._interval_s

    def on_sent(self, now: float, ack_lsn: int) -> None:
        """An update with `ack_lsn` was sent."""
        self._last_status_lsn = ack_lsn
        self._last_status_s = now

    def make_due(self) -> None:
        """The next update is due at once, even if the position has not moved."""
        self._last_status_lsn = -1

    def wait_s(self, now: float, *, reply_requested: bool) -> float:
        """Return how long the loop may wait until the next update is due."""
        wait_s = min(self._loop_within_s, max(0.0, self._last_status_s + self._interval_s - now))
        return min(wait_s, REPLY_INTERVAL_S) if reply_requested else wait_s

    @property
    def has_unanswered_probe(self) -> bool:
        """The server was asked for a keepalive, and nothing has come since."""
        return self._liveness.has_unanswered_probe

    @property
    def last_data_s(self) -> float:
        """When the server sent something last."""
        return self._liveness.last_data_s
