"""PostgreSQL's part of the snapshots: the exported snapshot at an LSN, the locks on its tables, and rows by COPY.

Before: `sql` has the sessions, `heaps` what tables held.
After: `cdcd.daemon.snapshot_coordinator`. The classes here play the export and `snapshot.reader` for it.

Three rules of the server decide, and hold here. It makes a snapshot when every transaction has ended that was writing
when it was asked; a transaction that waits for its synchronous standby has not ended. Others may alter or truncate a
table until a connection locks it, and again when no connection reads it any more: a table that was rewritten looks
empty then. A snapshot dies with its connections, and they die with the server.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sim.fake_postgres import Table
from sim.heaps import File, Row, rows_of
from sim.sql import INT4

from cdcd.daemon.exported_tables import TableExport
from cdcd.daemon.new_table_scan import ScanResult, Wants
from cdcd.daemon.snapshot_export import ChooseRepairs, ExportedSnapshot
from cdcd.errors import CdcdError, PostgresUnavailable
from cdcd.pgoutput.tuples import BINARY
from cdcd.progress.repair_records import PendingRepair
from cdcd.progress.snapshot_records import Choose
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.copy_format import SIGNATURE
from cdcd.snapshot.repair_events import RepairRows
from cdcd.source.heaps import Heap
from cdcd.source.incarnations import Incarnation
from cdcd.source.server_errors import SnapshotGone
from cdcd.source.stream_messages import POSTGRES_EPOCH_US
from cdcd.transaction.relations import Relations

if TYPE_CHECKING:
    from sim.replica import Life
    from sim.world import World

_HEADER = SIGNATURE + bytes(8)
_TRAILER = b"\xff\xff"


class SimSnapshot:
    """One exported snapshot, imported by as many connections as there are."""

    def __init__(self, world: World, life: Life) -> None:
        self.world = world
        self.life = life
        record = world.server.log("running")
        self.lsn = record.end
        self.taken_us = world.server.time_us + POSTGRES_EPOCH_US
        self.xmin = world.server.oldest_xid()
        self.tables: dict[int, Table] = dict(world.server.tables)
        self.files = {oid: file.copy() for oid, file in world.files.now().items()}
        self.closed = False
        self._crashes = world.server.crashes
        self.connections = [SimConnection(self) for _ in range(world.settings.snapshot.workers)]

    @property
    def alive(self) -> bool:
        """Whether its connections are open, and so its locks are held."""
        same = self._crashes == self.world.server.crashes and self.world.server.up
        return same and not self.closed and not self.life.dead

    @property
    def locked(self) -> set[int]:
        """The tables that its connections read."""
        return {connection.locked for connection in self.connections if connection.locked}

    def file(self, table: Table) -> File:
        return _file(self.files, table)

    def incarnation(self, table: Table) -> Incarnation:
        """The table as the snapshot shows it."""
        return _incarnation(table, self.file(table), self.world)

    def is_rewritten(self, table: Table) -> bool:
        """Whether the table has another file now."""
        return _file(self.world.files.now(), table).node != self.file(table).node

    def described(self, table: Table, copy: Any, relations: Relations) -> TableExport:
        now, shown = _file(self.world.files.now(), table), self.file(table)
        blocks = max(shown.blocks, now.blocks)
        heap = Heap(table.oid, table.schema, table.name, now.node, blocks, 0, True, now.node != shown.node)
        relation = relations.resolve(table.message(0))
        numbers = {name: number for number, (name, _) in enumerate(table.columns, 1)}
        return TableExport(copy, relation, [heap], bytes([BINARY]) * len(relation.columns), "", {heap.oid: numbers})


class SimConnection:
    """Plays `snapshot.reader.SnapshotConnection`."""

    def __init__(self, snapshot: SimSnapshot) -> None:
        self._snapshot = snapshot
        self.chunk: Chunk | None = None
        self.locked = 0
        """The table whose lock this connection has."""
        self._enters = False
        self._messages: list[bytes] = []
        self.has_more = False
        self.read_bytes = 0
        self._due = 0.0
        self._closed = False

    def fileno(self) -> int:
        return -2

    def start(self, chunk: Chunk, columns: Sequence[object], row_filter: str, numbers: Mapping[str, int]) -> None:
        self._check()
        self._snapshot.world.pauses.judge(self._snapshot.life)
        self.chunk = chunk
        self._enters = chunk.heap.oid != self.locked
        if self._enters:
            self.locked = 0
        else:
            self._copy(chunk)

    def leave(self) -> None:
        assert self.chunk is None
        if self.locked:
            self._check()
            self.locked = 0

    def read(self, messages_max: int, bytes_max: int) -> tuple[list[bytes], bool]:
        self._check()
        assert self.chunk is not None
        world = self._snapshot.world
        self.has_more, self.read_bytes = False, 0
        if world.now < self._due:
            return [], False
        self._due = world.now + world.rng.random() * world.snapshot_pace_s
        if self._enters:
            self._enter(self.chunk)
            return [], False
        wanted = min(messages_max, world.rng.choice([1, 2, 1000]))
        sizes = list(accumulate(map(len, self._messages[:wanted])))
        wanted = min(len(sizes), bisect_left(sizes, bytes_max) + 1)
        messages, self._messages = self._messages[:wanted], self._messages[wanted:]
        self.read_bytes = sum(map(len, messages))
        self.has_more = bool(self._messages) and (wanted == messages_max or self.read_bytes >= bytes_max)
        ended = not self._messages
        if ended:
            self.chunk = None
        return messages, ended

    def _enter(self, chunk: Chunk) -> None:
        """The transaction for this table begins: it locks the table, and looks what became of it."""
        snapshot = self._snapshot
        shown, now = snapshot.tables[chunk.heap.oid], snapshot.world.server.tables[chunk.heap.oid]
        if now.oid in snapshot.world.database.exclusive():
            raise SnapshotGone(f"{shown.name} is being altered")
        if shown.name != now.name or not set(shown.columns) <= set(now.columns):
            raise SnapshotGone(f"{shown.name} was altered meanwhile")
        if snapshot.is_rewritten(shown):
            raise SnapshotGone(f"{shown.name} was rewritten meanwhile")
        self.locked = now.oid
        self._enters = False
        self._copy(chunk)

    def _copy(self, chunk: Chunk) -> None:
        snapshot = self._snapshot
        table = snapshot.tables[chunk.heap.oid]
        end = None if chunk.to_the_end else chunk.end
        rows = rows_of(snapshot.file(table), chunk.first, end, chunk.changed_since)
        if snapshot.is_rewritten(table):
            rows = iter(())
        self._messages = [*(_message(table, row) for row in rows), _TRAILER]
        self._messages[0] = _HEADER + self._messages[0]

    def close(self) -> None:
        self._closed = True
        self.locked = 0

    def _check(self) -> None:
        world = self._snapshot.world
        if self._closed or not self._snapshot.alive or world.breaks_snapshot():
            self._snapshot.closed = True
            raise PostgresUnavailable("the connection of the snapshot ended", code="postgres-interrupted")


class SimAnchor:
    """Plays the connection that keeps the snapshot."""

    def __init__(self, snapshot: SimSnapshot) -> None:
        self._snapshot = snapshot

    def close(self) -> None:
        self._snapshot.closed = True


class SimSnapshotExport:
    """Plays `SnapshotExport`: goes on a little whenever its state is asked for."""

    def __init__(self, world: World, life: Life, choose: Choose, repairs: ChooseRepairs, lsn_base: int) -> None:
        self.world = world
        self._moved = lsn_base - world.server.lsn_base
        self._life = life
        self._choose = choose
        self._repairs = repairs
        self._crashes = self.world.server.crashes
        self._steps = self._take()
        self._result: ExportedSnapshot | None = None
        self._error: CdcdError | None = None
        self._ended = False
        self._is_paused = False
        self.safe_stream_lsn = 0

    @property
    def needs_pause(self) -> bool:
        return not self._is_paused and self.world.rng.random() < 0.5

    def confirm_stream_paused(self) -> None:
        self._is_paused = True

    @property
    def done(self) -> bool:
        if self._is_paused and not self._ended and self.world.rng.random() < 0.5:
            try:
                if not self.world.server.up or self._crashes != self.world.server.crashes:
                    raise PostgresUnavailable("the server is not there", code="postgres-interrupted")
                next(self._steps)
            except StopIteration as end:
                self._result = end.value
                self._ended = True
            except CdcdError as error:
                self._error = error
                self._ended = True
        return self._ended

    def result(self) -> ExportedSnapshot | None:
        if self._error is not None:
            raise self._error
        return self._result

    def close(self) -> None:
        self._steps.close()
        if self._result is not None:
            self._result.close()

    def _take(self) -> Generator[None, None, ExportedSnapshot | None]:
        world = self.world
        server = world.server
        while True:
            if not self._repairs() and not any(self._choose(*table, seen) for table, seen in seen_now(world).items()):
                return None
            writing = set(server.running) | server.waiting()
            while writing := writing & (server.running | server.waiting()):
                self.safe_stream_lsn = server.end + self._moved
                yield
            snapshot = SimSnapshot(world, self._life)
            try:
                yield
                wanted = [
                    (table, copy)
                    for table in snapshot.tables.values()
                    if table.oid not in world.database.unpublished
                    and (copy := self._choose(table.schema, table.name, snapshot.incarnation(table))) is not None
                ]
                if wanted:
                    world.pauses.judge(self._life)
                repaired = [
                    (table, pending)
                    for table in snapshot.tables.values()
                    if table.oid not in world.database.unpublished
                    for pending in self._repairs()
                    if (pending.schema, pending.table) == (table.schema, table.name)
                    and world.database.repair_rng.random() < 0.8
                ]
                shown = {(table.schema, table.name) for table in snapshot.tables.values()}
                gone = [each for each in self._repairs() if (each.schema, each.table) not in shown]
                oids = {table.oid for table, _ in (*wanted, *repaired)}
                if (yield from self._lock(oids)):
                    relations = Relations(
                        self._life.clients.catalog(self._life.clients.session()), rules=world.settings.column_rules()
                    )
                    tables = [snapshot.described(table, copy, relations) for table, copy in wanted]
                    repairs = [self._repaired(snapshot, *each, relations) for each in repaired]
                    repairs += [RepairRows(each, refused="it is gone") for each in gone]
                    if not any(heap.rewritten for table in tables for heap in table.heaps) and not any(
                        snapshot.is_rewritten(table) for table, _ in repaired
                    ):
                        world.took(snapshot, [table for table, _ in wanted])
                        world.checker.snapshots.repairs.took(snapshot)
                        return ExportedSnapshot(
                            snapshot.lsn + self._moved, snapshot.taken_us, snapshot.xmin, tables,
                            snapshot.connections, SimAnchor(snapshot),  # type: ignore[arg-type]
                            repairs, leaves_repairs=len(repairs) < len(self._repairs()),
                        )  # fmt: skip
                snapshot.closed = True
            except GeneratorExit:
                snapshot.closed = True
                raise

    def _repaired(
        self, snapshot: SimSnapshot, table: Table, pending: PendingRepair, relations: Relations
    ) -> RepairRows:
        """Play `repair_reading`: rows and keys without one, sometimes not of all keys."""
        relation = relations.resolve(table.message(0))
        if relation.key != pending.wanted.columns:
            return RepairRows(pending, refused="it has another key")
        rng, keys = self.world.database.repair_rng, pending.wanted.keys
        some = keys if rng.random() < 0.7 else keys[: rng.randint(1, len(keys))]
        rows = {tuple(str(row[name]) for name in relation.key): row for row in snapshot.file(table).fold.rows.values()}
        messages = [*(_message(table, rows[key]) for key in some if key in rows), _TRAILER]
        messages[0] = _HEADER + messages[0]
        without = [key for key in some if key not in rows]
        kinds = bytes([BINARY]) * len(relation.columns)
        return RepairRows(pending, relation, kinds, [messages], without, keys[len(some) :])

    def _lock(self, oids: set[int]) -> Generator[None, None, bool]:
        """The size of a table cannot be asked for while another session has its lock."""
        yield
        return not oids & self.world.database.exclusive()


def seen_now(world: World) -> dict[tuple[str, str], Incarnation]:
    """The published tables as the catalog describes them now."""
    files = world.files.now()
    return {
        (table.schema, table.name): _incarnation(table, _file(files, table), world)
        for table in world.database.published()
    }


class SimNewTableScan:
    """Plays `NewTableScan`."""

    def __init__(self, world: World, wants: Wants) -> None:
        self.world = world
        self._wants = wants

    @property
    def found(self) -> ScanResult | None:
        if not self.world.server.up:
            return ScanResult(wants_snapshot=False, incarnations=None)
        seen = seen_now(self.world)
        return ScanResult(any(self._wants(*table, each) for table, each in seen.items()), seen)


def _file(found: Mapping[int, File], table: Table) -> File:
    return found.get(table.oid) or File()


def _incarnation(table: Table, file: File, world: World) -> Incarnation:
    """The table as the catalog describes it. What publishes it has another OID at another server."""
    given = world.database.publication
    entry = int(world.server.system_id) % 1_000 if given is None else given.entries.get(table.oid, 0)
    return Incarnation(table.oid, (entry,) if entry else (), file.node, columns=1)


def _message(table: Table, row: Row) -> bytes:
    out = len(table.columns).to_bytes(2, "big")
    for name, oid in table.columns:
        value = row.get(name)
        if value is None:
            out += b"\xff\xff\xff\xff"
        else:
            data = value.to_bytes(4, "big", signed=True) if oid == INT4 else value.encode()
            out += len(data).to_bytes(4, "big") + data
    return out
