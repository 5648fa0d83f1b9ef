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
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.exported_tables import Choose, ReadableTables, TableExport, exported_tables
from cdcd.errors import CdcdError, PostgresUnavailable
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.source.connection import Connection
from cdcd.source.exported_snapshot import export_snapshot
from cdcd.source.published_tables import published_oids_by_name
from cdcd.source.server_errors import NoSlotFree, SlotWaits, SnapshotGone
from cdcd.source.session import Session, connect, parameters

log = logging.getLogger(__name__)

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

    def close(self) -> None:
        """End the connections, and with them the snapshot."""
        for connection in (*self.connections, self.anchor):
            connection.close()


class NewTableScan:
    """Finds out in a thread whether a published table wants a snapshot."""

    def __init__(self, settings: Settings, choose: Choose, readable: ReadableTables, wake: Callable[[], None]) -> None:
        """As SnapshotExport."""
        self._settings = settings
        self._choose = choose
        self._readable = readable
        self._wake = wake
        self._found: Future[bool] = Future()
        Thread(target=self._run, name="cdcd-new-table-scan", daemon=True).start()

    @property
    def found(self) -> bool | None:
        """The answer; None while there is none. False if the server could not be asked: the next scan asks again.

        Raises what else the thread raised.
        """
        return self._found.result() if self._found.done() else None

    def _run(self) -> None:
        source = self._settings.source
        try:
            with Session(source.dsn, source.application_name) as session:
                self._found.set_result(bool(_wanted(session, source.publication, self._choose, self._readable)))
        except CdcdError as error:
            log.debug("cannot look for new tables: %s", error)
            self._found.set_result(False)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asks
            self._found.set_exception(error)
        self._wake()


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
    ) -> None:
        """Start the thread. `wake` is called when it is done, and when an attribute has changed.

        `readable` leaves out tables that `choose` wants and the role may not read.
        `text_as_stored`: the rows have text as it is stored, not as UTF-8.
        """
        self._settings = settings
        self._text_as_stored = text_as_stored
        self._choose = choose
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
        with Session(source.dsn, source.application_name) as session:
            wanted = _wanted(session, source.publication, self._choose, self._readable)
            if not wanted:
                return None
            while not self._closed.is_set():
                try:
                    return self._export(session, wanted)
                except SlotWaits as error:
                    log.warning("the snapshot waits for other transactions to end: %s", error.message)
                except SnapshotGone as error:
                    log.warning("taking another snapshot: %s", error.message)
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
                self.safe_stream_lsn = parse_lsn(lsn)
                self._wake()

    def _export(self, session: Session, wanted: set[tuple[str, str]]) -> ExportedSnapshot | None:
        """Take a snapshot of those of the `wanted` tables that still want one; None if `close` gave it up."""
        source = self._settings.source
        with ExitStack() as stack:
            with Connection(source.dsn, source.application_name) as maker:
                anchor, *connections = self._connect(stack, 1 + self._settings.snapshot.workers)
                if not self._stream_paused.is_set():
                    self.needs_pause = True
                    self._wake()
                    self._stream_paused.wait()
                if self._closed.is_set():
                    return None
                self._note_position(maker)
                slot = export_snapshot(
                    maker,
                    session,
                    timeout_s=STANDBY_SLOT_TIMEOUT_S if maker.standby else SLOT_TIMEOUT_S,
                    meanwhile=partial(self._note_wait, session, maker.backend_pid),
                )
                anchor.import_snapshot(slot.snapshot or "")
                shared = anchor.export_snapshot()
            first = connections[0]
            first.import_snapshot(shared)  # the queries lock partitions, and the anchor must not
            as_stored = self._text_as_stored
            tables = exported_tables(
                first,
                session,
                source.publication,
                lambda *table: self._choose(*table) if table in wanted else None,
                text_as_stored=as_stored,
            )
            [(taken_us, xmin)] = first.rows(_TAKEN)
            first.end_transaction()
            for connection in connections:
                if as_stored or session.encoding == "SQL_ASCII":
                    connection.take_any_encoding(session.encoding)
                connection.share_snapshot(shared)
            stack.pop_all()
        log.info("took a snapshot", extra={"lsn": format_lsn(slot.consistent_lsn), "tables": len(tables)})
        return ExportedSnapshot(slot.consistent_lsn, taken_us, xmin, tables, connections, anchor)

    def _connect(self, stack: ExitStack, count: int) -> list[SnapshotConnection]:
        """Make connections, which `stack` closes."""
        source = self._settings.source
        made = []
        for _ in range(count):
            connection = SnapshotConnection(connect(parameters(source.dsn, source.application_name)))
            stack.callback(connection.close)
            made.append(connection)
        return made

    def _note_position(self, maker: Connection) -> None:
        """Let the stream come to where the server is: the slot, which is asked for next, becomes consistent later.

        A standby tells nothing more while it waits for its primary, which may take as long as a transaction there.
        """
        self.safe_stream_lsn = maker.position()
        self._wake()

    def _note_wait(self, session: Session, pid: int) -> None:
        """Find out how far the stream may go while the backend `pid` waits for a transaction to end.

        The slot becomes consistent only at a running-transactions record written after this transaction ends. The
        insert position is read before the wait is seen, so that record comes after this position.
        """
        [(lsn,)] = session.rows(_INSERTED)
        if lsn is not None and session.rows(_WAITS, [pid]):
            self.safe_stream_lsn = parse_lsn(lsn)
            self._wake()


def _wanted(session: Session, publication: str, choose: Choose, readable: ReadableTables) -> set[tuple[str, str]]:
    """Schema and name of the published tables that want a snapshot, and that it can read."""
    published = published_oids_by_name(session, publication)
    return readable.among(session, {table: oid for table, oid in published.items() if choose(*table) is not None})


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
