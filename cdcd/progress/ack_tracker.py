"""Derives the LSN to acknowledge to PostgreSQL from what was received and what is durable in Kafka.

Before: `daemon.stream_reader` tells what the assembler received, `daemon.pipeline` which slot records Kafka committed.
After: `daemon.pipeline` puts `ack()` into the status updates, and has `idle_position()` committed as a slot record.
Source: PostgreSQL, "Streaming Replication Protocol" (Standby status update) and "Synchronous Replication Support for
Logical Decoding".

The problem: the flush position of a status update lets the server forget everything before it, and lets a synchronous
COMMIT return. So it must never pass what Kafka holds. It must also advance when nothing is published, or WAL piles up.

The tracker stores what the server has sent and what is durable. It derives the rest:

1. *received* is the end LSN of the last transaction that was handed to the sink. *durable* is the end LSN of the last
   one that a committed Kafka transaction holds. A slot record without rows (an idle position) counts in the same way.
2. *server_position*: the server has sent every relevant change before this LSN.
3. The ack is *durable*, but never more than *server_position*. At the start the progress may be ahead of the slot; the
   server then repeats prepared transactions, and must not forget them before they have come.
4. The ack is never more than the prepare LSN of an unresolved prepared transaction: after a restart the server must
   send its rows again.
5. Until the server has sent again the last transaction that Kafka has (`transaction.sent_again`), the ack stays where
   the slot is, and there is no idle position: the server may have another history.
6. Between Begin and Commit, or while a received commit is not durable, a keepalive moves only *server_position*.
   Otherwise that position is an *idle position*: once a slot record with it is durable, it is acknowledged. So the slot
   is never ahead of the progress.

LSNs are end-exclusive positions (see `cdcd.lsn`). Compiled.
"""

from __future__ import annotations

from mypy_extensions import i64


class AckTracker:
    """The positions of one stream, from START_REPLICATION to its end. The next stream gets a tracker of its own."""

    def __init__(self, confirmed: i64, durable: i64) -> None:
        """Start at `confirmed`, the slot's `confirmed_flush_lsn`, with the LSN of the last slot record, `durable`.

        `confirmed` <= `durable`: `continuity` has refused a slot that is ahead of its progress.
        """
        assert 0 <= confirmed <= durable, "a slot ahead of its progress is a gap"
        self._confirmed: i64 = confirmed
        self._server_position: i64 = confirmed
        self._received: i64 = durable
        self._durable: i64 = durable
        self._acked: i64 = 0
        self.awaits_last_published = False
        """The server has yet to send again the last transaction that Kafka has."""
        self._in_transaction = False
        self._held: dict[str, int] = {}
        """Prepared transactions that hold the ack: the prepare LSN, by name."""
        self._resolved: dict[str, int] = {}
        """Prepared transactions that were committed: the end LSN, not durable yet, by name."""

    def on_begin(self) -> None:
        """A Begin or Begin Prepare came: until the transaction ends, no keepalive is an idle position."""
        self._in_transaction = True

    def on_received(self, end_lsn: i64) -> None:
        """A transaction has ended, and its rows were handed to the sink: it must become durable."""
        assert end_lsn > self._durable, "a transaction that the progress covers is skipped, not received again"
        self._in_transaction = False
        self._advance_server_position(end_lsn)
        self._received = max(self._received, end_lsn)

    def on_skipped(self, end_lsn: i64) -> None:
        """A transaction has ended that publishes nothing: it is empty, or the progress covers it."""
        self._in_transaction = False
        self._advance_server_position(end_lsn)

    def on_keepalive(self, wal_end: i64) -> None:
        """A keepalive tells the server's position. It is ignored between Begin and Commit."""
        if not self._in_transaction:
            self._advance_server_position(wal_end)

    def on_durable(self, end_lsn: i64) -> None:
        """A Kafka transaction was committed; its slot record has the LSN `end_lsn`."""
        assert end_lsn >= self._durable, "a slot record never goes back"
        assert end_lsn <= self._received or end_lsn <= self._server_position, "durable, but never received"
        self._durable = end_lsn
        self._received = max(self._received, end_lsn)  # an idle position: there was nothing to receive before it
        if self._resolved:
            for name in [name for name, resolved in self._resolved.items() if resolved <= end_lsn]:
                del self._resolved[name]
                del self._held[name]
        assert self._acked <= self._durable <= self._received

    def on_prepare(self, name: str, prepare_lsn: i64) -> None:
        """A transaction was prepared. Until it is resolved, nothing beyond `prepare_lsn` is acknowledged.

        `name`: its xid and gid (`PreparedOutcome.name`). The gid alone may be used again before this one is durable.
        """
        self._in_transaction = False
        self._advance_server_position(prepare_lsn)
        self._held[name] = prepare_lsn
        self._resolved.pop(name, None)

    def on_commit_prepared(self, name: str, end_lsn: i64) -> None:
        """COMMIT PREPARED came, and the rows were handed to the sink (`on_received`).

        The transaction holds the ack until its end is durable. If the server restarted beyond the prepare, it would
        send the COMMIT PREPARED again, but not the rows. A transaction without rows holds the ack, too: after such a
        restart the daemon could not tell it from one whose rows are lost. If nothing else makes its end durable, an
        idle position does.
        """
        if name in self._held:
            if end_lsn <= self._durable:
                del self._held[name]
            else:
                self._resolved[name] = end_lsn

    def on_rollback_prepared(self, name: str) -> None:
        """ROLLBACK PREPARED came: the transaction does not hold the ack any more."""
        self._held.pop(name, None)
        self._resolved.pop(name, None)

    def ack(self) -> i64:
        """Return the flush position for a status update now. It never goes back within one stream."""
        if self.awaits_last_published:
            return self._confirmed
        position = min(self._durable, self._server_position)
        for prepare_lsn in self._held.values():
            position = min(position, prepare_lsn)
        self._acked = max(self._acked, position)
        assert self._acked <= self._durable <= self._received
        return self._acked

    def idle_position(self) -> i64:
        """Return the position to commit as a slot record without rows, or 0 if there is none.

        There is one exactly if every received commit is durable, no transaction is open, no prepared transaction is
        unresolved, the server is beyond the last slot record, and its history is the one that Kafka has. The position
        stays the same until it is durable or the server moves.
        """
        unresolved = len(self._held) > len(self._resolved)
        if (
            self.awaits_last_published
            or self._in_transaction
            or unresolved
            or self._received > self._durable
            or self._server_position <= self._durable
        ):
            return 0
        return self._server_position

    @property
    def is_history_known(self) -> bool:
        """Whether the server has sent again all that Kafka has: its history is the one that Kafka has."""
        return not self.awaits_last_published and self._server_position >= self._durable

    @property
    def is_held_only_by_prepares(self) -> bool:
        """Whether only unresolved prepared transactions keep the ack below the server's position."""
        unresolved = len(self._held) > len(self._resolved)
        return unresolved and not self._in_transaction and self._received <= self._durable

    @property
    def server_position(self) -> i64:
        """The server has sent every relevant change before this LSN."""
        return self._server_position

    @property
    def received_lsn(self) -> i64:
        """End LSN of the last transaction that was handed to the sink."""
        return self._received

    @property
    def durable_lsn(self) -> i64:
        """LSN of the last slot record that Kafka holds."""
        return self._durable

    def _advance_server_position(self, lsn: i64) -> None:
        self._server_position = max(self._server_position, lsn)
