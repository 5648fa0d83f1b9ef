"""Notices a server that has fallen silent: its connection was lost without a word. Pure: the time is an argument.

Before: `pipeline` says when data came.
After: `pipeline` asks for a keepalive when `should_probe` says so, and gives the connection up when `is_dead` does.
Source: PostgreSQL, "Streaming Replication Protocol" (a status update may ask for a reply at once).

The problem: a server without news sends nothing as long as status updates come. A connection whose other end is gone is
as silent, if a firewall or a proxy lies between. TCP notices that after a quarter of an hour, or never.
"""

from __future__ import annotations

from typing import Final

TIMEOUT_MIN_S: Final = 10.0
"""A short wal_sender_timeout does not make the timeout shorter than this."""

TIMEOUT_S: Final = 120.0
"""The timeout if wal_sender_timeout is off: as with its default, 60 s."""


class ServerLiveness:
    """How long one stream's server has been silent. Times are seconds of a monotonic clock."""

    def __init__(self, now: float, wal_sender_timeout_s: float, probe_after_s: float = float("inf")) -> None:
        """The server gives a silent client up after `wal_sender_timeout_s`, and the daemon the server after twice that.

        Twice, because a server does not answer while it decodes a large transaction that publishes nothing. 0: the
        server never gives a client up, but its connection can be lost all the same. The server is probed when it has
        been silent for `probe_after_s`, or earlier.
        """
        self.timeout_s = max(TIMEOUT_MIN_S, 2 * wal_sender_timeout_s) if wal_sender_timeout_s else TIMEOUT_S
        """How long the server may be silent."""
        self.last_data_s = now
        """When the server sent something last."""
        self._probe_after_s = min(probe_after_s, self.timeout_s / 4)
        self._probed_s = now

    def on_data(self, now: float) -> None:
        """The server sent something, or the daemon did not listen."""
        self.last_data_s = self._probed_s = now

    def should_probe(self, now: float) -> bool:
        """Whether to ask for a keepalive now. After True the caller must ask: it counts as asked.

        The server is asked a few times before the connection counts as lost.
        """
        if now - self._probed_s < self._probe_after_s:
            return False
        self._probed_s = now
        return True

    def is_dead(self, now: float) -> bool:
        """Whether the connection counts as lost."""
        return now - self.last_data_s >= self.timeout_s

    @property
    def has_unanswered_probe(self) -> bool:
        """Whether the server was asked for a keepalive, and has sent nothing since."""
        return self._probed_s > self.last_data_s
