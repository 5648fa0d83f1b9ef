"""Published tables under one exported snapshot, with locks that keep them as the snapshot shows them.

Before: `load` names the tables. After: many tasks of `load` take the snapshot, each for its own transaction.
Source: PostgreSQL, "Snapshot Synchronization Functions"; `source.exported_snapshot` has the algorithm.

The connection that made the slot must stay open, and idle, as long as tasks may take the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, Final, Protocol, Self

import psycopg

from cdcd.errors import RequestRejected
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.source.connection import Connection, CreatedSlot
from cdcd.source.exported_snapshot import export_snapshot, lock_tables, until_unaltered
from cdcd.source.published_tables import PublishedTable, published_tables
from cdcd.source.query_runner import QueryRunner
from cdcd.source.server_errors import SnapshotGone
from cdcd.source.session import Session, connect, parameters
from cdcd.source.slot_wait import SlotWait
from cdcd.source.table_selection import qualified_name

APPLICATION: Final = "cdcd-spark"


_HSTORE: Final = """
    SELECT pg_catalog.quote_ident(n.nspname)
    FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'hstore'
"""


class Export(Protocol):
    """Makes the slot: see `source.exported_snapshot.export_snapshot`."""

    def __call__(self, maker: Connection, session: Session, *, meanwhile: Callable[[], None]) -> CreatedSlot:
        """`meanwhile` is called now and then while the server waits for open transactions."""


class ExportedSnapshot:
    """The snapshot of some tables, for a `with` block. The role needs REPLICATION, and SELECT on the tables."""

    def __init__(self, dsn: str, publication: str, tables: Sequence[str], export: Export = export_snapshot) -> None:
        """`tables`: schema.table of tables of the publication."""
        self._dsn = dsn
        self._publication = publication
        self._tables = list(tables)
        self._export = export
        self.lsn = 0
        """The snapshot shows every transaction that committed below this LSN, and no other."""
        self.name = ""
        """For SET TRANSACTION SNAPSHOT; empty before the `with` block."""
        self.server_version = 0
        self.hstore_schema = ""
        """The schema of the extension hstore, quoted; empty if the database does not have it."""
        self.published: dict[str, PublishedTable] = {}
        """The tables as the snapshot shows them, by schema.table."""
        self.login: Mapping[str, str] = {}
        """libpq's parameters of the connection to the server that has the snapshot; empty before the `with` block."""
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open = until_unaltered(self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _take(self) -> ExitStack:
        """Take a snapshot and lock the tables; returns what must stay open."""
        with ExitStack() as stack, Session(self._dsn, APPLICATION) as session:
            maker = stack.enter_context(Connection(self._dsn, APPLICATION))
            with SlotWait(session, None, is_standby=maker.standby, application_name=APPLICATION) as wait:
                slot = self._export(maker, session, meanwhile=wait.look)
            connection = connect(parameters(self._dsn, APPLICATION))
            holder = stack.enter_context(closing(SnapshotConnection(connection)))
            holder.import_snapshot(slot.snapshot or "")
            published = self._published(holder)
            if missing := [table for table in self._tables if table not in published]:
                if missing[0] in self._published(session):  # the snapshot does not show a table that was made after it
                    raise SnapshotGone(f"{missing[0]} was made again while the snapshot was taken")
                raise RequestRejected(f"the table {missing[0]} is no longer published", code="tables-missing")
            wanted = [published[table] for table in self._tables]
            lock_tables(holder, session, [table.oid for table in wanted], [table.expression for table in wanted])
            self.lsn, self.name, self.published = slot.consistent_lsn, slot.snapshot or "", published
            self.login = login(connection)
            self.server_version = maker.server_version
            self.hstore_schema = next((schema for (schema,) in session.rows(_HSTORE)), "")
            return stack.pop_all()

    def _published(self, asks: QueryRunner) -> dict[str, PublishedTable]:
        return {qualified_name(table.schema, table.name): table for table in published_tables(asks, self._publication)}


def login(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """The parameters of an open connection, as libpq has found them: in the DSN, a service, the environment or a file.

    Of several hosts it is the one that the connection leads to: no other server has the snapshot.
    """
    info = connection.info
    found = {each.keyword.decode(): each.val.decode() for each in connection.pgconn.info if each.val is not None}
    is_default = not found.get("host") and info.host.startswith("/")
    host = "localhost" if is_default else info.host
    return (
        found
        | {"host": host, "port": str(info.port), "dbname": info.dbname, "user": info.user}
        | ({"password": info.password} if info.password else {})
    )
