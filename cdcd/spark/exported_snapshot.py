"""A snapshot that PostgreSQL exports to other sessions, and locks that keep its tables as it shows them.

Before: `load` names the tables. After: the tasks of `load` read under the snapshot, by its name.
Source: PostgreSQL, "Streaming Replication Protocol" (CREATE_REPLICATION_SLOT), "SET TRANSACTION", "LOCK".

A temporary slot gives a snapshot and its LSN: a transaction is in the snapshot exactly if it committed below the LSN.
The connection that made the slot must stay open, and idle, as long as sessions may take the snapshot.

Each table is locked (ACCESS SHARE, as a SELECT locks it) until the end, so that nobody rewrites it in the meantime. A
table that was rewritten between the snapshot and the lock would look empty. Its file node then differs, and a new
snapshot is taken.

The daemon's snapshots have other needs: a single session takes the snapshot at once, and a lock that is not free is an
error at once. Here many tasks take the snapshot, perhaps for hours, and a lock is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import psycopg
from psycopg import sql

from cdcd.errors import PostgresUnavailable, RequestRejected
from cdcd.lsn import parse_lsn

_TRIES: Final = 5
_LOCK_WAIT_MS: Final = 10_000
_HEAPS: Final = b"""
    SELECT part.oid::pg_catalog.regclass::text, n.nspname, c.relname,
           coalesce(c.relfilenode = pg_catalog.pg_relation_filenode(c.oid), false)
    FROM pg_catalog.unnest(%s::text[]) root (name)
    CROSS JOIN LATERAL (
        SELECT t.relid::oid FROM pg_catalog.pg_partition_tree(root.name::pg_catalog.regclass) t WHERE t.isleaf
        UNION SELECT root.name::pg_catalog.regclass::oid
    ) part (oid)
    LEFT JOIN pg_catalog.pg_class c ON c.oid = part.oid
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IS NULL OR c.relkind = 'r'
    ORDER BY part.oid
"""
"""The tables that hold the rows: the leaf partitions, or the tables themselves.

The last column says whether a table still has the file that it had at the snapshot. The catalog shows the file node as
of the snapshot, the function shows the present one. A table made after the snapshot has no row in the catalog.
"""


class ExportedSnapshot:
    """The snapshot of some tables, for a `with` block. The role needs REPLICATION, and SELECT on the tables."""

    def __init__(self, dsn: str, tables: Sequence[str]) -> None:
        """`tables`: quoted names."""
        self._dsn = dsn
        self._tables = list(tables)
        self.lsn = 0
        self.name = ""
        """For SET TRANSACTION SNAPSHOT; empty before the `with` block."""
        self._connection: psycopg.Connection[Any] | None = None
        """Made the slot."""
        self._holder: psycopg.Connection[Any] | None = None
        """Holds the locks."""

    def __enter__(self) -> Self:
        try:
            tries = 1
            self._export()
            while rewritten := self._lock():
                self._close()
                if tries == _TRIES:
                    raise RequestRejected(
                        f"{rewritten[0]} was rewritten {tries} times while the snapshot was taken",
                        "Start again while nobody alters or truncates the table",
                    )
                tries += 1
                self._export()
            return self
        except BaseException:
            self._close()
            raise

    def _export(self) -> None:
        try:
            connection = psycopg.connect(self._dsn, autocommit=True, replication="database")
            self._connection = connection
            slot = f"cdcd_spark_{uuid4().hex[:16]}"
            created = connection.execute(
                f"CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT".encode()
            ).fetchone()
        except psycopg.OperationalError as error:
            raise PostgresUnavailable(
                f"PostgreSQL cannot make a snapshot: {str(error).strip()}", "Check the DSN"
            ) from error
        except psycopg.Error as error:
            raise RequestRejected(
                f"PostgreSQL refuses a snapshot: {str(error).strip()}",
                "It needs a role with REPLICATION, a free slot (max_replication_slots) and wal_level = logical",
            ) from error
        assert created is not None
        self.lsn, self.name = parse_lsn(created[1]), created[2]

    def _lock(self) -> list[str]:
        """Lock the tables and their partitions; returns those that were rewritten after the snapshot."""
        try:
            self._holder = holder = psycopg.connect(self._dsn, autocommit=True)
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            holder.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self.name)))
            holder.execute(f"SET LOCAL lock_timeout = {_LOCK_WAIT_MS}".encode())
            holder.execute(b"SET LOCAL idle_in_transaction_session_timeout = 0")
            for _, schema, name, _ in holder.execute(_HEAPS, [self._tables]).fetchall():
                if name is not None:
                    heap = sql.Identifier(schema, name)
                    holder.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(heap))
            # Ask again: a table may have been rewritten until the lock was taken.
            return [shown for shown, _, _, is_same in holder.execute(_HEAPS, [self._tables]) if not is_same]
        except psycopg.Error as error:
            raise RequestRejected(
                f"PostgreSQL does not lock the tables for a snapshot: {str(error).strip()}",
                "The role needs SELECT on them; if a session alters one of them, wait until it has ended",
            ) from error

    def _close(self) -> None:
        for connection in (self._holder, self._connection):
            if connection is not None:
                connection.close()  # which drops the temporary slot
        self._holder = self._connection = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
