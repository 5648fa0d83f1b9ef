"""Takes a snapshot of the tables at an exact LSN: in a thread, because the server may let it wait.

Before: `snapshot_coordinator` asks for one.
After: connections that see it, and what is to be read, go to `snapshot.copier`.
Source: PostgreSQL, "Streaming Replication Protocol" (CREATE_REPLICATION_SLOT), "Snapshot Synchronization Functions".

Only a new slot gives a snapshot and the LSN that belongs to it: what committed before that LSN is in the snapshot, what
commits later is not. So a temporary one is made, as PostgreSQL's own table synchronization does; it is gone as soon as
the snapshot is imported. The server makes it once every transaction has ended that was writing when it was asked.
Until then the stream goes on: one of these transactions may be waiting for cdcd, its synchronous standby. But what is
committed later than the snapshot must not be published before it: so the stream stops first, when all else is ready.

Each table is locked (ACCESS SHARE, as by a SELECT), so that nobody alters it while it is read. One that was rewritten
between snapshot and lock would look empty; of one that was renamed, or whose columns were, COPY would read what has the
name now. So a new snapshot is taken. So it is if the lock is not free: who holds it may be waiting for us, its
synchronous standby, while the stream waits for this snapshot. The next slot waits until that transaction ends, and lets
the stream go on meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from threading import Event, Thread
from typing import Final, TypeAlias

from psycopg import sql

from cdcd.avro.codecs.lookup import has_known_binary
from cdcd.config.settings import Settings
from cdcd.errors import CdcdError
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.pgoutput.tuples import BINARY, TEXT
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.snapshot.published_tables import Heap, PublishedRelation, altered_heaps, heaps, published
from cdcd.snapshot.reader import SnapshotConnection, SnapshotGone
from cdcd.source.catalog import Catalog
from cdcd.source.connection import Connection
from cdcd.source.server_errors import SlotWaits
from cdcd.source.session import Session, parameters
from cdcd.source.slot import Slot
from cdcd.transaction.relations import Relations, ResolvedRelation

log = logging.getLogger(__name__)

PATIENCE_S: Final = 10.0
"""How long the server may wait for others' transactions before they are named; then it is asked again."""

Choose: TypeAlias = "Callable[[str, str], TableSnapshot | None]"
"""Says, by schema and name, what Kafka has of a table that is to be copied; None if it is not."""

_TEXT: Final = "CASE WHEN {c} IS NOT DISTINCT FROM NULL THEN NULL ELSE pg_catalog.concat({c}) END"
"""What the type's output function says, as the stream does; a cast to text may be another function."""

LOCK_TABLES: Final = 500
"""In one statement."""


@dataclass(frozen=True)
class TableExport:
    """A table that the snapshot shows."""

    copy: TableSnapshot
    """What Kafka has of it."""
    relation: ResolvedRelation
    heaps: list[Heap]
    kinds: bytes
    """For each column BINARY, or TEXT where it is to be asked for as text."""
    row_filter: str

    def columns(self) -> list[sql.Composable]:
        """What is to be selected."""
        return [
            sql.SQL(_TEXT if kind == TEXT else "{c}").format(c=sql.Identifier(column.name))
            for column, kind in zip(self.relation.columns, self.kinds, strict=True)
        ]


@dataclass(frozen=True)
class ExportedSnapshot:
    """A snapshot that was imported: `close` lets it go."""

    lsn: int
    """The consistent point."""
    taken_us: int
    """When: microseconds since 1970."""
    xmin: int
    """The oldest transaction that was running (64 bits)."""
    tables: list[TableExport]
    connections: list[SnapshotConnection]

    def close(self) -> None:
        """End the connections and their locks."""
        for connection in self.connections:
            connection.close()


class NewTableScan:
    """Whether a table is published that is to be copied: asked in a thread."""

    def __init__(self, settings: Settings, choose: Choose, wake: Callable[[], None]) -> None:
        """As Exporting."""
        self._settings = settings
        self._choose = choose
        self._wake = wake
        self._found: Future[bool] = Future()
        Thread(target=self._run, name="cdcd-looking", daemon=True).start()

    @property
    def found(self) -> bool | None:
        """The answer; None while there is none. One that fails is no: it is asked again, or the stream ends, too."""
        return self._found.result() if self._found.done() else None

    def _run(self) -> None:
        source = self._settings.source
        try:
            with Session(source.dsn, source.application_name) as session:
                self._found.set_result(_any(session, source.publication, self._choose))
        except CdcdError as error:
            log.debug("cannot look for tables to copy: %s", error)
            self._found.set_result(False)
        self._wake()


class SnapshotExport:
    """One snapshot, on its way."""

    def __init__(self, settings: Settings, choose: Choose, wake: Callable[[], None]) -> None:
        """`choose` says, by schema and name, what Kafka has of a table that is to be copied, None if it is not;
        `wake` is called when it is done.
        """
        self._settings = settings
        self._choose = choose
        self._wake = wake
        self._closed = Event()
        self._stopped = Event()
        self._done: Future[ExportedSnapshot | None] = Future()
        self.needs_pause = False
        """The stream is to stop now: call `confirm_stream_paused`."""
        self.safe_stream_lsn = 0
        """While the server lets us wait: the consistent point will be beyond this LSN."""
        Thread(target=self._run, name="cdcd-exporting", daemon=True).start()

    @property
    def done(self) -> bool:
        """It has come to an end."""
        return self._done.done()

    def result(self) -> ExportedSnapshot | None:
        """The snapshot; None if no table is to be copied. Raises what ended it."""
        return self._done.result()

    def confirm_stream_paused(self) -> None:
        """The stream stands still, but for what `safe_stream_lsn` says: the snapshot may be taken."""
        self.needs_pause = False
        self._stopped.set()

    def close(self) -> None:
        """Want it no more. The thread may still wait for the server; it ends by itself, and leaves nothing behind."""
        self._closed.set()
        self._stopped.set()
        if self.done and self._done.exception() is None and (export := self._done.result()) is not None:
            export.close()

    def _run(self) -> None:
        try:
            export = self._take()
            self._done.set_result(export)
            if self._closed.is_set() and export is not None:
                export.close()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._done.set_exception(error)
        self._wake()

    def _take(self) -> ExportedSnapshot | None:
        source = self._settings.source
        with Session(source.dsn, source.application_name) as session:
            # Once, while the stream still flows: whoever asks waits for the owners of the tables' locks.
            if not _any(session, source.publication, self._choose):
                return None
            while not self._closed.is_set():
                try:
                    return self._export(session)
                except SlotWaits as error:
                    log.warning("the snapshot waits for transactions of others to end: %s", error.message)
                except SnapshotGone as error:
                    log.warning("taking another snapshot: %s", error.message)
                    self._closed.wait(0.2)
        return None

    def _export(self, session: Session) -> ExportedSnapshot | None:
        """Take a snapshot; None if it is wanted no more."""
        source = self._settings.source
        with ExitStack() as stack:
            with Connection(source.dsn, source.application_name) as maker:
                connections = []
                for _ in range(self._settings.snapshot.workers):
                    connection = SnapshotConnection(parameters(source.dsn, source.application_name))
                    stack.callback(connection.close)
                    connections.append(connection)
                if not self._stopped.is_set():
                    self.needs_pause = True
                    self._wake()
                    self._stopped.wait()
                if self._closed.is_set():
                    return None
                slot = maker.create_slot(
                    f"cdcd_snapshot_{token_hex(8)}",
                    export_snapshot=True,
                    temporary=True,
                    timeout_s=PATIENCE_S,
                    blockers=Slot(session, source.slot).writers,
                    meanwhile=partial(self._note_wait, session, maker.backend_pid),
                )
                for connection in connections:
                    connection.see(slot.snapshot or "")
            first = connections[0]
            tables = self._tables(first, session)
            [(taken_us, xmin)] = first.rows(_TAKEN)
            if session.encoding == "SQL_ASCII":
                for connection in connections:
                    connection.take_any_encoding()
            stack.pop_all()
        log.info("took a snapshot", extra={"lsn": format_lsn(slot.consistent_lsn), "tables": len(tables)})
        return ExportedSnapshot(slot.consistent_lsn, taken_us, xmin, tables, connections)

    def _note_wait(self, session: Session, pid: int) -> None:
        """Find out how far the stream may go while the backend `pid` waits for a transaction to end.

        The list of running transactions that makes the snapshot consistent must be one without this transaction: it is
        not in the WAL yet, and the position is asked for first.
        """
        [(lsn,)] = session.rows(_INSERTED)
        if lsn is not None and session.rows(_WAITS, [pid]):
            self.safe_stream_lsn = parse_lsn(lsn)
            self._wake()

    def _tables(self, snapshot: SnapshotConnection, session: Session) -> list[TableExport]:
        """What is to be copied, locked, as the snapshot has it."""
        wanted: list[tuple[PublishedRelation, TableSnapshot]] = []
        for each in published(snapshot, self._settings.source.publication):
            copy = self._choose(each.relation.nspname, each.relation.relname)
            if copy is not None:
                wanted.append((each, copy))
        oids = [each.relation.relation_oid for each, _ in wanted]
        found = heaps(snapshot, oids)
        names = [sql.Identifier(heap.schema, heap.name) for oid in oids for heap in found[oid]]
        for at in range(0, len(names), LOCK_TABLES):
            some = sql.SQL(", ").join([sql.SQL("ONLY {}").format(name) for name in names[at : at + LOCK_TABLES]])
            snapshot.rows(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE NOWAIT").format(some))
        locked = heaps(snapshot, oids)  # again: measured before the lock, a heap may be another one by now
        own = [heap for oid in oids for heap in locked[oid]]
        altered = altered_heaps(snapshot, session, own)
        if altered:
            raise SnapshotGone(f"{altered[0].schema}.{altered[0].name} was altered while the snapshot was taken")
        relations = Relations(Catalog(session))
        return [
            self._described(each, copy, relations, locked[each.relation.relation_oid], session.encoding)
            for each, copy in wanted
        ]

    def _described(
        self, each: PublishedRelation, copy: TableSnapshot, relations: Relations, own: list[Heap], encoding: str
    ) -> TableExport:
        relation = relations.resolve(each.relation)
        kinds = bytes(BINARY if has_known_binary(column.pgtype, encoding) else TEXT for column in relation.columns)
        return TableExport(copy, relation, own, kinds, each.row_filter)


def _any(session: Session, publication: str, choose: Choose) -> bool:
    tables = published(session, publication)
    return any(choose(table.relation.nspname, table.relation.relname) is not None for table in tables)


_INSERTED: Final = """
    SELECT CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_insert_lsn()::text END
"""
_WAITS: Final = "SELECT 1 FROM pg_catalog.pg_locks WHERE pid = %s AND locktype = 'transactionid' AND NOT granted"
_TAKEN: Final = """
    SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint,
           pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint
"""
