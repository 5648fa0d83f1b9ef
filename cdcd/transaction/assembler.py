"""Follows the stream and hands every change of a committed transaction on, in commit order.

Before: `source.replication_stream` reads frames (CopyData payloads) in bursts.
After: a ChangeConsumer (`avro.event_encoder`) gets the changes; `progress.ack_tracker` is told what was received.
Source: PostgreSQL, "Streaming Replication Protocol" (XLogData, Primary keepalive) and "Logical Replication Message
Flow"; `apply_dispatch` and `apply_handle_*` in worker.c.

A transaction comes in one of three ways:

- Begin ... Commit: it has committed. Its changes are handed on as they come.
- In blocks, Stream Start ... Stream Stop, while it is in progress. `spooled_transactions` keeps the changes until
  Stream Commit. Stream Abort drops all of them, or those of one subtransaction.
- Begin Prepare ... Prepare (or in stream blocks, then Stream Prepare). `spooled_transactions` keeps the changes until
  Commit Prepared or Rollback Prepared.

When the commit of a spooled transaction comes, `feed` and each `proceed` hand on one piece of it. While `is_busy`, the
rest of the frames waits. A transaction that Kafka has is skipped as a whole: after a restart the server sends again
what was not acknowledged (`sent_again`).

`stream_state` has the table of states: which message may come in which, and what becomes of a change. `_dispatch` names
the handler of every other message.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64

from cdcd.errors import BUG_HINT, DecodeError
from cdcd.lsn import format_lsn
from cdcd.pgoutput import messages
from cdcd.pgoutput.decoder import Decoder
from cdcd.source.stream_messages import (
    KEEPALIVE,
    POSTGRES_EPOCH_US,
    XLOGDATA,
    XLOGDATA_HEADER_BYTES,
    decode_keepalive,
)
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.change_router import BODY_AT, ChangeRouter
from cdcd.transaction.relations import Relations
from cdcd.transaction.sent_again import SentAgain
from cdcd.transaction.spool import Spool
from cdcd.transaction.spooled_transactions import PreparedOutcome, SpooledTransactions
from cdcd.transaction.stream_state import (
    BETWEEN_TRANSACTIONS,
    HANDED_ON,
    IN_DURABLE_TRANSACTION,
    IN_PREPARE_BLOCK,
    IN_STREAM_BLOCK,
    IN_TRANSACTION,
    NONTRANSACTIONAL_MESSAGE,
    REFUSED,
    REPLAYING,
    SPOOLED,
    StreamState,
)

DISTANT_BYTES: Final[i64] = 4 << 20
"""WAL between a Begin and its commit record; the server sends a transaction that spans less within some 100 ms."""

REPLAY_BYTES: Final = 1 << 20


@final
class Assembler:
    """The state of one stream. Every START_REPLICATION needs a new one."""

    def __init__(
        self,
        decoder: Decoder,
        relations: Relations,
        consumer: ChangeConsumer,
        spool: Spool,
        sent_again: SentAgain | None = None,
        replay_bytes: i64 = REPLAY_BYTES,
    ) -> None:
        """`sent_again` knows the transactions that Kafka has: these are skipped. None: it has none.

        `replay_bytes`: about how much of a spooled transaction `proceed` hands on at once.
        """
        self._decoder = decoder
        self._consumer = consumer
        self._sent_again = SentAgain() if sent_again is None else sent_again
        self._router = ChangeRouter(relations, consumer, {}, decoder.lsn_base)
        self._spooled = SpooledTransactions(
            decoder, relations, consumer, spool, self._router, self._sent_again, replay_bytes
        )
        self._frames: list[bytes] = []
        self._at: i64 = 0
        self._state: StreamState = BETWEEN_TRANSACTIONS
        self._pause_lsn: i64 = 0
        self.is_paused = False
        """Everything that commits before the LSN of the pause was handed on, and nothing else."""
        self.commit_is_distant = False
        """The commit of the transaction that is being handed on may be far away."""
        self.received_lsn: i64 = 0
        """`end_lsn` of the last transaction that has ended; 0 before the first."""
        self.last_idle_keepalive_lsn: i64 = 0
        """The position of the last keepalive between transactions: the server has sent every commit before it."""
        self.server_lsn: i64 = 0
        """Where the server's WAL ended, by its last message."""
        self.reply_requested = False
        """A keepalive asked for a status update at once; the sender of the update resets it."""

    @property
    def in_transaction(self) -> bool:
        """A Begin has come and its Commit has not; or a spooled transaction is being handed on."""
        return self._state.in_transaction

    @property
    def is_busy(self) -> bool:
        """Frames wait, or a part of a spooled transaction: call `proceed`, and do not `feed` before it is done."""
        return self._state is REPLAYING or self._at < len(self._frames)

    @property
    def awaits_last_published(self) -> bool:
        """The server has yet to send again the last transaction that Kafka has: only then its history is Kafka's."""
        return self._sent_again.awaits_last_published

    @property
    def prepared_outcomes(self) -> list[PreparedOutcome]:
        """The outcomes of prepared transactions; the reader empties the list."""
        return self._spooled.outcomes

    def announced_name(self, relation_oid: int) -> tuple[str, str] | None:
        """The schema and name under which the stream sends a relation; None if it has not announced it."""
        return self._router.announced_name(relation_oid)

    def pause_before(self, lsn: i64) -> None:
        """Pause before the first transaction that commits at `lsn` or later. A later call replaces the LSN."""
        self._pause_lsn = lsn
        self.is_paused = False

    def resume(self) -> None:
        """End the pause, or do not pause at all."""
        self._pause_lsn = 0
        self.is_paused = False

    def feed(self, frames: list[bytes]) -> None:
        """Take frames in the order in which they came; not while `is_busy`.

        Raises DecodeError (the server's fault) if they are malformed or break the protocol's order; SpoolFull if a
        transaction in progress does not fit; StreamingUnsupported if the server does not tell which of its messages
        were rolled back; GapError if the server does not send again what Kafka has.
        """
        assert not self.is_busy, "frames would overtake those that wait"
        self._frames = frames
        self._at = 0
        self._router.forget_expected()
        self.proceed()

    def proceed(self) -> None:
        """Go on with the frames of the last `feed`, up to the next piece of a spooled transaction. Raises as `feed`."""
        if self._state is REPLAYING:
            end_lsn = self._spooled.replay_piece()
            if end_lsn != 0:
                self._transaction_ended(end_lsn)
        elif not self.is_paused:
            self._take_frames()

    def _take_frames(self) -> None:
        """Take frames until none is left, the stream is paused, or a spooled transaction is to be handed on."""
        frames = self._frames
        count: i64 = len(frames)
        while self._at < count:
            frame = frames[self._at]
            self._at += 1
            if len(frame) <= XLOGDATA_HEADER_BYTES or frame[0] != XLOGDATA:
                self._keepalive(frame)
            else:
                kind: i64 = frame[XLOGDATA_HEADER_BYTES]
                if kind == messages.INSERT or kind == messages.UPDATE or kind == messages.DELETE:
                    changes = self._state.changes
                    if changes == HANDED_ON:
                        self._router.row(frame, kind, BODY_AT)
                    elif changes == SPOOLED:
                        self._spooled.append_row(frame)
                    elif changes == REFUSED:
                        raise self._unexpected(frame)
                    elif self._sent_again.expects_no_rows and self._router.is_event(frame, kind, BODY_AT):
                        self._sent_again.check_rows()
                    continue
                self._dispatch(frame)
            if self.is_paused or self._state is REPLAYING:
                return
        self._frames = []
        self._at = 0

    # Messages

    def _dispatch(self, frame: bytes) -> None:
        """Any message but a row's change, to its one handler."""
        state = self._state
        message = self._decoder.decode(frame, XLOGDATA_HEADER_BYTES, state is IN_STREAM_BLOCK)
        kind: i64 = frame[XLOGDATA_HEADER_BYTES]
        if isinstance(message, messages.LogicalMessage) and not message.transactional:
            kind = NONTRANSACTIONAL_MESSAGE
        if not state.allows(kind):
            raise self._unexpected(frame)
        if state is BETWEEN_TRANSACTIONS and self._pause_lsn != 0 and _committed_at(message) >= self._pause_lsn:
            self._at -= 1  # the message is read again when the pause has ended
            self.is_paused = True
        elif isinstance(message, messages.Begin):
            self._begin(message, self._decoder.position(frame))
        elif isinstance(message, messages.Commit):
            self._commit(message)
        elif isinstance(message, messages.Relation):
            if state is not IN_STREAM_BLOCK:
                self._router.expect(message, self._frames, self._at)
            self._spooled.announce(message, frame)
        elif isinstance(message, messages.Type):
            self._router.name_type(message)
        elif state is BETWEEN_TRANSACTIONS:
            self._outside_transaction(message, frame)
        elif isinstance(message, messages.StreamStop):
            self._spooled.stop_stream_block()
            self._state = BETWEEN_TRANSACTIONS
        elif isinstance(message, messages.Prepare):
            self._spooled.stop_prepare_block(message)
            self._state = BETWEEN_TRANSACTIONS
        elif state.changes == HANDED_ON:
            self._router.other(message, self._decoder.position(frame))
        elif state.changes == SPOOLED:
            self._spooled.append(message, frame)
        elif self._sent_again.expects_no_rows and self._router.is_other_event(message):
            self._sent_again.check_rows()

    def _outside_transaction(self, message: messages.Message, frame: bytes) -> None:
        """The messages that come between transactions only; Begin is the most frequent, and `_dispatch` has it."""
        if isinstance(message, messages.LogicalMessage):
            self._nontransactional_message(message, read_i64_be(frame, 17))
        elif isinstance(message, messages.StreamStart):
            self._spooled.start_stream_block(message.xid)
            self._state = IN_STREAM_BLOCK
        elif isinstance(message, messages.StreamAbort):
            self._spooled.abort_stream(message)
        elif isinstance(message, messages.StreamCommit):
            self._commit_spooled(self._spooled.commit_stream(message), message.end_lsn)
        elif isinstance(message, messages.StreamPrepare):
            self._spooled.prepare_stream(message)
        elif isinstance(message, messages.BeginPrepare):
            self._spooled.start_prepare_block(message.xid)
            self._state = IN_PREPARE_BLOCK
        elif isinstance(message, messages.CommitPrepared):
            self._commit_spooled(self._spooled.commit_prepared(message), message.end_lsn)
        elif isinstance(message, messages.RollbackPrepared):
            self._spooled.roll_back_prepared(message)
            self._transaction_ended(message.rollback_end_lsn)

    def _begin(self, message: messages.Begin, lsn: i64) -> None:
        self.commit_is_distant = message.final_lsn - lsn > DISTANT_BYTES
        if self._sent_again.has(message.final_lsn, message.commit_time + POSTGRES_EPOCH_US):
            self._state = IN_DURABLE_TRANSACTION
        else:
            self._state = IN_TRANSACTION
            self._router.begin(message.final_lsn)
            self._consumer.begin(message.final_lsn, message.commit_time + POSTGRES_EPOCH_US, message.xid)

    def _commit(self, message: messages.Commit) -> None:
        if self._state is IN_TRANSACTION:
            self._consumer.commit(message.end_lsn)
        self._transaction_ended(message.end_lsn)

    def _commit_spooled(self, is_replayed: bool, end_lsn: i64) -> None:
        if is_replayed:
            self._state = REPLAYING
            self.commit_is_distant = True
        else:
            self._transaction_ended(end_lsn)

    def _nontransactional_message(self, message: messages.LogicalMessage, sent_us: i64) -> None:
        """Publish a message outside of any transaction like a transaction that commits where the message stands."""
        commit_lsn = message.lsn - 1  # its LSN is the end of its record, where the next record may be a commit
        if not self._sent_again.has(commit_lsn, sent_us + POSTGRES_EPOCH_US):
            self._consumer.begin(commit_lsn, sent_us + POSTGRES_EPOCH_US, 0)
            self._consumer.message(message.prefix, message.content, False, message.lsn)
            self._consumer.commit(message.lsn)
        else:
            self._sent_again.check_rows()
        self._transaction_ended(message.lsn)

    def _transaction_ended(self, end_lsn: i64) -> None:
        self._state = BETWEEN_TRANSACTIONS
        self.received_lsn = end_lsn
        self.server_lsn = max(self.server_lsn, end_lsn)

    # Keepalives, and messages that must not come

    def _keepalive(self, frame: bytes) -> None:
        if len(frame) == 0 or frame[0] != KEEPALIVE:
            raise DecodeError(
                f"a CopyData message of {len(frame)} bytes is neither XLogData nor a keepalive",
                "Check that nothing between cdcd and PostgreSQL changes the stream, and report this",
            )
        keepalive = decode_keepalive(frame)
        wal_end: i64 = keepalive.wal_end + self._decoder.lsn_base
        self.server_lsn = max(self.server_lsn, wal_end)
        if not self._state.in_transaction:
            self.last_idle_keepalive_lsn = wal_end
            self.is_paused = self._pause_lsn != 0 and wal_end >= self._pause_lsn
            self._sent_again.on_position(wal_end)
        if keepalive.reply:
            self.reply_requested = True

    def _unexpected(self, frame: bytes) -> DecodeError:
        kind: i64 = frame[XLOGDATA_HEADER_BYTES]
        return DecodeError(
            f"{messages.NAMES[kind]} ({len(frame)} bytes, LSN {format_lsn(read_i64_be(frame, 1))}) must not come "
            f"{self._state.where}",
            BUG_HINT,
        )


def _committed_at(message: messages.Message) -> i64:
    """The commit LSN of the transaction that the message would hand on; -1 if it hands on nothing."""
    if isinstance(message, messages.Begin):
        return message.final_lsn
    if isinstance(message, (messages.StreamCommit, messages.CommitPrepared)):
        return message.commit_lsn
    # A logical message's LSN is the end of its record: see `Assembler._nontransactional_message`.
    return message.lsn - 1 if isinstance(message, messages.LogicalMessage) else -1
