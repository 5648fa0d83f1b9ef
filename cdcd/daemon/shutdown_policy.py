"""Notices a server that shuts down: it asks for a reply with every keepalive, again and again, and says nothing else.

Before: the assembler saw a keepalive that asks for a reply. After: `pipeline` gives up a connection that keeps a
server from stopping for a reason which no waiting ends.
Source: PostgreSQL, `WalSndDone` in walsender.c: a fast shutdown waits until all WAL is confirmed, and asks meanwhile.

While it runs, a server asks at most twice in a `wal_sender_timeout`.
"""

from __future__ import annotations

from typing import Final

PAUSE_S: Final = 0.5
"""A longer pause between two requests ends the insistence."""


class ShutdownDetector:
    """How long the server has been asking without a pause, and without getting on."""

    def __init__(self) -> None:
        self._since_s = self._last_s = float("-inf")
        self._wal_end = 0

    def asked(self, now: float, wal_end: int) -> float:
        """Note a request for a reply; returns for how many seconds the server has been insisting."""
        if now - self._last_s > PAUSE_S or wal_end != self._wal_end:
            self._since_s = now
            self._wal_end = wal_end
        self._last_s = now
        return now - self._since_s
