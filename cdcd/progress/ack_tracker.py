"""What was received, what is durable in Kafka, and what may therefore be acknowledged to PostgreSQL.

Before: `source` reports what the server told, `sink` what a committed Kafka transaction holds.
After: `source` puts `ack()` into its status updates; `pipeline` commits `idle_position()` as a slot record.
Source: PostgreSQL, "Streaming Replication Protocol" (Standby status update) and "Synchronous Replication Support for
Logical Decoding"; DESIGN.md, "Exactly once, and what is acknowledged".

The problem: a status update's flush position lets the server forget everything before it, and lets a synchronous
COMMIT return. So it must never pass what Kafka holds; and it must advance when nothing is published, or WAL piles up.

The state is what was heard and what is durable. The rest is derived from it:

1. *received* is the end LSN of the last transaction that was handed to the sink, *durable* that of the last one that
   a committed Kafka transaction holds. A slot record alone (an idle position) is durable in the same way.
2. *heard* is how far the server has told its story: everything before it was received or concerns us not.
3. The ack is *durable*, but never more than *heard*: at start the progress may be ahead of the slot, and what the
   server sends again of prepared transactions must be heard before the server may forget it.
4. Nor is it more than the prepare LSN of an unresolved prepared transaction: a restart must get its rows again.
5. Between Begin and Commit, or while a commit received is not durable, a keepalive moves only *heard*. Otherwise what
   it says of the server's WAL is an *idle position*: once a slot record with it is durable, it is acknowledged.
   So the slot is never ahead of the progress.

LSNs are end-exclusive positions (see `cdcd.lsn`). Compiled.
"""

from __future__ import annotations

from mypy_extensions import i64


class AckTracker:
    """The positions of one stream, from START_REPLICATION to its end. A new stream gets a new tracker."""

    def __init__(self, confirmed: i64, durable: i64) -> None:
        """Start from the slot's `confirmed_flush_lsn`, where the server starts, and the LSN of the last slot record.

        `continuity` has refused a slot that is ahead of its progress: `confirmed` <= `durable`.
        """
        assert 0 <= confirmed <= durable, "a slot ahead of its progress is a gap"
        self._server: i64 = confirmed
        self._received: i64 = durable
        self._durable: i64 = durable
        self._acked: i64 = 0
        self._inside = False
        self._held: dict[str, int] = {}
        self._resolved: dict[str, int] = {}

    def on_begin(self) -> None:
        """A Begin (or Begin Prepare) came: until its end arrives, no keepalive is an idle position."""
        self._inside = True

    def on_received(self, end_lsn: i64) -> None:
        """A transaction ended and its rows were handed to the sink: it must become durable."""
        assert end_lsn > self._durable, "a transaction that the progress covers is skipped, not received again"
        self._inside = False
        self._advance_server(end_lsn)
        self._received = max(self._received, end_lsn)

    def on_skipped(self, end_lsn: i64) -> None:
        """A transaction ended of which nothing is to be published: it is empty, or the progress covers it."""
        self._inside = False
        self._advance_server(end_lsn)

    def on_keepalive(self, wal_end: i64) -> None:
        """The server's keepalive: how far it has got. Ignored between Begin and Commit, whatever it says."""
        if not self._inside:
            self._advance_server(wal_end)

    def on_durable(self, end_lsn: i64) -> None:
        """A Kafka transaction was committed whose slot record says `end_lsn`."""
        assert end_lsn >= self._durable, "a slot record never goes back"
        assert end_lsn <= self._received or end_lsn <= self._server, "durable, but never received"
        self._durable = end_lsn
        self._received = max(self._received, end_lsn)  # an idle position: there was nothing to receive before it
        if self._resolved:
            for gid in [gid for gid, resolved in self._resolved.items() if resolved <= end_lsn]:
                del self._resolved[gid]
                del self._held[gid]
        assert self._acked <= self._durable <= self._received

    def on_prepare(self, gid: str, prepare_lsn: i64) -> None:
        """A transaction was prepared; its rows go out at COMMIT PREPARED. Until it is resolved, ack nothing beyond."""
        self._inside = False
        self._advance_server(prepare_lsn)
        self._held[gid] = prepare_lsn
        self._resolved.pop(gid, None)

    def on_commit_prepared(self, gid: str, end_lsn: i64) -> None:
        """COMMIT PREPARED came, its rows were handed to the sink (`received`): the hold ends when they are durable.

        Not before: a server that restarts beyond the prepare sends the COMMIT PREPARED again, but not the rows. That
        holds for one without rows, too: nobody could tell it from one whose rows are lost. Where nothing else makes its
        end durable, an idle position does.
        """
        if gid in self._held:
            if end_lsn <= self._durable:
                del self._held[gid]
            else:
                self._resolved[gid] = end_lsn

    def on_rollback_prepared(self, gid: str) -> None:
        """ROLLBACK PREPARED came: there is nothing to wait for."""
        self._held.pop(gid, None)
        self._resolved.pop(gid, None)

    def ack(self) -> i64:
        """The flush position for a status update now. It never goes back within one stream."""
        position = min(self._durable, self._server)
        for prepare_lsn in self._held.values():
            position = min(position, prepare_lsn)
        self._acked = max(self._acked, position)
        assert self._acked <= self._durable <= self._received
        return self._acked

    def idle_position(self) -> i64:
        """The position to commit as a slot record without rows, or 0 if there is none.

        There is one exactly if every commit received is durable, nothing is open, no prepare is unresolved, and the
        server has got beyond the last slot record. It stays the same until `durable` takes it or the server moves.
        """
        unresolved = len(self._held) > len(self._resolved)
        if self._inside or unresolved or self._received > self._durable or self._server <= self._durable:
            return 0
        return self._server

    @property
    def is_held_only_by_prepares(self) -> bool:
        """Whether nothing but an unresolved prepared transaction keeps the ack from what was heard."""
        unresolved = len(self._held) > len(self._resolved)
        return unresolved and not self._inside and self._received <= self._durable

    @property
    def server_position(self) -> i64:
        """How far the server has told its story."""
        return self._server

    @property
    def received_lsn(self) -> i64:
        """End LSN of the last transaction that was handed to the sink."""
        return self._received

    @property
    def durable_lsn(self) -> i64:
        """What Kafka holds."""
        return self._durable

    def _advance_server(self, lsn: i64) -> None:
        self._server = max(self._server, lsn)
