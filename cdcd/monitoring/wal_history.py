"""When the server's WAL grew beyond a position: so WAL that the server has not sent yet has an age.

Before: the slot monitor asks every few seconds where the server's WAL ends. After: `status` derives the lag.

A commit tells its time when it is received. But a server that has much to decode sends a commit long after it was made.
Until then only the growth of the WAL is known, from outside of the stream.
"""

from __future__ import annotations

from typing import Final

SAMPLES_MAX: Final = 512
"""When there are so many, every second one is forgotten: a longer history is a coarser one."""


class WalHistory:
    """The ends of the WAL that were seen, oldest first. One thread adds, any thread asks."""

    def __init__(self) -> None:
        self._seen: tuple[tuple[int, int], ...] = ()
        """LSN, and when it was first seen: microseconds since 1970 UTC. Both grow."""

    def add(self, now_us: int, wal_lsn: int, durable_lsn: int) -> None:
        """The WAL ends at `wal_lsn`. Nobody will ask for a position before `durable_lsn`."""
        seen = [each for each in self._seen if each[0] > durable_lsn]
        if wal_lsn > durable_lsn and (not seen or wal_lsn > seen[-1][0]):
            seen.append((wal_lsn, now_us))
        if len(seen) > SAMPLES_MAX:
            del seen[1::2]
        self._seen = tuple(seen)

    def beyond_us(self, lsn: int) -> int:
        """Return when the WAL was first seen to end beyond `lsn`; 0 if it was not."""
        return next((seen_us for wal_lsn, seen_us in self._seen if wal_lsn > lsn), 0)
