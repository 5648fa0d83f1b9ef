"""Follows the stream from Begin to Commit and hands every change of a committed transaction on, in commit order.

Before: `source.walsender` reads frames (CopyData payloads) in bursts.
After: a ChangeConsumer (`avro.envelope`) gets the changes; `progress.tracker` is told what was received.
Source: PostgreSQL, "Streaming Replication Protocol" (XLogData, Primary keepalive) and "Logical Replication Message
Flow"; `apply_dispatch` and `apply_handle_*` in worker.c.

The states: between transactions, or inside one; and inside one either handing on or skipping. A transaction is skipped,
whole, when its commit LSN is not above the last one that is durable: the server sends again what it was not told of.

Hot path, a row: header and OID reads, one comparison (or a dict look-up where relations alternate), one virtual call.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from cdcd.errors import DecodeError
from cdcd.lsn import format_lsn
from cdcd.pgoutput import messages
from cdcd.pgoutput.decoder import Decoder
from cdcd.source.replication import (
    KEEPALIVE,
    POSTGRES_EPOCH_US,
    XLOGDATA,
    XLOGDATA_HEADER_BYTES,
    decode_keepalive,
)
from cdcd.transaction.changes import ChangeConsumer, RelationChanges
from cdcd.transaction.relations import Relations

_OID_AT: Final[i64] = XLOGDATA_HEADER_BYTES + 1
_TUPLE_AT: Final[i64] = XLOGDATA_HEADER_BYTES + 5


@final
class Assembler:
    """The state of one stream; made anew whenever replication starts."""

    def __init__(
        self, decoder: Decoder, relations: Relations, consumer: ChangeConsumer, durable_commit_lsn: i64
    ) -> None:
        """`durable_commit_lsn`: transactions that committed at or below it are skipped, because Kafka has them."""
        self._decoder = decoder
        self._relations = relations
        self._consumer = consumer
        self._durable_commit_lsn: i64 = durable_commit_lsn
        self._changes: dict[int, RelationChanges] = {}
        self._last_oid: i64 = 0
        self._last: RelationChanges | None = None
        self._skipping = False
        self.in_transaction = False
        """A Begin has come and its Commit has not."""
        self.received_lsn: i64 = 0
        """`end_lsn` of the last Commit that came; 0 before the first."""
        self.quiet_lsn: i64 = 0
        """The last keepalive's WAL position, if it came between transactions: all that committed before it has been
        sent."""
        self.server_lsn: i64 = 0
        """Where the server's WAL ended when it last wrote to us."""
        self.reply_requested = False
        """A keepalive asked for an answer at once; whoever answers resets it."""

    def feed(self, frames: list[bytes]) -> None:
        """Take frames in the order in which they came.

        Raises DecodeError (the server's fault) if they are malformed or break the protocol's order.
        """
        for frame in frames:
            if len(frame) <= XLOGDATA_HEADER_BYTES or frame[0] != XLOGDATA:
                self._keepalive(frame)
                continue
            kind: i64 = frame[XLOGDATA_HEADER_BYTES]
            if kind == messages.INSERT or kind == messages.UPDATE or kind == messages.DELETE:
                if not self.in_transaction or len(frame) <= _TUPLE_AT:
                    raise self._misplaced(frame)
                if self._skipping:
                    continue
                oid: i64 = i64(read_i32_be(frame, _OID_AT))
                changes = self._last
                if changes is None or oid != self._last_oid:
                    changes = self._relation(oid)
                lsn = read_i64_be(frame, 1)
                if kind == messages.INSERT:
                    changes.insert(frame, _TUPLE_AT, lsn)
                elif kind == messages.UPDATE:
                    changes.update(frame, _TUPLE_AT, lsn)
                else:
                    changes.delete(frame, _TUPLE_AT, lsn)
            else:
                self._dispatch(self._decoder.decode(frame, XLOGDATA_HEADER_BYTES), frame)

    def _dispatch(self, message: messages.Message, frame: bytes) -> None:
        if isinstance(message, messages.Begin):
            if self.in_transaction:
                raise self._misplaced(frame)
            self.in_transaction = True
            self._skipping = message.final_lsn <= self._durable_commit_lsn
            if not self._skipping:
                self._consumer.begin(message.final_lsn, message.commit_time + POSTGRES_EPOCH_US, message.xid)
        elif isinstance(message, messages.Commit):
            if not self.in_transaction:
                raise self._misplaced(frame)
            self.in_transaction = False
            self.received_lsn = message.end_lsn
            self.server_lsn = max(self.server_lsn, message.end_lsn)
            if not self._skipping:
                self._consumer.commit(message.end_lsn)
        elif isinstance(message, messages.Relation):
            self._changes[message.relation_oid] = self._consumer.open_relation(self._relations.resolve(message))
            self._last = None
        elif isinstance(message, messages.Type):
            self._relations.name_type(message)
        elif isinstance(message, messages.Truncate):
            if not self.in_transaction:
                raise self._misplaced(frame)
            if not self._skipping:
                for oid in message.relation_oids:
                    self._relation(oid).truncate(read_i64_be(frame, 1))
        elif isinstance(message, messages.Origin):
            if not self.in_transaction:
                raise self._misplaced(frame)
            if not self._skipping:
                self._consumer.origin(message.name)
        else:
            raise self._misplaced(frame)

    def _relation(self, oid: i64) -> RelationChanges:
        # The OID is unsigned on the wire; as read it may be negative, which is as good for comparing.
        changes = self._changes.get(oid & 0xFFFFFFFF)
        if changes is None:
            raise DecodeError(
                f"a change of relation OID {oid & 0xFFFFFFFF} came before any Relation message announced it",
                "This is a bug of the server or of cdcd; restart the daemon, and report it if it comes back",
            )
        self._last_oid = oid
        self._last = changes
        return changes

    def _keepalive(self, frame: bytes) -> None:
        if len(frame) == 0 or frame[0] != KEEPALIVE:
            raise DecodeError(
                f"a CopyData message of {len(frame)} bytes is neither XLogData nor a keepalive",
                "Check that nothing between cdcd and PostgreSQL changes the stream, and report this",
            )
        keepalive = decode_keepalive(frame)
        self.server_lsn = max(self.server_lsn, keepalive.wal_end)
        if not self.in_transaction:
            self.quiet_lsn = keepalive.wal_end
        if keepalive.reply:
            self.reply_requested = True

    def _misplaced(self, frame: bytes) -> DecodeError:
        where = "inside a transaction" if self.in_transaction else "between transactions"
        return DecodeError(
            f"message {chr(frame[XLOGDATA_HEADER_BYTES])!r} of {len(frame)} bytes at LSN "
            f"{format_lsn(read_i64_be(frame, 1))} must not come {where}",
            "This is a bug of the server or of cdcd; restart the daemon, and report it if it comes back",
        )
