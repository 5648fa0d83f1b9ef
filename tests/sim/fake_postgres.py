"""PostgreSQL in memory: a WAL, one logical slot, and a walsender that decodes it as PostgreSQL does.

Before: `sql` writes records as its sessions would. After: `replica` reads frames off a `Link`, by the daemon's own
code. Source: decode.c, reorderbuffer.c, snapbuild.c, walsender.c, slot.c and pgoutput.c of PostgreSQL 14 to 18.

What decides about exactly once, and is kept here to the letter:

- A transaction is sent if its commit record starts at or behind the position where decoding starts, which is the
  slot's confirmed_flush; so is a prepared one, by its PREPARE. A COMMIT PREPARED whose PREPARE lies before it comes
  alone.
- Blocks of transactions in progress are sent only while records behind that position are read; the first block has all
  from the transaction's beginning.
- A keepalive says how far the server has read, which inside a transaction is still before its commit record.
- confirmed_flush is on disk as of the last checkpoint: after a crash it may be back there.
- Open transactions vanish in a crash without a record; the walsender notices at the next running-xacts record.
- In blocks, changes have the xid of their subtransaction, but messages that of the top level; the origin comes once.
- Relation messages come once a connection, and anew after DDL, in blocks per transaction, and after every Stream Abort.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from cdcd.errors import PostgresUnavailable
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.pgoutput.tuples import ColumnValue
from cdcd.source.server_errors import SlotActive
from cdcd.source.stream_messages import (
    XLOGDATA,
    XLOGDATA_HEADER_BYTES,
    PrimaryKeepalive,
    XLogData,
    decode_status_update,
)

FIRST_LSN = 0x1_0000_0028
TIMEOUT_S = 6.0
"""wal_sender_timeout."""


@dataclass(frozen=True)
class Table:
    """One version of a table, as DDL left it."""

    oid: int
    schema: str
    name: str
    identity: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, int], ...]
    """Name and type OID."""
    chosen: tuple[str, ...] = ()
    """The key of its events by the settings; empty: they have none for it."""

    @property
    def key_of_events(self) -> tuple[str, ...]:
        return self.chosen or self.key

    def message(self, xid: int) -> m.Relation:
        flagged = {"f": [name for name, _ in self.columns], "n": ()}.get(self.identity, self.key)
        columns = tuple(m.Column(name in flagged, name, oid, -1) for name, oid in self.columns)
        return m.Relation(xid, self.oid, self.schema, self.name, self.identity, columns)


@dataclass
class Change:
    """What one command logged: an Insert, Update or Delete (I, U, D), a Truncate (T) or a Message (M)."""

    kind: str
    tables: tuple[Table, ...] = ()
    old_kind: int = 0
    old: tuple[ColumnValue, ...] | None = None
    new: tuple[ColumnValue, ...] | None = None
    prefix: str = ""
    content: bytes = b""

    def message(self, xid: int, lsn: int) -> m.Message:
        """As pgoutput writes it; `xid` 0 outside of blocks."""
        oid = self.tables[0].oid if self.tables else 0
        old = None if self.old is None else tuple_of(self.old)
        if self.kind == "I":
            assert self.new is not None
            return m.Insert(xid, oid, tuple_of(self.new))
        if self.kind == "U":
            assert self.new is not None
            return m.Update(xid, oid, self.old_kind, old, tuple_of(self.new))
        if self.kind == "D":
            assert old is not None
            return m.Delete(xid, oid, self.old_kind, old)
        if self.kind == "T":
            return m.Truncate(xid, tuple(table.oid for table in self.tables), False, False)
        return m.LogicalMessage(xid, True, lsn, self.prefix, self.content)


@dataclass
class Record:
    """A WAL record from `lsn` to `end`, exclusive. `top` is the transaction, `xid` the subtransaction it is of."""

    lsn: int
    end: int
    kind: str
    top: int = 0
    xid: int = 0
    change: Change | None = None
    subxids: tuple[int, ...] = ()
    gid: str = ""
    origin: str = ""
    time_us: int = 0
    """Since 2000-01-01 UTC."""


@dataclass
class Slot:
    """A logical slot: what is in memory, and what a crash leaves."""

    confirmed: int
    saved: int
    two_phase: bool
    created: int
    reader: Walsender | None = None


@dataclass(frozen=True)
class ServerCopy:
    """A copy of a server's data directory."""

    records: int
    """How many WAL records it has."""
    end: int
    confirmed: int
    xid: int


class Link:
    """One connection, with what is under way in both directions. `lost` and `gone` tell how each end sees it."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.frames: deque[bytes] = deque()
        self.statuses: deque[bytes] = deque()
        self.lost: Exception | None = None
        """What the client finds once it has read the frames that arrived."""
        self.gone = False
        """The server knows that the client is gone."""
        self.silent = False
        """Half open: the client does not hear of it yet."""

    def cut(self, error: Exception, rng: Random) -> None:
        """Break for both ends; of what is under way some arrives."""
        for queue in (self.frames, self.statuses):
            for _ in range(rng.randint(0, len(queue))):
                queue.pop()
        self.lost = self.lost or error
        self.gone = True


class Server:
    """One cluster with one publication of all its tables, and at most one slot."""

    def __init__(self, rng: Random, version: int, tables: list[Table], now: float) -> None:
        self.rng = rng
        self.version = version
        self.tables = {table.oid: table for table in tables}
        self.wal: list[Record] = []
        self.end = FIRST_LSN
        self.slot: Slot | None = None
        self.up = True
        self.now = now
        self.system_id = "7000000000000000001"
        self.timeline = 1
        self.lsn_base = 0
        """The LSNs in here are those that Kafka has. Clients see them without it."""
        self.synchronous = False
        self.block_chance = 0.0
        """How often a change makes the walsender send a block, where it may."""
        self.nasty = False
        """Keepalives inside a transaction name positions behind it: no server does, but the protocol would allow it."""
        self.running: set[int] = set()
        """Transactions that have written; those that are prepared, too."""
        self.crashes = 0
        self._synchronous: dict[int, int] = {}
        """Transactions that have committed, and where: their sessions wait until that is confirmed."""
        self._xid = 700

    def next_xid(self) -> int:
        self._xid += 1
        return self._xid

    @property
    def time_us(self) -> int:
        return 700_000_000_000_000 + int(self.now * 1e6)

    def log(self, kind: str, **fields: object) -> Record:
        """Append a record. Some are followed by a page header, where the next one does not start at their end."""
        lsn = self.end + (24 if self.rng.random() < 0.1 else 0)
        record = Record(lsn, lsn + 8 * self.rng.randint(3, 12), kind, time_us=self.time_us, **fields)  # type: ignore[arg-type]
        self.wal.append(record)
        self.end = record.end
        if kind in {"commit", "abort", "commit prepared", "rollback prepared"}:
            self.running.discard(record.top)
            if self.synchronous and kind.startswith("commit"):
                self._synchronous[record.top] = record.end
        elif kind == "running":
            record.subxids = tuple(sorted(self.running))
        elif record.top:
            self.running.add(record.top)
        return record

    def waiting(self) -> set[int]:
        """Transactions whose COMMIT waits for the synchronous standby: for others they have not ended."""
        confirmed = self.end if self.slot is None else self.slot.confirmed
        self._synchronous = {top: end for top, end in self._synchronous.items() if end > confirmed}
        return set(self._synchronous)

    def oldest_xid(self) -> int:
        """What a snapshot has as xmin."""
        return min(self.running, default=self._xid + 1)

    # The slot

    def create_slot(self, two_phase: bool) -> int:
        assert self.slot is None
        record = self.log("running")
        self.slot = Slot(record.end, record.end, two_phase, record.end)
        return record.end

    def start(self, link: Link, options: dict[str, str], now: float) -> Walsender:
        """START_REPLICATION at 0/0. Raises SlotActive or PostgresUnavailable."""
        slot = self.slot
        if not self.up or link.lost is not None or slot is None:
            raise PostgresUnavailable("the server is not there", code="postgres-interrupted")
        if slot.reader is not None:
            raise SlotActive("s", id(slot.reader))
        slot.reader = Walsender(self, slot, link, options, now)
        return slot.reader

    def checkpoint(self) -> None:
        if self.slot is not None:
            self.slot.saved = self.slot.confirmed

    def crash(self, prepared: set[int]) -> None:
        """Everything that is not on disk is gone; of transactions in progress, only those that are prepared stay."""
        self.up = False
        self.crashes += 1
        self.running &= prepared
        self._synchronous.clear()
        if self.slot is not None:
            if self.slot.reader is not None:
                self.slot.reader.end(PostgresUnavailable("the server crashed", code="postgres-interrupted"))
            self.slot.confirmed = self.slot.saved

    def restart(self) -> None:
        self.up = True
        self.log("running")

    def copy(self) -> ServerCopy:
        """What a copy of the data directory holds: of the slot, what is on disk."""
        assert self.slot is not None
        return ServerCopy(len(self.wal), self.end, self.slot.saved, self._xid)

    def put_back(self, copy: ServerCopy) -> int:
        """Put the data directory back, without a new timeline, and start; returns where the WAL ended."""
        assert self.slot is not None
        assert self.slot.reader is None
        del self.wal[copy.records :]
        self.end = copy.end
        self.slot.confirmed = self.slot.saved = copy.confirmed
        self._xid = copy.xid
        self.running.clear()
        self._synchronous.clear()
        self.crashes += 1
        self.restart()
        return copy.end

    def become(self, system_id: str, lsn: int, lsn_base: int) -> None:
        """Be another server, with the same tables: its WAL ends at `lsn`, and has nothing of the old one's."""
        assert self.slot is None or self.slot.reader is None
        assert not self.running
        assert lsn + lsn_base >= self.end
        self.system_id, self.lsn_base = system_id, lsn_base
        self.wal.clear()
        self.end = lsn + lsn_base
        self.slot = None
        self._synchronous.clear()
        self._xid = 700
        self.crashes += 1


@dataclass
class _Cached:
    """pgoutput's RelationSyncEntry."""

    table: Table
    sent: bool = False
    streamed: set[int] = field(default_factory=set)


@dataclass
class _Gathered:
    """reorderbuffer's ReorderBufferTXN."""

    changes: list[Record] = field(default_factory=list)
    first_lsn: int = 0
    blocks: int = 0
    streamed: list[int] = field(default_factory=list)
    """Subtransactions of which the client has changes."""
    prepared: Record | None = None
    replayed: bool = False
    """Its Prepare was sent."""


class Walsender:
    """The process that reads the WAL for one connection."""

    def __init__(self, server: Server, slot: Slot, link: Link, options: dict[str, str], now: float) -> None:
        self._server = server
        self._slot = slot
        self.link = link
        self._start = slot.confirmed
        proto = int(options["proto_version"])
        self._parallel = options.get("streaming") == "parallel"
        self._streaming = options.get("streaming", "off") != "off"
        self._two_phase = options.get("two_phase") == "on"
        assert options["binary"] == "true"
        assert not self._streaming or proto >= 2
        assert not self._two_phase or proto >= 3
        assert not self._parallel or proto >= 4
        self._cache: dict[int, _Cached] = {}
        self._gathered: dict[int, _Gathered] = {}
        self._at = 0
        self._before = self._sent = slot.confirmed
        """sentPtr: the end of the last record that was read; and of the one before."""
        self._out: deque[bytes] = deque()
        self._heard_at = now
        self._pinged = False
        self._told_caught_up = 0

    # The process

    @property
    def runnable(self) -> bool:
        link = self.link
        if link.gone or link.statuses:
            return True
        room = len(link.frames) < link.room
        return room and bool(self._out or self._at < len(self._server.wal) or self._told_caught_up != self._server.end)

    @property
    def deadline(self) -> float:
        """When its patience, or half of it, is over."""
        return self._heard_at + (TIMEOUT_S if self._pinged else TIMEOUT_S / 2)

    def turn(self) -> None:
        """Take what the client says; read one record, or write on what the last one gave."""
        link, server = self.link, self._server
        while link.statuses:
            self._reply(link.statuses.popleft())
        if link.gone:
            self.end(PostgresUnavailable("the connection was reset", code="postgres-interrupted"))
            return
        if server.now >= self._heard_at + TIMEOUT_S:
            self.end(
                PostgresUnavailable(
                    "terminating walsender process due to replication timeout", code="postgres-interrupted"
                )
            )
            return
        if server.now >= self._heard_at + TIMEOUT_S / 2 and not self._pinged:
            self._pinged = True
            self._say_at_once(reply=True)
        while self._out and len(link.frames) < link.room:
            link.frames.append(self._out.popleft())
        if self._out or len(link.frames) >= link.room:
            return
        while self._at < len(server.wal) and (record := server.wal[self._at]).lsn < self._start:
            assert not list(self._decode(record)), "sent what the client has"
            self._at += 1
            self._sent = record.end
        if self._at < len(server.wal):
            record = server.wal[self._at]
            self._at += 1
            inside = False
            for frame in self._decode(record):
                self._out.append(frame)
                if frame[0] == XLOGDATA:
                    inside = frame[XLOGDATA_HEADER_BYTES] in b"Bb" or (
                        inside and frame[XLOGDATA_HEADER_BYTES] not in b"CP"
                    )
                if server.rng.random() < 0.05:
                    ahead = 4096 if server.nasty and inside else 0
                    self._out.append(self._keepalive(reply=server.rng.random() < 0.3, ahead=ahead))
            self._before, self._sent = self._sent, record.end
            if server.rng.random() < 0.1:
                self._out.append(self._keepalive(reply=server.rng.random() < 0.3))
        elif self._told_caught_up != server.end:
            self._told_caught_up = server.end
            self._out.append(self._keepalive(reply=False))

    def end(self, error: Exception) -> None:
        """The process ends, and lets the slot go."""
        if not self.link.silent:
            self.link.lost = self.link.lost or error
        self.link.gone = True
        if self._slot.reader is self:
            self._slot.reader = None

    def _reply(self, frame: bytes) -> None:
        status = decode_status_update(frame)
        self._heard_at = self._server.now
        self._pinged = False
        if status.flushed:
            flushed = status.flushed + self._server.lsn_base
            assert flushed >= self._slot.confirmed, "the slot was moved back"
            self._slot.confirmed = flushed
        if status.reply:
            self._say_at_once(reply=False)

    def _say_at_once(self, *, reply: bool) -> None:
        """Send a keepalive that overtakes what waits for room: so it must not tell of the record that this is of."""
        sent = self._before if self._out else self._sent
        self.link.frames.append(self._keepalive_of(sent, reply=reply))

    def _keepalive(self, *, reply: bool, ahead: int = 0) -> bytes:
        return self._keepalive_of(self._sent + ahead, reply=reply)

    def _keepalive_of(self, lsn: int, *, reply: bool) -> bytes:
        return PrimaryKeepalive(lsn - self._server.lsn_base, self._server.time_us, reply).encode()

    # Decoding

    def _frame(self, message: m.Message, lsn: int) -> bytes:
        if base := self._server.lsn_base:
            values = {name: getattr(message, name) for name in type(message).__match_args__}
            own = [name for name in values if name.endswith("lsn") and name != "origin_lsn" and values[name]]
            message = type(message)(**values | {name: values[name] - base for name in own})
            lsn -= base if lsn else 0
        return XLogData(lsn, lsn, self._server.time_us, encode(message)).encode()

    def _decode(self, record: Record) -> Iterator[bytes]:
        wanted = record.lsn >= self._start
        if record.kind == "change":
            gathered = self._gathered.setdefault(record.top, _Gathered(first_lsn=record.lsn))
            gathered.changes.append(record)
            if self._streaming and wanted and self._server.rng.random() < self._server.block_chance:
                yield from self._block(self._server.rng.choice(self._in_progress()))
        elif record.kind == "message":
            assert record.change is not None
            if wanted:
                # The server names the record's end (`buf->endptr` in `logicalmsg_decode`).
                lone = m.LogicalMessage(0, False, record.end, record.change.prefix, record.change.content)
                yield self._frame(lone, record.end)
        elif record.kind == "subabort":
            yield from self._abort_subs(record)
        elif record.kind == "abort":
            yield from self._abort(record)
        elif record.kind == "commit":
            gathered = self._gathered.pop(record.top, _Gathered())
            if wanted:
                yield from self._commit(record, gathered)
        elif record.kind == "prepare":
            yield from self._prepare(record, wanted)
        elif record.kind == "commit prepared":
            yield from self._commit_prepared(record, wanted)
        elif record.kind == "rollback prepared":
            yield from self._rollback_prepared(record, wanted)
        elif record.kind == "running":
            yield from self._forget_crashed(record)

    def _in_progress(self) -> list[int]:
        return [top for top, gathered in self._gathered.items() if gathered.changes and gathered.prepared is None]

    def _block(self, top: int) -> Iterator[bytes]:
        gathered = self._gathered[top]
        yield self._frame(m.StreamStart(top, gathered.blocks == 0), gathered.changes[0].lsn)
        if not gathered.blocks:
            yield from self._origin(gathered.changes[0])
        gathered.blocks += 1
        for record in gathered.changes:
            yield from self._change(record, record.xid, top)
            if record.xid != top and record.xid not in gathered.streamed:
                gathered.streamed.append(record.xid)
        gathered.changes = []
        yield self._frame(m.StreamStop(), record.lsn)

    def _change(self, record: Record, xid: int, top: int) -> Iterator[bytes]:
        """A change, behind the Relation messages that it needs. `xid` and `top` are 0 outside of blocks."""
        assert record.change is not None
        for table in record.change.tables:
            entry = self._cache.setdefault(table.oid, _Cached(table))
            if entry.table != table or self._server.rng.random() < 0.02:
                entry = self._cache[table.oid] = _Cached(table)
            if top in entry.streamed if top else entry.sent:
                continue
            yield self._frame(table.message(xid), 0)
            if top:
                entry.streamed.add(top)
            else:
                entry.sent = True
        # A message in a block has the xid of the top level, wherever it was written.
        yield self._frame(record.change.message(top if record.change.kind == "M" else xid, record.lsn), record.lsn)

    def _origin(self, record: Record) -> Iterator[bytes]:
        if record.origin:
            yield self._frame(m.Origin(0, record.origin), record.lsn)

    def _commit(self, record: Record, gathered: _Gathered) -> Iterator[bytes]:
        top = record.top
        if gathered.blocks:
            if gathered.changes:
                self._gathered[top] = gathered
                yield from self._block(top)
                del self._gathered[top]
            yield self._frame(m.StreamCommit(top, record.lsn, record.end, record.time_us), record.end)
            self._forget_relations(top, committed=True)
        elif gathered.changes or self._server.version < 15:
            yield self._frame(m.Begin(record.lsn, record.time_us, top), gathered.first_lsn)
            yield from self._origin(record)
            for change in gathered.changes:
                yield from self._change(change, 0, 0)
            yield self._frame(m.Commit(record.lsn, record.end, record.time_us), record.end)
        elif self._server.synchronous:
            yield self._keepalive_of(record.end, reply=False)

    def _abort_subs(self, record: Record) -> Iterator[bytes]:
        """ROLLBACK TO: what is not streamed is dropped, what is streamed is named, its children first."""
        gathered = self._gathered.get(record.top)
        if gathered is None:
            return
        dead = (*record.subxids, record.xid)
        all_dead = set(dead)
        gathered.changes = [change for change in gathered.changes if change.xid not in all_dead]
        yield from self._name_dead(gathered, record, [xid for xid in dead if xid in gathered.streamed])

    def _abort(self, record: Record) -> Iterator[bytes]:
        gathered = self._gathered.pop(record.top, None)
        if gathered is not None and gathered.blocks:
            dead = [xid for xid in record.subxids if xid in gathered.streamed]
            yield from self._name_dead(gathered, record, [*dead, record.top])

    def _name_dead(self, gathered: _Gathered, record: Record, dead: list[int]) -> Iterator[bytes]:
        for xid in dead:
            if xid in gathered.streamed:
                gathered.streamed.remove(xid)
            lsn = 0 if record.kind == "running" else record.lsn
            where = (lsn, record.time_us) if self._parallel else (None, None)
            top = record.top
            yield self._frame(m.StreamAbort(top, xid, *where), record.lsn)
            self._forget_relations(top, committed=False)

    def _forget_crashed(self, record: Record) -> Iterator[bytes]:
        """ReorderBufferAbortOld: transactions older than any that runs."""
        oldest = min(record.subxids, default=1 << 62)
        for top in [top for top in self._gathered if top < oldest]:
            gathered = self._gathered.pop(top)
            if gathered.blocks:
                yield from self._name_dead(gathered, Record(record.lsn, record.end, "running", top), [top])

    def _forget_relations(self, top: int, *, committed: bool) -> None:
        for entry in self._cache.values():
            if top in entry.streamed:
                entry.streamed.remove(top)
                entry.sent = entry.sent or committed

    def _prepare(self, record: Record, wanted: bool) -> Iterator[bytes]:
        gathered = self._gathered.setdefault(record.top, _Gathered(first_lsn=record.lsn))
        if not self._two_phase:
            return  # it goes on as any other
        gathered.prepared = record
        if not wanted:
            return  # ReorderBufferSkipPrepare
        fields = (record.lsn, record.end, record.time_us, record.top, record.gid)
        if gathered.blocks:
            if gathered.changes:
                yield from self._block(record.top)
            yield self._frame(m.StreamPrepare(*fields), record.end)
        else:
            yield self._frame(m.BeginPrepare(*fields), gathered.first_lsn)
            yield from self._origin(record)
            for change in gathered.changes:
                yield from self._change(change, 0, 0)
            yield self._frame(m.Prepare(*fields), record.end)
        gathered.changes = []
        gathered.replayed = True

    def _commit_prepared(self, record: Record, wanted: bool) -> Iterator[bytes]:
        gathered = self._gathered.pop(record.top, _Gathered())
        if not wanted:
            return
        if not self._two_phase:
            yield from self._commit(record, gathered)
            return
        # Without its rows if the PREPARE lies before where we started: the client has said that it has them.
        yield self._frame(m.CommitPrepared(record.lsn, record.end, record.time_us, record.top, record.gid), record.end)

    def _rollback_prepared(self, record: Record, wanted: bool) -> Iterator[bytes]:
        gathered = self._gathered.pop(record.top, None)
        if gathered is None:
            return
        if not self._two_phase:
            if gathered.blocks:
                yield from self._name_dead(gathered, record, [*gathered.streamed, record.top])
            return
        if wanted and gathered.prepared is not None:
            prepared = gathered.prepared
            yield self._frame(
                m.RollbackPrepared(prepared.end, record.end, prepared.time_us, record.time_us, record.top, record.gid),
                record.end,
            )
