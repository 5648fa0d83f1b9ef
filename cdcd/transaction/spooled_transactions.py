"""Keeps the transactions that may yet be rolled back, takes their ends, and replays those that commit.

Before: `assembler` passes on what comes in blocks, and the messages that end such a transaction.
After: `spool` keeps the frames. Once the commit has come, `change_router` hands them on to the consumer, a piece at a
time. `progress.ack_tracker` is told of each PreparedOutcome.
Source: `apply_handle_stream_*` and `apply_handle_*_prepared*` in PostgreSQL's worker.c; `maybe_send_schema` in
pgoutput.c.

Relation messages need the most care, because the server sends each only once:

- A Relation message in a stream block is for that transaction alone. Once the transaction has committed, it is for the
  session, too: the server does not send it again.
- A Relation message in a prepare block is for the session at once.
- Every Relation message counts from its arrival: of two for the same table, the later one holds for the session, though
  the transaction that brought the earlier one may commit later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from cdcd.errors import BUG_HINT, DecodeError, GapError, StreamingUnsupported
from cdcd.lsn import format_lsn
from cdcd.pgoutput import messages
from cdcd.pgoutput.cursor import short
from cdcd.pgoutput.decoder import Decoder
from cdcd.source.stream_messages import POSTGRES_EPOCH_US, XLOGDATA_HEADER_BYTES
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.change_router import BODY_AT, STREAMED_BODY_AT, ChangeRouter
from cdcd.transaction.relations import Relations
from cdcd.transaction.sent_again import SentAgain
from cdcd.transaction.spool import Spool, SpooledTransaction
from cdcd.transaction.spooled_masks import SpooledMasks
from cdcd.transaction.spooled_relations import SpooledRelation

_XID_BYTES: Final = 4


@final
class PreparedOutcome:
    """The outcome of a prepared transaction, which holds back the ack: prepared, committed or rolled back."""

    def __init__(self, kind: i64, name: str, lsn: i64) -> None:
        self.kind: i64 = kind
        """PREPARE, COMMIT_PREPARED or ROLLBACK_PREPARED of `pgoutput.messages`."""
        self.name = name
        """The transaction's xid and gid: another transaction may use the gid before this one's rows are durable."""
        self.lsn: i64 = lsn
        """The prepare LSN, or the `end_lsn` of the commit or rollback."""


@final
class SpoolReplay:
    """A spooled transaction that is being handed on."""

    def __init__(self, spooled: SpooledTransaction, router: ChangeRouter, end_lsn: i64, prepared_name: str) -> None:
        """`prepared_name` is empty for a transaction that was not prepared."""
        self.spooled = spooled
        self.router = router
        self.end_lsn: i64 = end_lsn
        self.prepared_name = prepared_name
        self.pieces: Iterator[list[bytes]] = spooled.frames()
        self.frames: list[bytes] = []
        self.at: i64 = 0
        """The next frame among `frames`."""
        self.relations = spooled.relations()
        self.opened: i64 = 0
        """How many of `relations` have come."""


@final
class SpooledTransactions:
    """The transactions of one stream that are in progress or prepared. At most one block and one replay are open."""

    def __init__(
        self,
        decoder: Decoder,
        relations: Relations,
        consumer: ChangeConsumer,
        spool: Spool,
        session: ChangeRouter,
        sent_again: SentAgain,
        replay_bytes: i64,
    ) -> None:
        """`session`: the relations that are in force outside of spooled transactions.

        A transaction that Kafka has, by `sent_again`, is not handed on. A replay hands on about `replay_bytes` at once.
        """
        self._decoder = decoder
        self._relations = relations
        self._consumer = consumer
        self._spool = spool
        self._session = session
        self._sent_again = sent_again
        self._replay_bytes: i64 = replay_bytes
        self._streams: dict[int, SpooledTransaction] = {}
        """Transactions in progress, by xid."""
        self._prepared: dict[str, SpooledTransaction] = {}
        """Prepared transactions, by name."""
        self._block: SpooledTransaction | None = None
        """The transaction whose stream block or prepare block is open."""
        self._replay: SpoolReplay | None = None
        self._masks = SpooledMasks(relations.rules, session)
        self._arrived = 0
        """How many Relation messages have come."""
        self._arrivals: dict[int, int] = {}
        """The number of the one that holds for the session, by OID."""
        self.outcomes: list[PreparedOutcome] = []
        """The outcomes of prepared transactions; the reader empties the list."""

    # Blocks

    def start_stream_block(self, xid: i64) -> None:
        """Stream Start: the changes that follow belong to the transaction `xid`. Raises as `append_change`."""
        spooled = self._streams.get(xid)
        if spooled is None:
            spooled = self._streams[xid] = self._spool.open(True, xid)
        self._block = spooled
        self._masks.forget()

    def stop_stream_block(self) -> None:
        """Stream Stop."""
        self._block = None

    def start_prepare_block(self, xid: i64) -> None:
        """Begin Prepare: the changes that follow belong to the transaction `xid`, which comes in one block.

        Raises as `append_change`.
        """
        self._block = self._spool.open(False, xid)
        self._block.rely_on(self._session.known())
        self._masks.forget()

    def stop_prepare_block(self, message: messages.Prepare) -> None:
        """Prepare: the transaction is complete, and waits for Commit Prepared or Rollback Prepared."""
        block = self._block
        assert block is not None, "no block is open"
        self._block = None
        self._prepare(_prepared_name(message.gid, message.xid), block, message.prepare_lsn)

    def append_row(self, frame: bytes) -> None:
        """Spool an Insert, Update or Delete of the open block, with its values masked. Raises as `append_change`."""
        block = self._block
        assert block is not None, "no block is open"
        self.append_change(self._masks.frame(block, frame))

    def append_change(self, frame: bytes) -> None:
        """Spool a change, or a Relation, of the open block as it is.

        Raises SpoolFull if there is no room, DecodeError (the server's fault) if the frame is too short.
        """
        block = self._block
        assert block is not None, "no block is open"
        subxid = block.top_xid
        if block.streamed:
            if len(frame) < STREAMED_BODY_AT:
                kind: i64 = frame[XLOGDATA_HEADER_BYTES]
                raise short(messages.NAMES.get(kind, ""), "xid", 1, _XID_BYTES, len(frame) - BODY_AT)
            subxid = i64(read_i32_be(frame, BODY_AT)) & 0xFFFFFFFF
        block.append(subxid, frame)

    def append(self, message: messages.Message, frame: bytes) -> None:
        """Spool a Truncate, Origin or Message of the open block. Raises as `append_change`."""
        block = self._block
        assert block is not None, "no block is open"
        if isinstance(message, messages.LogicalMessage) and block.streamed:
            block.append_message(frame)
        elif isinstance(message, messages.Truncate):
            self.append_change(frame)
        else:
            block.append(block.top_xid, frame)

    def announce(self, message: messages.Relation, frame: bytes) -> None:
        """Take a Relation message, inside a block or outside. Raises as `append_change`."""
        self._arrived += 1
        self._masks.forget()
        block = self._block
        if block is not None:
            body = frame[STREAMED_BODY_AT if block.streamed else BODY_AT :]
            if block.announce(self._arrived, message, body):
                self.append_change(frame)
            if block.streamed:
                return
        self._open_for_session(message, self._arrived)

    # Ends

    def abort_stream(self, message: messages.StreamAbort) -> None:
        """Stream Abort: drop a transaction, or the part of it that one subtransaction wrote."""
        spooled = self._streams.get(message.xid)
        if spooled is None:
            return  # it was rolled back before it had sent a block
        if message.subxid == message.xid:
            del self._streams[message.xid]
            spooled.close()
        else:
            spooled.roll_back(message.subxid)

    def commit_stream(self, message: messages.StreamCommit) -> bool:
        """Stream Commit. Returns whether the transaction is to be replayed; if not, Kafka has it.

        Raises DecodeError (the server's fault) for an unknown transaction, StreamingUnsupported if it cannot be
        replayed.
        """
        spooled = self._take_stream("Stream Commit", message.xid)
        return self._commit(spooled, message.commit_lsn, message.end_lsn, message.commit_time, message.xid, "")

    def prepare_stream(self, message: messages.StreamPrepare) -> None:
        """Stream Prepare: Prepare for what came in stream blocks. Raises DecodeError for an unknown transaction."""
        spooled = self._take_stream("Stream Prepare", message.xid)
        self._prepare(_prepared_name(message.gid, message.xid), spooled, message.prepare_lsn)

    def commit_prepared(self, message: messages.CommitPrepared) -> bool:
        """Commit Prepared. Returns whether the transaction is to be replayed; if not, Kafka has it.

        Raises GapError if Kafka does not have it and its rows never came, StreamingUnsupported if it cannot be
        replayed.
        """
        name = _prepared_name(message.gid, message.xid)
        spooled = self._prepared.pop(name, None)
        if spooled is not None:
            return self._commit(spooled, message.commit_lsn, message.end_lsn, message.commit_time, message.xid, name)
        if self._sent_again.has(message.commit_lsn, message.commit_time + POSTGRES_EPOCH_US):
            return False
        raise GapError(
            f"transaction {message.xid} was prepared before this slot's stream began, and committed at "
            f"{format_lsn(message.commit_lsn)}: its rows were never sent",
            "Take a new snapshot of its tables, then advance the slot past that position",
            code="prepared-before-slot",
        )

    def roll_back_prepared(self, message: messages.RollbackPrepared) -> None:
        """Rollback Prepared: drop the transaction; it may have been prepared before this stream began."""
        name = _prepared_name(message.gid, message.xid)
        spooled = self._prepared.pop(name, None)
        if spooled is not None:
            spooled.close()
        self.outcomes.append(PreparedOutcome(messages.ROLLBACK_PREPARED, name, message.rollback_end_lsn))

    # Replay

    def replay_piece(self) -> i64:
        """Hand on the next piece of the transaction that is replayed; the last one ends it.

        Returns the transaction's `end_lsn` if it has ended, else 0. Raises FatalError if the disk does not give the
        frames back.
        """
        replay = self._replay
        assert replay is not None, "nothing is replayed"
        router = replay.router
        streamed = replay.spooled.streamed
        oid_at = STREAMED_BODY_AT if streamed else BODY_AT
        left = self._replay_bytes
        while left > 0:
            if replay.at == len(replay.frames):
                piece = next(replay.pieces, None)
                if piece is None:
                    self._end_replay(replay)
                    return replay.end_lsn
                replay.frames = piece
                replay.at = 0
                continue
            frame = replay.frames[replay.at]
            replay.at += 1
            left -= len(frame)
            kind: i64 = frame[XLOGDATA_HEADER_BYTES]
            if kind == messages.INSERT or kind == messages.UPDATE or kind == messages.DELETE:
                router.row(frame, kind, oid_at)
            elif kind == messages.RELATION:
                router.open_relation(replay.relations[replay.opened].relation)
                replay.opened += 1
            else:
                message = self._decoder.decode(frame, XLOGDATA_HEADER_BYTES, streamed)
                router.other(message, self._decoder.position(frame))
        if replay.at == len(replay.frames):  # do not keep a large frame while its event is copied
            replay.frames = []
            replay.at = 0
        return 0

    def _commit(
        self, spooled: SpooledTransaction, commit_lsn: i64, end_lsn: i64, commit_time: i64, xid: i64, prepared_name: str
    ) -> bool:
        if self._sent_again.has(commit_lsn, commit_time + POSTGRES_EPOCH_US):
            if self._sent_again.expects_no_rows and self._has_events(spooled):
                self._sent_again.check_rows()
            for announced in spooled.relations():
                if self._is_latest(announced):
                    self._open_for_session(announced.relation, announced.arrival)
            spooled.close()
            self._note_commit(prepared_name, end_lsn)
            return False
        if spooled.has_ambiguous_message:
            raise StreamingUnsupported(
                f"the server does not tell whether a logical message of the streamed transaction {xid}, which commits "
                f"at {format_lsn(commit_lsn)}, was rolled back to a savepoint",
                "The server tells it when it sends the transaction after its commit: until Kafka has this transaction, "
                "large transactions wait on the server's own disk. If nobody needs logical messages, set "
                "source.messages = false",
                until_lsn=end_lsn,
                code="stream-restarted",
            )
        self._relations.expect([announced.relation.relation_oid for announced in spooled.relations()])
        self._consumer.begin(commit_lsn, commit_time + POSTGRES_EPOCH_US, xid)
        self._replay = SpoolReplay(spooled, self._router_of(spooled), end_lsn, prepared_name)
        return True

    def _router_of(self, spooled: SpooledTransaction) -> ChangeRouter:
        """Knows the relations that are in force before the transaction's first frame."""
        known = dict(spooled.prior_relations)
        return ChangeRouter(self._relations, self._consumer, known, self._decoder.lsn_base)

    def _has_events(self, spooled: SpooledTransaction) -> bool:
        """Whether there is an event among the frames. Reads them all."""
        router, relations = self._router_of(spooled), iter(spooled.relations())
        oid_at = STREAMED_BODY_AT if spooled.streamed else BODY_AT
        for frames in spooled.frames():
            for frame in frames:
                kind: i64 = frame[XLOGDATA_HEADER_BYTES]
                if kind == messages.RELATION:
                    router.open_relation(next(relations).relation)
                elif kind == messages.INSERT or kind == messages.UPDATE or kind == messages.DELETE:
                    if router.is_event(frame, kind, oid_at):
                        return True
                elif router.is_other_event(self._decoder.decode(frame, XLOGDATA_HEADER_BYTES, spooled.streamed)):
                    return True
        return False

    def _end_replay(self, replay: SpoolReplay) -> None:
        opened = replay.router.known()
        for announced in replay.relations:
            # A prepared transaction's Relation message may hold already. The replay has looked its types up since.
            if self._is_latest(announced):
                oid = announced.relation.relation_oid
                self._session.put(announced.relation, opened[oid])
                self._arrivals[oid] = announced.arrival
        replay.spooled.close()
        self._replay = None
        self._consumer.commit(replay.end_lsn)
        self._note_commit(replay.prepared_name, replay.end_lsn)

    def _note_commit(self, prepared_name: str, end_lsn: i64) -> None:
        if prepared_name:
            self.outcomes.append(PreparedOutcome(messages.COMMIT_PREPARED, prepared_name, end_lsn))

    def _prepare(self, name: str, spooled: SpooledTransaction, prepare_lsn: i64) -> None:
        self._prepared[name] = spooled
        self.outcomes.append(PreparedOutcome(messages.PREPARE, name, prepare_lsn))

    def _open_for_session(self, message: messages.Relation, arrival: int) -> None:
        self._session.open_relation(message)
        self._arrivals[message.relation_oid] = arrival

    def _is_latest(self, announced: SpooledRelation) -> bool:
        return announced.arrival >= self._arrivals.get(announced.relation.relation_oid, 0)

    def _take_stream(self, message: str, xid: i64) -> SpooledTransaction:
        spooled = self._streams.pop(xid, None)
        if spooled is None:
            raise DecodeError(f"{message} of transaction {xid}, for which no Stream Start came", BUG_HINT)
        return spooled


def _prepared_name(gid: str, xid: i64) -> str:
    """A prepared transaction's name: another may use the gid before this one's rows are durable."""
    return f"{xid} {gid}"
