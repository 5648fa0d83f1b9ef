"""Notices a server that has fallen silent: a connection that is gone without a word. Pure: the time is an argument.

Before: `pipeline` says when it heard the server. After: it asks for a keepalive when `asks` says so, and gives the
connection up when `lost` does.
Source: PostgreSQL, "Streaming Replication Protocol" (a status update may ask for a reply at once).

The problem: a server that has nothing to say says nothing, as long as it hears from us. So does a connection whose
other end was lost, with a firewall or a proxy between; TCP finds that out after a quarter of an hour, or never.
"""

from __future__ import annotations

from typing import Final

TIMEOUT_MIN_S: Final = 10.0


class ServerLiveness:
    """How long one stream's server has been silent. Times are seconds of a clock that never goes back."""

    def __init__(self, now: float, wal_sender_timeout_s: float, probe_after_s: float = float("inf")) -> None:
        """The server gives us up after `wal_sender_timeout_s`, we it after twice that time; 0: neither ever does.

        Twice, because a server that decodes a large transaction of which nothing is published does not answer. It is
        asked after `probe_after_s` at the latest.
        """
        self._timeout_s = max(TIMEOUT_MIN_S, 2 * wal_sender_timeout_s) if wal_sender_timeout_s else float("inf")
        self._probe_after_s = min(probe_after_s, self._timeout_s / 4)
        self._data_s = now
        self._probed_s = now

    def on_data(self, now: float) -> None:
        """The server sent something, or we did not listen."""
        self._data_s = self._probed_s = now

    def should_probe(self, now: float) -> bool:
        """Whether to ask for a keepalive now; it is asked a few times before the connection counts as lost."""
        if now - self._probed_s < self._probe_after_s:
            return False
        self._probed_s = now
        return True

    def is_dead(self, now: float) -> bool:
        """Whether the connection counts as lost."""
        return now - self._data_s >= self._timeout_s

    @property
    def has_unanswered_probe(self) -> bool:
        """The server was asked for a keepalive, and nothing has come since."""
        return self._probed_s > self._data_s

    @property
    def last_data_s(self) -> float:
        """When the server was heard last."""
        return self._data_s

    @property
    def timeout_s(self) -> float:
        """For how long the server may be silent."""
        return self._timeout_s
