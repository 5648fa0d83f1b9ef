"""A connection that reads tables under an exported snapshot, one COPY at a time. Thin I/O.

An ALTER TABLE or a TRUNCATE waits for every transaction that has read the table, and everybody else waits behind it. So
a connection may read each heap in a transaction of its own, which imports the snapshot again (`share_snapshot`): a
table is locked only while it is read. Before the first COPY of a heap, under the lock, the connection makes sure that
the heap is as the snapshot shows it. Otherwise a heap that was rewritten would look empty, and COPY, which goes by
names, could read another table or column.

Before: `chunks` says which blocks. After: `copy_format` takes the messages of COPY, one row each.
Source: PostgreSQL, "SET TRANSACTION" (SNAPSHOT), "COPY", "System Columns" (ctid, xmin); libpq, "Functions Associated
with the COPY Command".

Only the statements at the start wait. `read` returns what has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import pq, sql

from cdcd.errors import CdcdError, PostgresUnavailable, RequestRejected, TextUnconvertible
from cdcd.pgoutput.tuples import BINARY, TEXT
from cdcd.snapshot.chunks import XID_MASK, Chunk
from cdcd.source.copy_data import read_frames
from cdcd.source.identifiers import identifier
from cdcd.source.server_errors import (
    LOCK_NOT_AVAILABLE,
    UNCONVERTIBLE,
    UNCONVERTIBLE_HINT,
    SnapshotGone,
    dropped_meanwhile,
    is_passing,
    unavailable,
)
from cdcd.transaction.relations import ResolvedRelation

INPUT_BUFFER_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 19


class SnapshotConnection:
    """A transaction that sees the tables as of one snapshot. For one thread at a time."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """`connection`: from `session.connect`. Raises PostgresUnavailable if it has ended."""
        self.chunk: Chunk | None = None
        """The chunk that is being read; None between two."""
        self.has_more = False
        """The last `read` has left messages that no socket announces."""
        self.read_bytes = 0
        """The bytes that the last `read` returned."""
        self._shared_snapshot = ""
        self._locked_heap = 0
        self._is_leaving = False
        """The result of the COMMIT of `leave` was not taken."""
        self._entering: list[str] = []
        """The statements before COPY whose results have not come."""
        self._numbers: Mapping[str, int] = {}
        self._conn = connection
        try:
            self._conn.execute("SET lock_timeout TO '1s'")  # the server does not tell the size of a locked table
            # libpq's input buffer grows to what it once held: see `Connection.enlarge_read_buffer`.
            self._conn.execute("SELECT pg_catalog.repeat('x', %s)", [INPUT_BUFFER_BYTES])
        except psycopg.Error as error:
            self._conn.close()
            raise unavailable(
                error.sqlstate or "", f"a connection for a snapshot could not be made: {_message(error)}"
            ) from error
        self._pg = self._conn.pgconn
        self._is_tls = self._pg.ssl_in_use
        self._user = self._conn.info.user
        self._has_begun = False
        self._encoding = "UTF8"

    def import_snapshot(self, snapshot: str) -> None:
        """Import a snapshot, once. Its exporter must not have run another statement since.

        Raises PostgresUnavailable if that fails.
        """
        try:
            self._conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._conn.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        except psycopg.Error as error:
            raise unavailable(error.sqlstate or "", f"a snapshot could not be imported: {_message(error)}") from error

    def export_snapshot(self) -> str:
        """Export the imported snapshot under another name, which lasts as long as this transaction.

        Raises what `rows` raises.
        """
        [(name,)] = self.rows("SELECT pg_catalog.pg_export_snapshot()")
        return str(name)

    def end_transaction(self) -> None:
        """End the transaction that has imported a snapshot, and with it its locks. Raises what `rows` raises."""
        self.rows("COMMIT")

    def share_snapshot(self, snapshot: str) -> None:
        """From now on read each heap in a transaction of its own that imports this snapshot."""
        self._shared_snapshot = snapshot

    def rows(self, query: sql.Composed | str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement as of the snapshot, and return its rows.

        Raises SnapshotGone, RequestRejected, or PostgresUnavailable if the server is gone.
        """
        try:
            cursor = self._conn.execute(query, values)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._to_cdcd_error(error.sqlstate or "", _message(error)) from error

    def take_any_encoding(self, encoding: str) -> None:
        """Take text as it is stored, from a database with this encoding, by PostgreSQL's name.

        `rows` returns bytes for text from now on.
        """
        self.rows("SET client_encoding TO 'SQL_ASCII'")
        self._encoding = encoding

    def fileno(self) -> int:
        """Return the socket, to wait on."""
        return self._pg.socket

    def start(
        self, chunk: Chunk, columns: Sequence[sql.Composable], row_filter: str, numbers: Mapping[str, int]
    ) -> None:
        """Begin to read a chunk. `columns` are selected, `row_filter` is the publication's SQL, or empty.

        `numbers`: by name, the numbers that the columns have under the snapshot. Raises PostgresUnavailable if the
        connection has ended, else what `rows` raises.
        """
        statements: list[sql.Composable] = []
        self._entering = []
        if self._shared_snapshot and chunk.heap.oid != self._locked_heap:
            entering = _entering(chunk, self._shared_snapshot, list(numbers), ends_other=self._locked_heap != 0)
            self._entering = list(entering)
            statements += entering.values()
        self._locked_heap = chunk.heap.oid
        self._numbers = numbers
        statements.append(copy_statement(chunk, columns, row_filter))
        if self._is_leaving:
            self._is_leaving = False
            self._take_end()  # came long ago: nobody pauses and resumes within a round trip
        self._send(self._encoded(sql.SQL("; ").join(statements).as_bytes()))
        self.chunk = chunk
        self._has_begun = False

    def leave(self) -> None:
        """Between two chunks: begin to end the transaction of the heap, so that nobody waits for its lock.

        Never waits. Raises PostgresUnavailable if the connection has ended.
        """
        if self._locked_heap and self._shared_snapshot:
            self._locked_heap = 0
            self._is_leaving = True
            self._send(b"COMMIT")

    def read(self, messages_max: int, bytes_max: int = _READ_BYTES) -> tuple[list[bytes], bool]:
        """Return the messages that have come, and whether they were the last (`chunk` is None then).

        At most `messages_max`, and no further one once they have `bytes_max` bytes; never waits. What libpq has read
        comes first: it would move the rest of its buffer at each reading of the socket, or make the buffer larger.
        One call reads the socket once. With TLS one reading brings at most one message, so the call reads the socket
        until it is empty. Raises what `rows` raises.
        """
        messages: list[bytes] = []
        self.has_more = False
        self.read_bytes = 0
        try:
            if not self._has_begun:
                self._pg.consume_input()
            while not self._has_begun:
                if self._pg.is_busy():
                    return messages, False
                if self._entering:
                    self._enter(self._pg.get_result())
                else:
                    self._check(self._pg.get_result(), pq.ExecStatus.COPY_OUT)
                    self._has_begun = True
            get, bytes_max, has_consumed = self._pg.get_copy_data, min(bytes_max, _READ_BYTES), False
            while True:
                taken, last = read_frames(get, messages, messages_max - len(messages), bytes_max - self.read_bytes)
                self.read_bytes += taken
                if last or (has_consumed and not (self._is_tls and taken)):
                    break
                self._pg.consume_input()
                has_consumed = True
            self.has_more = last > 0
            if last < 0:
                self._end()
                return messages, True
        except psycopg.OperationalError as error:
            raise PostgresUnavailable(
                f"the connection to PostgreSQL ended: {_message(error)}", code="postgres-interrupted"
            ) from error
        return messages, False

    def close(self) -> None:
        """End the connection, and with it the transaction and its locks."""
        self._locked_heap = 0
        with suppress(psycopg.Error):
            self._conn.close()

    def _encoded(self, statement: bytes) -> bytes:
        """The statement as the server expects it: without a client encoding, in the database's."""
        if self._encoding in ("UTF8", "SQL_ASCII") or statement.isascii():
            return statement
        [(encoded,)] = self.rows("SELECT pg_catalog.convert(%s, 'UTF8', %s)", [statement, self._encoding])
        return bytes(encoded)

    def _enter(self, result: pq.abc.PGresult | None) -> None:
        """Take the result of a statement before COPY. Raises SnapshotGone if the heap has changed."""
        statement = self._entering.pop(0)
        if statement in (_LOCK, _IDENTIFY):
            self._check(result, pq.ExecStatus.TUPLES_OK)
        elif result is None or result.status != pq.ExecStatus.COMMAND_OK:
            why = self._pg.get_error_message() if result is None else result.error_message.decode(errors="replace")
            raise PostgresUnavailable(
                f"a snapshot could not be imported again: {why.strip()}", code="postgres-interrupted"
            )
        assert result is not None
        assert self.chunk is not None
        heap = self.chunk.heap
        if statement == _LOCK:
            seen = [(result.ftable(at), result.ftablecol(at)) for at in range(result.nfields)]
            is_same = seen == [(heap.oid, number) for number in self._numbers.values()]
        elif statement == _IDENTIFY:
            is_same = [result.get_value(0, at) for at in range(2)] == [b"%d" % heap.oid, b"%d" % heap.file_node]
        else:
            return
        if not is_same:
            raise SnapshotGone(f"{heap.schema}.{heap.name} was altered after the snapshot was taken")

    def _end(self) -> None:
        self._take_end()  # does not wait long: the trailer has come
        self.chunk = None

    def _send(self, statements: bytes) -> None:
        try:
            self._pg.send_query(statements)
            self._pg.flush()
        except psycopg.OperationalError as error:
            raise PostgresUnavailable(
                f"the connection to PostgreSQL ended: {_message(error)}", code="postgres-interrupted"
            ) from error

    def _take_end(self) -> None:
        while (result := self._pg.get_result()) is not None:
            self._check(result, pq.ExecStatus.COMMAND_OK)

    def _check(self, result: pq.abc.PGresult | None, wanted: pq.ExecStatus) -> None:
        if result is not None and result.status == wanted:
            return
        if result is None:
            raise self._to_cdcd_error("", self._pg.get_error_message().strip())
        state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
        text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
        raise self._to_cdcd_error(state.decode(), text.decode(errors="replace").strip())

    def _to_cdcd_error(self, sqlstate: str, message: str) -> CdcdError:
        chunk = self.chunk
        what = "the snapshot" if chunk is None else f"the snapshot of {chunk.heap.schema}.{chunk.heap.name}"
        # The rows come, so the table is locked and may be read: a function for one of them has failed.
        is_of_row = chunk is not None and self._has_begun
        if sqlstate == "42501" and not is_of_row:
            role = identifier(self._user)
            hint = f"Let the role {role} SELECT the published columns, with USAGE on the schemas"
            if chunk is not None:
                schema, table = identifier(chunk.heap.schema), identifier(chunk.heap.schema, chunk.heap.name)
                hint = f"Run: GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON {table} TO {role}"
            hint += f". With row security, run as a superuser: ALTER ROLE {role} BYPASSRLS"
            # The rights were there before the first row: the next snapshot leaves the table out.
            kind = RequestRejected if chunk is None else SnapshotGone
            return kind(f"{what} could not be read: {message}", hint, code="select-missing")
        if dropped_meanwhile(sqlstate, message) and not is_of_row:
            return SnapshotGone(f"{what} could not be read, because a table was dropped meanwhile: {message}")
        if sqlstate == LOCK_NOT_AVAILABLE:
            return SnapshotGone(f"{what} could not be read, because a table is being altered: {message}")
        if sqlstate[:2] in ("42", "0A") and not is_of_row:
            return SnapshotGone(f"{what} could not be read, because the table was altered meanwhile: {message}")
        if is_passing(sqlstate) or self._pg.status != pq.ConnStatus.OK:
            return unavailable(sqlstate, f"{what} could not be read: {message}")
        if sqlstate in UNCONVERTIBLE:
            return TextUnconvertible(
                f"{what} could not be read: {message}", UNCONVERTIBLE_HINT, code="text-unconvertible"
            )
        return RequestRejected(
            f"{what} could not be read: {message} ({sqlstate})",
            "Repair the table, or leave it out of the publication",
            code="table-unreadable",
        )


_TEXT: Final = "CASE WHEN {c} IS NOT DISTINCT FROM NULL THEN NULL ELSE pg_catalog.concat({c}) END"
"""`concat` calls the type's output function, as the stream does. A cast to text may call another function."""

_LOCK: Final = "lock"
_IDENTIFY: Final = "identify"


def _entering(chunk: Chunk, snapshot: str, columns: Sequence[str], *, ends_other: bool) -> dict[str, sql.Composable]:
    """The statements that begin the transaction for a heap, and lock the heap, by what they do.

    The result of the SELECT tells which table and columns have these names now.
    """
    heap = sql.Identifier(chunk.heap.schema, chunk.heap.name)
    own: dict[str, sql.Composable] = {"end": sql.SQL("COMMIT")} if ends_other else {}
    return own | {
        "begin": sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        "import": sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)),
        _LOCK: sql.SQL("SELECT {} FROM ONLY {} LIMIT 0").format(sql.SQL(", ").join(map(sql.Identifier, columns)), heap),
        _IDENTIFY: sql.SQL("SELECT {0}::pg_catalog.regclass::oid, pg_catalog.pg_relation_filenode({0})").format(
            sql.Literal(heap.as_string())
        ),
    }


def copied_kinds(relation: ResolvedRelation, have_binary: Iterable[bool]) -> bytes:
    """For each column BINARY, or TEXT if COPY is to send its text. `have_binary`: for each, whether cdcd reads binary.

    A mask is made from the text.
    """
    each = zip(relation.columns, have_binary, strict=True)
    return bytes(BINARY if has_binary and not column.is_masked else TEXT for column, has_binary in each)


def copied_columns(names: Sequence[str], kinds: bytes) -> list[sql.Composable]:
    """The expressions that COPY selects for these columns. `kinds`: BINARY or TEXT for each."""
    return [
        sql.SQL(_TEXT if kind == TEXT else "{c}").format(c=sql.Identifier(name))
        for name, kind in zip(names, kinds, strict=True)
    ]


def copy_statement(chunk: Chunk, columns: Sequence[sql.Composable], row_filter: str) -> sql.Composed:
    """Return the COPY that reads a chunk. It compares xmin by its text: PostgreSQL casts no xid to a number."""
    conditions: list[sql.Composable] = []
    if chunk.heap.in_blocks:
        if chunk.first:
            conditions.append(sql.SQL("ctid >= {}").format(sql.Literal(f"({chunk.first},0)")))
        if not chunk.to_the_end:
            conditions.append(sql.SQL("ctid < {}").format(sql.Literal(f"({chunk.end},0)")))
    if chunk.changed_since is not None:
        since = sql.Literal(chunk.changed_since & XID_MASK)
        conditions.append(sql.SQL("(xmin::text::bigint - {} + 4294967296) % 4294967296 < 2147483648").format(since))
    if row_filter:
        # The text comes from the server: pg_get_expr.
        conditions.append(sql.SQL("({})").format(sql.SQL(row_filter)))
    where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL("")
    # Under this name a condition has been tried: `snapshot_conditions`.
    return sql.SQL("COPY (SELECT {} FROM ONLY {} AS copied{}) TO STDOUT (FORMAT binary)").format(
        sql.SQL(", ").join(columns), sql.Identifier(chunk.heap.schema, chunk.heap.name), where
    )


def _message(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip().split("\n", 1)[0]
