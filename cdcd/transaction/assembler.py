"""Follows the stream and hands every change of a committed transaction on, in commit order.

Before: `source.walsender` reads frames (CopyData payloads) in bursts.
After: a ChangeConsumer (`avro.envelope`) gets the changes; `progress.tracker` is told what was received.
Source: PostgreSQL, "Streaming Replication Protocol" (XLogData, Primary keepalive) and "Logical Replication Message
Flow"; `apply_dispatch` and `apply_handle_*` in worker.c.

Three ways a transaction comes:

- Begin ... Commit: it has committed; its changes are handed on as they come.
- In blocks, Stream Start ... Stream Stop, while it is in progress: `spool` keeps it until Stream Commit, or drops it,
  or what Stream Abort names of it.
- Begin Prepare ... Prepare (or in blocks, then Stream Prepare): `spool` keeps it until Commit Prepared or Rollback
  Prepared.

What was spooled is handed on when its commit comes, piece by piece: `feed` and `proceed` do so much at a time, and
while `is_busy` the rest of the frames waits. A transaction is skipped, whole, when its commit LSN is below what is
durable: the server sends again what it was not told of.

Hot path, a row: header and OID reads, one comparison (or a dict look-up where relations alternate), one virtual call.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from cdcd.errors import DecodeError, GapError, SpoolFull
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
from cdcd.transaction.change_consumer import ChangeConsumer, RelationChanges
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool, SpooledTransaction
from cdcd.transaction.spooled_transactions import PreparedOutcome, SpoolReplay, committed_at, prepared_name

NEAR_BYTES: Final[i64] = 4 << 20  # of WAL: what spans no more is sent within some 100 ms
REPLAY_BYTES: Final = 1 << 20
"""About how much of a spooled transaction `proceed` hands on at once."""

_XID_AT: Final[i64] = XLOGDATA_HEADER_BYTES + 1
_XID_BYTES: Final[i64] = 4

_BUG: Final = "This is a bug of the server or of cdcd; restart the daemon, and report it if it comes back"


@final
class Assembler:
    """The state of one stream; made anew whenever replication starts."""

    def __init__(
        self, decoder: Decoder, relations: Relations, consumer: ChangeConsumer, spool: Spool, durable_lsn: i64
    ) -> None:
        """`durable_lsn`: Kafka has all that committed below it, so it is skipped."""
        self._decoder = decoder
        self._relations = relations
        self._consumer = consumer
        self._spool = spool
        self._durable_lsn: i64 = durable_lsn
        self._changes: dict[int, RelationChanges] = {}
        self._arrivals: dict[int, int] = {}
        """When the Relation message came that `_changes` was made of, by OID: of two, the later one holds."""
        self._arrived = 0
        self._last_oid: i64 = 0
        self._last: RelationChanges | None = None
        self._frames: list[bytes] = []
        self._at: i64 = 0
        self._skipping = False
        self._streams: dict[int, SpooledTransaction] = {}
        self._prepared: dict[str, SpooledTransaction] = {}
        self._block: SpooledTransaction | None = None
        """Where changes go instead of to the consumer: the stream block, or the prepare, that is open."""
        self._block_xid: i64 = 0
        self._replay: SpoolReplay | None = None
        self.in_transaction = False
        """A Begin has come and its Commit has not; or a spooled transaction is being handed on."""
        self.commit_is_distant = False
        """The end of that transaction may be far."""
        self.received_lsn: i64 = 0
        """`end_lsn` of the last transaction that is whole; 0 before the first."""
        self.last_idle_keepalive_lsn: i64 = 0
        """Where the last keepalive between transactions stood: all that committed before it has been sent."""
        self.server_lsn: i64 = 0
        """Where the server's WAL ended when it last wrote to us."""
        self.reply_requested = False
        """A keepalive asked for an answer at once; whoever answers resets it."""
        self.prepared_outcomes: list[PreparedOutcome] = []
        """What became of prepared transactions; whoever reads it empties it."""
        self._barrier_lsn: i64 = 0
        self.is_paused = False
        """All that committed before the barrier is handed on, and nothing else."""

    @property
    def is_busy(self) -> bool:
        """Frames wait behind a spooled transaction: call `proceed`, and do not `feed` before it is done."""
        return self._replay is not None or self._at < len(self._frames)

    def pause_before(self, lsn: i64) -> None:
        """Set the barrier, the only one, before the first transaction that commits at `lsn` or later."""
        self._barrier_lsn = lsn
        self.is_paused = False

    def resume(self) -> None:
        """Lift the barrier."""
        self._barrier_lsn = 0
        self.is_paused = False

    def feed(self, frames: list[bytes]) -> None:
        """Take frames in the order in which they came; not while `is_busy`.

        Raises DecodeError (the server's fault) if they are malformed or break the protocol's order, SpoolFull if there
        is no room for a transaction in progress, or one cannot be told from what was sent of it while it was.
        """
        assert not self.is_busy, "frames would overtake those that wait"
        self._frames = frames
        self._at = 0
        self.proceed()

    def proceed(self) -> None:
        """Go on with the frames of the last `feed`, up to the next piece of a spooled transaction. Raises as `feed`."""
        replay = self._replay
        if replay is not None:
            self._hand_on(replay)
            return
        frames = self._frames
        count: i64 = len(frames)
        while self._at < count and not self.is_paused:
            frame = frames[self._at]
            self._at += 1
            if len(frame) <= XLOGDATA_HEADER_BYTES or frame[0] != XLOGDATA:
                self._keepalive(frame)
                continue
            kind: i64 = frame[XLOGDATA_HEADER_BYTES]
            if kind == messages.INSERT or kind == messages.UPDATE or kind == messages.DELETE:
                if self._block is not None:
                    self._spool_change(self._block, frame)
                elif not self.in_transaction:
                    raise self._unexpected(frame)
                elif not self._skipping:
                    self._change(frame, kind, _XID_AT, self._changes)
            else:
                self._dispatch(frame, kind)
                if self._replay is not None:
                    return
        if not self.is_paused:
            self._frames = []
            self._at = 0

    # One frame

    def _change(self, frame: bytes, kind: i64, at: i64, known: dict[int, RelationChanges]) -> None:
        """An Insert, Update or Delete whose relation's OID is at `at`."""
        if len(frame) <= at + _XID_BYTES:
            raise self._unexpected(frame)
        oid: i64 = i64(read_i32_be(frame, at))
        changes = self._last
        if changes is None or oid != self._last_oid:
            changes = self._relation(oid, known)
        lsn = read_i64_be(frame, 1)
        at += _XID_BYTES
        if kind == messages.INSERT:
            changes.insert(frame, at, lsn)
        elif kind == messages.UPDATE:
            changes.update(frame, at, lsn)
        else:
            changes.delete(frame, at, lsn)

    def _dispatch(self, frame: bytes, kind: i64) -> None:
        """Any message but a row's change."""
        in_stream = self._block is not None and self._block.streamed
        message = self._decoder.decode(frame, XLOGDATA_HEADER_BYTES, in_stream)
        if isinstance(message, messages.Relation):
            self._announce(message, frame)
        elif isinstance(message, messages.Type):
            self._relations.name_type(message)
        elif self._block is not None:
            self._in_block(self._block, message, frame)
        elif self.in_transaction:
            self._in_transaction(message, frame)
        elif self._barrier_lsn != 0 and committed_at(message) >= self._barrier_lsn:
            self._at -= 1  # it comes again
            self.is_paused = True
        else:
            self._outside_transaction(message, frame)

    def _outside_transaction(self, message: messages.Message, frame: bytes) -> None:
        """What may come between transactions."""
        if isinstance(message, messages.Begin):
            self.in_transaction = True
            self.commit_is_distant = message.final_lsn - read_i64_be(frame, 1) > NEAR_BYTES
            self._skipping = message.final_lsn < self._durable_lsn
            if not self._skipping:
                self._consumer.begin(message.final_lsn, message.commit_time + POSTGRES_EPOCH_US, message.xid)
        elif isinstance(message, messages.LogicalMessage) and not message.transactional:
            self._nontransactional_message(message, frame)
        elif isinstance(message, messages.StreamStart):
            spooled = self._streams.get(message.xid)
            if spooled is None:
                spooled = self._streams[message.xid] = self._spool.open(streamed=True)
            self._block = spooled
            self._block_xid = message.xid
        elif isinstance(message, messages.StreamAbort):
            self._abort(message)
        elif isinstance(message, messages.StreamCommit):
            spooled = self._streams.pop(message.xid, None)
            if spooled is None:
                raise self._unexpected(frame)
            self._start_replay(spooled, message.commit_lsn, message.end_lsn, message.commit_time, message.xid, "")
        elif isinstance(message, messages.BeginPrepare):
            self._block = self._spool.open(streamed=False)
            self._block.prior_relations = dict(self._changes)
            self._block_xid = message.xid
            self.in_transaction = True
        elif isinstance(message, messages.StreamPrepare):
            spooled = self._streams.pop(message.xid, None)
            if spooled is None:
                raise self._unexpected(frame)
            self._prepare(prepared_name(message.gid, message.xid), spooled, message.prepare_lsn)
        elif isinstance(message, messages.CommitPrepared):
            self._commit_prepared(message)
        elif isinstance(message, messages.RollbackPrepared):
            name = prepared_name(message.gid, message.xid)
            spooled = self._prepared.pop(name, None)
            if spooled is not None:
                spooled.close()
            self.prepared_outcomes.append(PreparedOutcome(messages.ROLLBACK_PREPARED, name, message.rollback_end_lsn))
            self._transaction_ended(message.rollback_end_lsn)
        else:
            raise self._unexpected(frame)

    def _in_transaction(self, message: messages.Message, frame: bytes) -> None:
        """What may come between Begin and Commit, beside rows."""
        if isinstance(message, messages.Commit):
            self.in_transaction = False
            self._transaction_ended(message.end_lsn)
            if not self._skipping:
                self._consumer.commit(message.end_lsn)
        elif self._skipping:
            return
        else:
            self._other_change(message, frame, self._changes)

    def _in_block(self, block: SpooledTransaction, message: messages.Message, frame: bytes) -> None:
        """What may come inside a stream block, or between Begin Prepare and Prepare, beside rows."""
        if isinstance(message, messages.StreamStop) and block.streamed:
            self._block = None
        elif isinstance(message, messages.Prepare) and not block.streamed:
            self._block = None
            self.in_transaction = False
            self._prepare(prepared_name(message.gid, message.xid), block, message.prepare_lsn)
        elif isinstance(message, messages.LogicalMessage) and block.streamed:
            block.append_message(frame)
        elif isinstance(message, (messages.Truncate, messages.LogicalMessage)):
            self._spool_change(block, frame)
        elif isinstance(message, messages.Origin):
            block.append(self._block_xid, frame)
        else:
            raise self._unexpected(frame)

    def _other_change(self, message: messages.Message, frame: bytes, known: dict[int, RelationChanges]) -> None:
        if isinstance(message, messages.Truncate):
            for oid in message.relation_oids:
                relation = self._relation(oid, known)
                relation.truncate(read_i64_be(frame, 1), message.cascade, message.restart_identity)
        elif isinstance(message, messages.Origin):
            self._consumer.origin(message.name)
        elif isinstance(message, messages.LogicalMessage) and message.transactional:
            self._consumer.message(message.prefix, message.content, True, message.lsn)
        else:
            raise self._unexpected(frame)

    def _nontransactional_message(self, message: messages.LogicalMessage, frame: bytes) -> None:
        """A message outside of any transaction is published like a transaction that commits where it stands."""
        commit_lsn = message.lsn - 1  # its LSN is the end of its record, where the next one may be a commit
        if commit_lsn >= self._durable_lsn:
            self._consumer.begin(commit_lsn, read_i64_be(frame, 17) + POSTGRES_EPOCH_US, 0)
            self._consumer.message(message.prefix, message.content, False, message.lsn)
            self._consumer.commit(message.lsn)
        self._transaction_ended(message.lsn)

    def _transaction_ended(self, end_lsn: i64) -> None:
        self.received_lsn = end_lsn
        self.server_lsn = max(self.server_lsn, end_lsn)

    # Relations

    def _announce(self, message: messages.Relation, frame: bytes) -> None:
        self._arrived += 1
        block = self._block
        if block is not None:
            if block.announce(self._arrived, message, frame[_XID_AT + _XID_BYTES if block.streamed else _XID_AT :]):
                self._spool_change(block, frame)
            if block.streamed:
                return  # it counts for this transaction alone until that has committed
        self._open_relation(message, self._arrived)

    def _open_relation(self, message: messages.Relation, arrival: int) -> None:
        self._changes[message.relation_oid] = self._consumer.open_relation(self._relations.resolve(message))
        self._arrivals[message.relation_oid] = arrival
        self._last = None

    def _relation(self, oid: i64, known: dict[int, RelationChanges]) -> RelationChanges:
        # The OID is unsigned on the wire; as read it may be negative, which is as good for comparing.
        changes = known.get(oid & 0xFFFFFFFF)
        if changes is None:
            raise DecodeError(
                f"a change of relation OID {oid & 0xFFFFFFFF} came before any Relation message announced it", _BUG
            )
        self._last_oid = oid
        self._last = changes
        return changes

    # Spooled transactions

    def _spool_change(self, block: SpooledTransaction, frame: bytes) -> None:
        subxid = self._block_xid
        if block.streamed:
            if len(frame) < _XID_AT + _XID_BYTES:
                raise self._unexpected(frame)
            subxid = i64(read_i32_be(frame, _XID_AT)) & 0xFFFFFFFF
        block.append(subxid, frame)

    def _abort(self, message: messages.StreamAbort) -> None:
        spooled = self._streams.get(message.xid)
        if spooled is None:
            return  # it ended before it had anything to say
        if message.subxid == message.xid:
            del self._streams[message.xid]
            spooled.close()
        else:
            spooled.roll_back(message.subxid)

    def _prepare(self, name: str, spooled: SpooledTransaction, prepare_lsn: i64) -> None:
        self._prepared[name] = spooled
        self.prepared_outcomes.append(PreparedOutcome(messages.PREPARE, name, prepare_lsn))

    def _commit_prepared(self, message: messages.CommitPrepared) -> None:
        name = prepared_name(message.gid, message.xid)
        spooled = self._prepared.pop(name, None)
        if spooled is not None:
            self._start_replay(spooled, message.commit_lsn, message.end_lsn, message.commit_time, message.xid, name)
        elif message.commit_lsn < self._durable_lsn:
            self._transaction_ended(message.end_lsn)
        else:
            raise GapError(
                f"transaction {message.xid} was prepared before this slot's stream began, and committed at "
                f"{format_lsn(message.commit_lsn)}: its rows were never sent",
                "Take a new snapshot of its tables, then advance the slot past that position",
            )

    def _start_replay(
        self, spooled: SpooledTransaction, commit_lsn: i64, end_lsn: i64, commit_time: i64, xid: i64, prepared: str
    ) -> None:
        if commit_lsn < self._durable_lsn:
            for announced in spooled.relations():  # the server will not announce them again
                if announced.arrival >= self._arrivals.get(announced.relation.relation_oid, 0):
                    self._open_relation(announced.relation, announced.arrival)
            spooled.close()
            self._transaction_ended(end_lsn)
            if prepared:
                self.prepared_outcomes.append(PreparedOutcome(messages.COMMIT_PREPARED, prepared, end_lsn))
            return
        if spooled.has_ambiguous_message:
            raise SpoolFull(
                f"the server does not tell whether a logical message of the streamed transaction {xid}, which commits "
                f"at {format_lsn(commit_lsn)}, was rolled back to a savepoint",
                "It will when it sends the transaction whole: until the daemon is started anew, large transactions "
                "wait on the server's own disk. If nobody reads the messages, set source.messages = false",
            )
        self._consumer.begin(commit_lsn, commit_time + POSTGRES_EPOCH_US, xid)
        self._replay = SpoolReplay(spooled, end_lsn, prepared)
        self._last = None
        self.in_transaction = self.commit_is_distant = True

    def _hand_on(self, replay: SpoolReplay) -> None:
        """Hand on the next piece of a spooled transaction."""
        left: i64 = REPLAY_BYTES
        oid_at = _XID_AT + _XID_BYTES if replay.spooled.streamed else _XID_AT
        while left > 0:
            if replay.at == len(replay.frames):
                piece = next(replay.pieces, None)
                if piece is None:
                    self._end_replay(replay)
                    return
                replay.frames = piece
                replay.at = 0
                continue
            frame = replay.frames[replay.at]
            replay.at += 1
            left -= len(frame)
            kind: i64 = frame[XLOGDATA_HEADER_BYTES]
            if kind == messages.INSERT or kind == messages.UPDATE or kind == messages.DELETE:
                self._change(frame, kind, oid_at, replay.changes)
            elif kind == messages.RELATION:
                relation = self._relations.resolve(replay.relations[replay.announced].relation)
                replay.announced += 1
                replay.changes[relation.oid] = self._consumer.open_relation(relation)
                self._last = None
            else:
                message = self._decoder.decode(frame, XLOGDATA_HEADER_BYTES, replay.spooled.streamed)
                self._other_change(message, frame, replay.changes)

    def _end_replay(self, replay: SpoolReplay) -> None:
        for announced in replay.relations:
            # If it is the very message that holds already (a prepared transaction's), then now its types are known.
            oid = announced.relation.relation_oid
            if announced.arrival >= self._arrivals.get(oid, 0):
                self._changes[oid] = replay.changes[oid]
                self._arrivals[oid] = announced.arrival
        replay.spooled.close()
        self._replay = None
        self._last = None
        self.in_transaction = False
        self._transaction_ended(replay.end_lsn)
        self._consumer.commit(replay.end_lsn)
        if replay.prepared:
            self.prepared_outcomes.append(PreparedOutcome(messages.COMMIT_PREPARED, replay.prepared, replay.end_lsn))

    # What is not a pgoutput message, and what must not be

    def _keepalive(self, frame: bytes) -> None:
        if len(frame) == 0 or frame[0] != KEEPALIVE:
            raise DecodeError(
                f"a CopyData message of {len(frame)} bytes is neither XLogData nor a keepalive",
                "Check that nothing between cdcd and PostgreSQL changes the stream, and report this",
            )
        keepalive = decode_keepalive(frame)
        self.server_lsn = max(self.server_lsn, keepalive.wal_end)
        if not self.in_transaction:
            self.last_idle_keepalive_lsn = keepalive.wal_end
            self.is_paused = self._barrier_lsn != 0 and keepalive.wal_end >= self._barrier_lsn
        if keepalive.reply:
            self.reply_requested = True

    def _unexpected(self, frame: bytes) -> DecodeError:
        where = "inside a transaction" if self.in_transaction else "between transactions"
        return DecodeError(
            f"message {chr(frame[XLOGDATA_HEADER_BYTES])!r} of {len(frame)} bytes at LSN "
            f"{format_lsn(read_i64_be(frame, 1))} must not come {where}",
            _BUG,
        )
