"""One connection that reads tables under an exported snapshot, a COPY at a time. Thin I/O.

Before: `chunks` says which blocks. After: `copy_format` takes the messages of COPY, one a row.
Source: PostgreSQL, "SET TRANSACTION" (SNAPSHOT), "COPY", "System Columns" (ctid, xmin); libpq, "Functions Associated
with the COPY Command".

Nothing here waits but the statements at the start: `read` returns what has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import pq, sql

from cdcd.errors import CdcdError, PostgresUnavailable, RequestRejected
from cdcd.snapshot.chunks import XID_MASK, Chunk
from cdcd.source.copy_data import read_frames
from cdcd.source.server_errors import LOCK_NOT_AVAILABLE, SnapshotGone

INPUT_BUFFER_BYTES: Final = 1 << 20
_TAKE_BYTES: Final = 1 << 19


class SnapshotConnection:
    """A transaction that sees the tables as of one snapshot. For one thread at a time."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        """Connect. Raises PostgresUnavailable if that fails."""
        self.unit: Chunk | None = None
        """What is being read."""
        try:
            self._conn = psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)
            self._conn.execute("SET row_security TO off")
            # The role's own are for people. Between `see` and the first unit the stream comes to the snapshot first.
            self._conn.execute("SET statement_timeout TO 0")
            self._conn.execute("SET idle_in_transaction_session_timeout TO 0")
            if self._conn.info.server_version >= 170_000:
                self._conn.execute("SET transaction_timeout TO 0")
            self._conn.execute("SET lock_timeout TO '1s'")  # a table's size is not told while somebody alters it
            # libpq's input buffer grows to what it once held: see `Connection.enlarge_read_buffer`.
            self._conn.execute("SELECT pg_catalog.repeat('x', %s)", [INPUT_BUFFER_BYTES])
        except psycopg.Error as error:
            raise PostgresUnavailable(f"a connection for a snapshot could not be made: {_said(error)}") from error
        self._pg = self._conn.pgconn
        self._begun = False

    def see(self, snapshot: str) -> None:
        """Import a snapshot, once.

        Raises PostgresUnavailable if that fails: its exporter must not have done anything since.
        """
        try:
            self._conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        except psycopg.Error as error:
            raise PostgresUnavailable(f"a snapshot could not be imported: {_said(error)}") from error

    def rows(self, query: sql.Composed | str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Ask something, as of the snapshot.

        Raises SnapshotGone, RequestRejected, or PostgresUnavailable if the server is gone.
        """
        try:
            cursor = self._conn.execute(query, values)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._named(error.sqlstate or "", _said(error)) from error

    def take_any_encoding(self) -> None:
        """Have text come as the bytes it is, from a database without an encoding; `rows` gives no str any more."""
        self.rows("SET client_encoding TO 'SQL_ASCII'")

    def fileno(self) -> int:
        """The socket, to wait for."""
        return self._pg.socket

    def start(self, unit: Chunk, columns: Sequence[sql.Composable], row_filter: str) -> None:
        """Begin to read a unit; `columns` are what is selected, `row_filter` is SQL of the publication, or empty."""
        try:
            self._pg.send_query(copy_statement(unit, columns, row_filter).as_bytes())
            self._pg.flush()
        except psycopg.OperationalError as error:
            raise PostgresUnavailable(f"the connection to PostgreSQL ended: {_said(error)}") from error
        self.unit = unit
        self._begun = False

    def read(self, messages_max: int) -> tuple[list[bytes], bool]:
        """What has come of the COPY, and whether that was all of it (then `unit` is None). Raises as `rows` does."""
        messages: list[bytes] = []
        try:
            self._pg.consume_input()
            if not self._begun:
                if self._pg.is_busy():
                    return messages, False
                self._check(self._pg.get_result(), pq.ExecStatus.COPY_OUT)
                self._begun = True
            _, last = read_frames(self._pg.get_copy_data, messages, messages_max, _TAKE_BYTES)
            if last < 0:
                self._end()
                return messages, True
        except psycopg.OperationalError as error:
            raise PostgresUnavailable(f"the connection to PostgreSQL ended: {_said(error)}") from error
        return messages, False

    def close(self) -> None:
        """End the connection, and with it the transaction and its locks."""
        with suppress(psycopg.Error):
            self._conn.close()

    def _end(self) -> None:
        while (result := self._pg.get_result()) is not None:  # the trailer has come: so this does not wait long
            self._check(result, pq.ExecStatus.COMMAND_OK)
        self.unit = None

    def _check(self, result: pq.abc.PGresult | None, wanted: pq.ExecStatus) -> None:
        if result is not None and result.status == wanted:
            return
        state = b"" if result is None else result.error_field(pq.DiagnosticField.SQLSTATE) or b""
        text = self._pg.get_error_message() if result is None else result.error_message.decode(errors="replace")
        raise self._named(state.decode(), text.strip())

    def _named(self, sqlstate: str, said: str) -> CdcdError:
        unit = self.unit
        what = "the snapshot" if unit is None else f"the snapshot of {unit.heap.schema}.{unit.heap.name}"
        if sqlstate == "42501":
            return RequestRejected(
                f"{what} could not be read: {said}",
                "GRANT SELECT on the published tables (and USAGE on their schemas) to the role of source.dsn; "
                "with row security, the role needs BYPASSRLS",
            )
        if sqlstate == LOCK_NOT_AVAILABLE:
            return SnapshotGone(f"{what} could not be read, for a table is being altered: {said}")
        if sqlstate[:2] in ("42", "0A"):
            return SnapshotGone(f"{what} could not be read, for the table was altered meanwhile: {said}")
        if sqlstate[:2] in ("08", "53", "57", "40", "") or self._pg.status != pq.ConnStatus.OK:
            return PostgresUnavailable(f"{what} could not be read: {said}")
        return RequestRejected(f"{what} could not be read: {said} ({sqlstate})", "Mend the table, or leave it out")


def copy_statement(unit: Chunk, columns: Sequence[sql.Composable], row_filter: str) -> sql.Composed:
    """The COPY that reads a unit. Text form of xmin, for there is no cast of xid to a number."""
    conditions: list[sql.Composable] = []
    if unit.heap.in_blocks:
        if unit.first:
            conditions.append(sql.SQL("ctid >= {}").format(sql.Literal(f"({unit.first},0)")))
        if not unit.last:
            conditions.append(sql.SQL("ctid < {}").format(sql.Literal(f"({unit.end},0)")))
    if unit.changed_since is not None:
        since = sql.Literal(unit.changed_since & XID_MASK)
        conditions.append(sql.SQL("(xmin::text::bigint - {} + 4294967296) % 4294967296 < 2147483648").format(since))
    if row_filter:
        # The server's own text, from pg_get_expr.
        conditions.append(sql.SQL("({})").format(sql.SQL(row_filter)))
    where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL("")
    return sql.SQL("COPY (SELECT {} FROM ONLY {}{}) TO STDOUT (FORMAT binary)").format(
        sql.SQL(", ").join(columns), sql.Identifier(unit.heap.schema, unit.heap.name), where
    )


def _said(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip().split("\n", 1)[0]
