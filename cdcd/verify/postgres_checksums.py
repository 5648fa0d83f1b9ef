"""Checksums of tables as they stood at one exact LSN, made by the server; and the rows of the parts that differ.

Before: `verify` names the publication. After: it compares with what the topics give, part by part.
Source: PostgreSQL, CREATE_REPLICATION_SLOT (SNAPSHOT 'export'), SET TRANSACTION SNAPSHOT.

A snapshot of its own has no exact place in the WAL: between the two questions something commits. But a new slot's
exported snapshot shows exactly what was committed before the slot's consistent point. So a temporary slot is made, a
transaction takes its snapshot, and the slot is gone again.

A piece, a bucket and a digest are what `fold` says; `concat` is the type's output function, where a cast may differ.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import psycopg
from psycopg import sql

from cdcd.errors import RequestRejected
from cdcd.source import server_errors
from cdcd.source.connection import Connection
from cdcd.source.session import parameters, refused

Row: TypeAlias = "tuple[str, list[str], str]"
"""Bucket, the key's pieces (of the whole row where there is no key), the row's digest."""

_FETCH_ROWS: Final = 5_000

_TABLE: Final = """
    SELECT c.relkind::text, to_jsonb(p)->>'rowfilter'
    FROM pg_catalog.pg_publication_tables p
    JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_catalog.pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid
    WHERE p.pubname = %s AND p.schemaname = %s AND p.tablename = %s
"""


@dataclass(frozen=True)
class ChecksummedTable:
    """What of a table is compared. `key`: the names of its key's columns, none if it has no key."""

    publication: str
    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


class Checksums:
    """A transaction that sees the database as of `lsn`: everything that was committed before it, and nothing else."""

    def __init__(self, dsn: str, application_name: str, *, short: int, bucket_digits: int, sum_digits: int) -> None:
        """Take the snapshot. Waits for the transactions that are writing now, as every new slot does.

        Raises RequestRejected or PostgresUnavailable, as `Connection` does. The three numbers are `fold`'s.
        """
        self._short = short
        self._bucket_digits = bucket_digits
        self._sum_digits = sum_digits
        self._stack = ExitStack()
        with Connection(dsn, application_name) as walsender:
            slot = walsender.create_slot(f"cdcd_verify_{os.getpid()}", temporary=True, export_snapshot=True)
            self.lsn = slot.consistent_lsn
            params = parameters(dsn, application_name)
            try:
                self._connection = psycopg.connect(**params, prepare_threshold=None)
                self._stack.callback(self._connection.close)
                self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                self._connection.read_only = True
                self._connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(slot.snapshot or ""))
                self._connection.execute("SET LOCAL row_security = off")
            except psycopg.Error as error:
                self._stack.close()
                if not hasattr(self, "_connection"):
                    raise server_errors.connection_refused(str(error), str(params.get("user", ""))) from error
                raise refused(error) from error
        utf8 = self._connection.info.parameter_status("server_encoding") in {"UTF8", "SQL_ASCII"}
        self._utf8 = sql.SQL("{}" if utf8 else "convert_to({}, 'UTF8')")

    def parts(self, table: ChecksummedTable) -> Iterator[tuple[str, int, int]]:
        """The bucket, the number of rows, and the sum of their digests, of each part that has rows."""
        query = sql.SQL(
            "SELECT bucket, count(*), sum(('x' || substr(digest, 1, {digits}))::bit({bits})::bigint)"
            " FROM ({rows}) AS digests GROUP BY bucket"
        ).format(digits=sql.Literal(self._sum_digits), bits=sql.Literal(4 * self._sum_digits), rows=self._rows(table))
        for bucket, rows, total in self._stream(query):
            yield bucket, rows, int(total)

    def rows(self, table: ChecksummedTable, buckets: Sequence[str]) -> Iterator[Row]:
        """The rows of these parts, by bucket."""
        # No placeholders: a table's own name may look like one.
        query = sql.SQL(
            'SELECT bucket, key, digest FROM ({}) AS digests WHERE bucket = ANY({}) ORDER BY bucket COLLATE "C"'
        )
        yield from self._stream(query.format(self._rows(table), sql.Literal(list(buckets))))

    def close(self) -> None:
        """End the transaction."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(self, table: ChecksummedTable) -> sql.Composed:
        """A query for the bucket, key and digest of every row that is published."""
        try:
            [(kind, row_filter)] = self._connection.execute(_TABLE, (table.publication, table.schema, table.name))
        except ValueError:
            raise RequestRejected(f"the table {table.schema}.{table.name} is not published any more") from None
        except psycopg.Error as error:
            raise refused(error) from error
        columns = sql.SQL(", ").join(map(self._piece, table.columns))
        key = sql.SQL(", ").join(map(self._piece, table.key or table.columns))
        pieces = sql.SQL("SELECT ARRAY[{key}]::text[] AS key, {row} AS digest FROM {only}{table} AS t{where}").format(
            key=key,
            row=self._md5(sql.SQL("array_to_string(ARRAY[{}]::text[], '')").format(columns)),
            only=sql.SQL("" if kind == "p" else "ONLY "),
            table=sql.Identifier(table.schema, table.name),
            where=sql.SQL(f" WHERE {row_filter}") if row_filter else sql.SQL(""),
        )
        joined = sql.SQL("array_to_string(key, '')")
        # A row without a key is in the part that its digest says: that is its key.
        bucket = self._md5(joined) if table.key else sql.SQL("md5(digest)")
        return sql.SQL("SELECT substr({bucket}, 1, {digits}) AS bucket, key, digest FROM ({pieces}) AS pieces").format(
            bucket=bucket, digits=sql.Literal(self._bucket_digits), pieces=pieces
        )

    def _piece(self, column: str) -> sql.Composed:
        text = sql.SQL("concat({})").format(sql.Identifier("t", column))
        size = sql.SQL("octet_length({})").format(self._utf8.format(text))
        # IS NULL would be true of a composite value that holds nothing but nulls.
        return sql.SQL(
            "CASE WHEN {c} IS NOT DISTINCT FROM NULL THEN '-'"
            " WHEN {size} <= {short} THEN {size} || ':' || {text} ELSE '#' || {md5} END"
        ).format(
            c=sql.Identifier("t", column), size=size, short=sql.Literal(self._short), text=text, md5=self._md5(text)
        )

    def _md5(self, text: sql.Composable) -> sql.Composed:
        return sql.SQL("md5({})").format(self._utf8.format(text))

    def _stream(self, query: sql.Composed) -> Iterator[tuple[Any, ...]]:
        try:
            with self._connection.cursor("cdcd_verify") as cursor:
                cursor.itersize = _FETCH_ROWS
                yield from cursor.execute(query)
        except psycopg.Error as error:
            raise refused(error) from error
