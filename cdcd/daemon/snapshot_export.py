"""Takes a snapshot of the tables at an exact LSN: in a thread, because the server may make it wait.

Before: `snapshot_coordinator` asks for a snapshot.
After: `snapshot_rows` reads the tables over the connections that see the snapshot.
Source: PostgreSQL, "Streaming Replication Protocol" (CREATE_REPLICATION_SLOT), "Snapshot Synchronization Functions".

`source.exported_snapshot` makes the snapshot. Each table is locked only while it is read (`snapshot.reader`).

The server first waits for the end of every transaction that was writing at the request. The stream goes on meanwhile,
because one of these transactions may wait for cdcd, its synchronous standby. Commits after the snapshot must not be
published before it. So the stream pauses once everything else is ready, and the snapshot is taken then. The stream may
always come to where the server was when the slot was asked for.

If a table was altered after the snapshot, the export takes a new snapshot. It also takes a new one if it cannot get a
lock for a moment. The transaction that holds the lock may wait for cdcd, its synchronous standby, while the stream
waits for this snapshot. The next temporary slot waits for the end of that transaction, and the stream goes on
meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Final, TypeAlias

from cdcd.config.settings import Settings
from cdcd.daemon.exported_tables import TableExport, exported_tables
from cdcd.daemon.readable_tables import ReadableTables
from cdcd.daemon.repair_reading import RepairReader
from cdcd.errors import PostgresUnavailable, RequestRejected
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.repair_records import PendingRepair
from cdcd.progress.snapshot_records import Choose, TableSnapshot, wanted_snapshot
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.snapshot.repair_events import RepairRows
from cdcd.source.connection import Connection
from cdcd.source.exported_snapshot import export_snapshot
from cdcd.source.server_errors import NoSlotFree, SlotWaits, SnapshotGone
from cdcd.source.session import Session, connect, parameters
from cdcd.source.slot_wait import SlotWait

log = logging.getLogger(__name__)

ChooseRepairs: TypeAlias = "Callable[[], Sequence[PendingRepair]]"
"""Returns the repairs that are wanted."""

RETRY_S: Final = 5.0
"""After what keeps the server from a snapshot for now: no slot, walsender or connection is free."""

FOLLOW_S: Final = 0.1
"""How often the paused stream may go on meanwhile."""

SLOT_TIMEOUT_S: Final = 10.0
"""How long the server may wait for transactions that write. After that the log names them, and the daemon asks
again."""
STANDBY_SLOT_TIMEOUT_S: Final = 60.0
"""How long a standby may wait: while its primary is busy, it needs three of the primary's records of what runs, and the
primary writes one every 15 s."""


@dataclass(frozen=True)
class ExportedSnapshot:
    """A snapshot that its connections have imported, until `close`."""

    lsn: int
    """The consistent point."""
    taken_us: int
    """When it was taken: microseconds since 1970."""
    xmin: int
    """The oldest transaction that was running then (64 bits)."""
    tables: list[TableExport]
    connections: list[SnapshotConnection]
    anchor: SnapshotConnection
    """Keeps the snapshot, so that the others can import it for each heap. It holds no lock."""
    repairs: list[RepairRows] = field(default_factory=list)
    """The rows of repairs, which are read already."""
    refuse: Callable[[tuple[str, str], RequestRejected], None] = lambda _, __: None
    """Leave a table (schema, name) with a condition out of the next snapshots, and take another one: raises."""
    leaves_repairs: bool = False
    """More rows are to be repaired, for which this snapshot had no room."""

    def close(self) -> None:
        """End the connections, and with them the snapshot."""
        for connection in (*self.connections, self.anchor):
            connection.close()


class SnapshotExport:
    """One snapshot that is being taken."""

    def __init__(
        self,
        settings: Settings,
        choose: Choose,
        readable: ReadableTables,
        wake: Callable[[], None],
        *,
        text_as_stored: bool = False,
        lsn_base: int = 0,
        repairs: ChooseRepairs = tuple,
    ) -> None:
        """Start the thread. `wake` is called when it is done, and when an attribute has changed.

        `readable` leaves out tables that `choose` wants and the role may not read.
        `text_as_stored`: the rows have text as it is stored, not as UTF-8. `lsn_base` is added to the LSNs that others
        see (`cdcd.lsn`).
        """
        self._lsn_base = lsn_base
        self._settings = settings
        self._text_as_stored = text_as_stored
        self._choose = choose
        self._repairs = repairs
        self._readable = readable
        self._wake = wake
        self._closed = Event()
        self._stream_paused = Event()
        self._done: Future[ExportedSnapshot | None] = Future()
        self.needs_pause = False
        """Everything is ready: pause the stream, then call `confirm_stream_paused`."""
        self.safe_stream_lsn = 0
        """While the server waits for transactions: the consistent point will come after this LSN."""
        Thread(target=self._run, name="cdcd-snapshot-export", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether the thread has ended."""
        return self._done.done()

    def result(self) -> ExportedSnapshot | None:
        """The snapshot; None if no table wants one. Raises what the thread raised."""
        return self._done.result()

    def confirm_stream_paused(self) -> None:
        """Take the snapshot: the stream is paused, and goes on only up to `safe_stream_lsn`."""
        self.needs_pause = False
        self._stream_paused.set()

    def close(self) -> None:
        """Give the snapshot up. The thread may still wait for the server. It ends by itself and leaves nothing."""
        self._closed.set()
        self._stream_paused.set()
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
        with Session(source.login, source.application_name) as session:
            repaired = {(each.schema, each.table) for each in self._repairs()}
            published, wanted = self._readable.wanted(
                session,
                lambda schema, name, seen: (schema, name) in repaired or self._choose(schema, name, seen) is not None,
            )
            gone = self._gone(published)
            if not wanted and not gone:
                return None
            while not self._closed.is_set():
                try:
                    return self._export(session, wanted, gone)
                except SlotWaits as error:
                    log.warning("the snapshot waits for other transactions to end: %s", error)
                except SnapshotGone as error:
                    log.warning("taking another snapshot: %s", error)
                    self._closed.wait(0.2)
                except (NoSlotFree, PostgresUnavailable) as error:
                    log.warning("the snapshot waits: %s", error)
                    self._wait_while_streaming(session)
        return None

    def _wait_while_streaming(self, session: Session) -> None:
        """Wait for RETRY_S, and let the stream go on: no consistent point can come before what the WAL has now.

        Raises PostgresUnavailable if the server is gone.
        """
        waited_s = 0.0
        while waited_s < RETRY_S and not self._closed.wait(FOLLOW_S):
            waited_s += FOLLOW_S
            [(lsn,)] = session.rows(_END)
            if self._stream_paused.is_set():
                self.safe_stream_lsn = parse_lsn(lsn) + self._lsn_base
                self._wake()

    def _export(
        self, session: Session, wanted: set[tuple[str, str]], gone: list[RepairRows]
    ) -> ExportedSnapshot | None:
        """Take a snapshot of those of the `wanted` tables that still want one; None if `close` gave it up."""
        source = self._settings.source
        with ExitStack() as stack:
            with Connection(source.login, source.application_name) as maker:
                anchor, *connections = self._connect(stack, 1 + self._settings.snapshot.workers)
                if not self._stream_paused.is_set():
                    self.needs_pause = True
                    self._wake()
                    self._stream_paused.wait()
                if self._closed.is_set():
                    return None
                self._note_position(maker)
                wait = SlotWait(
                    session,
                    source.primary_login,
                    is_standby=maker.standby,
                    application_name=source.application_name,
                    is_said=False,
                )
                stack.callback(wait.close)
                slot = export_snapshot(
                    maker,
                    session,
                    timeout_s=STANDBY_SLOT_TIMEOUT_S if maker.standby else SLOT_TIMEOUT_S,
                    meanwhile=partial(self._note_wait, session, maker.backend_pid, wait),
                )
                wait.close()
                anchor.import_snapshot(slot.snapshot or "")
                shared = anchor.export_snapshot()
            first = connections[0]
            first.import_snapshot(shared)  # the queries lock partitions, and the anchor must not
            as_stored = self._text_as_stored
            tables = exported_tables(
                first,
                session,
                source.publication,
                lambda schema, name, seen: self._choose(schema, name, seen) if (schema, name) in wanted else None,
                self._readable.rules,
                self._readable.snapshot_rules,
                text_as_stored=as_stored,
            )
            asked = [each for each in self._repairs() if (each.schema, each.table) in wanted]
            repaired = self._tables_to_repair(first, session, asked)
            [(taken_us, xmin)] = first.rows(_TAKEN)
            first.end_transaction()
            for connection in connections:
                if as_stored or session.encoding == "SQL_ASCII":
                    connection.take_any_encoding(session.encoding)
                connection.share_snapshot(shared)
            repairs = self._read_repairs(repaired, asked, shared)
            stack.pop_all()
        lsn = slot.consistent_lsn + self._lsn_base
        log.info("took a snapshot", extra={"lsn": format_lsn(lsn), "tables": len(tables)})
        return ExportedSnapshot(
            lsn,
            taken_us,
            xmin,
            tables,
            connections,
            anchor,
            gone + repairs,
            leaves_repairs=len(repairs) < len(asked),
            refuse=self._readable.refuse,
        )

    def _gone(self, published: Collection[tuple[str, str]]) -> list[RepairRows]:
        """The repairs of tables that are not published any more."""
        why = "the publication does not have the table any more"
        return [RepairRows(each, refused=why) for each in self._repairs() if (each.schema, each.table) not in published]

    def _tables_to_repair(
        self, snapshot: SnapshotConnection, session: Session, asked: Sequence[PendingRepair]
    ) -> list[TableExport]:
        """The tables that have rows to repair, as the snapshot shows them."""
        names = {(each.schema, each.table) for each in asked}

        def choose(schema: str, table: str, _: object) -> TableSnapshot | None:
            return wanted_snapshot("", "", schema, table) if (schema, table) in names else None

        publication = self._settings.source.publication
        return exported_tables(snapshot, session, publication, choose, self._readable.rules) if names else []

    def _read_repairs(
        self, tables: Sequence[TableExport], asked: Sequence[PendingRepair], shared: str
    ) -> list[RepairRows]:
        """Read the rows to repair, as many as there is room for."""
        read: list[RepairRows] = []
        with ExitStack() as stack:

            def connect() -> SnapshotConnection:
                [connection] = self._connect(stack, 1)
                connection.share_snapshot(shared)
                return connection

            reader = RepairReader(connect, self._closed.is_set)
            for table in tables:
                name = (table.relation.schema, table.relation.name)
                read += reader.read(table, (each for each in asked if (each.schema, each.table) == name))
        return read

    def _connect(self, stack: ExitStack, count: int) -> list[SnapshotConnection]:
        """Make connections, which `stack` closes."""
        source = self._settings.source
        made = []
        for _ in range(count):
            connection = SnapshotConnection(connect(parameters(source.login, source.application_name)))
            stack.callback(connection.close)
            made.append(connection)
        return made

    def _note_position(self, maker: Connection) -> None:
        """Let the stream come to where the server is: the slot, which is asked for next, becomes consistent later.

        A standby tells nothing more while it waits for its primary, which may take as long as a transaction there.
        """
        self.safe_stream_lsn = maker.position() + self._lsn_base
        self._wake()

    def _note_wait(self, session: Session, pid: int, wait: SlotWait) -> None:
        """Find out how far the stream may go while the backend `pid` waits for a transaction to end.

        The slot becomes consistent only at a running-transactions record written after this transaction ends. The
        insert position is read before the wait is seen, so that record comes after this position.
        """
        wait.look()
        [(lsn,)] = session.rows(_INSERTED)
        if lsn is not None and session.rows(_WAITS, [pid]):
            self.safe_stream_lsn = parse_lsn(lsn) + self._lsn_base
            self._wake()


_END: Final = """
    SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                 ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text
"""
_INSERTED: Final = """
    SELECT CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_insert_lsn()::text END
"""
_WAITS: Final = "SELECT 1 FROM pg_catalog.pg_locks WHERE pid = %s AND locktype = 'transactionid' AND NOT granted"
_TAKEN: Final = """
    SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint,
           pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::bigint
"""
