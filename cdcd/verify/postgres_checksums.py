"""Lets the server compute checksums of tables as of one exact LSN, and the digests of rows where they differ.

Before: `comparison` names the tables.
After: `comparison` compares the checksums with those of the topics, part by part.
Source: PostgreSQL, "Aggregate Functions", "Binary String Functions" (md5), "DECLARE".

An ordinary snapshot has no exact LSN: other transactions may commit between the snapshot and the query for the LSN. So
this module takes the snapshot of a new slot (`source.exported_snapshot`). It locks the tables until `close`, as a
SELECT does.

`row_store` defines the token of a value, the bucket and the digest. The SQL uses `concat` for a value's text, because
it calls the type's output function. A cast to text may call another function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from psycopg import sql

from cdcd.errors import CdcdError, RequestRejected, TextUnconvertible
from cdcd.pgoutput.tuples import TEXT
from cdcd.snapshot.published_relations import published_relations
from cdcd.snapshot.reader import SnapshotConnection, copied_columns
from cdcd.source.catalog import Catalog
from cdcd.source.connection import Connection
from cdcd.source.exported_snapshot import export_snapshot, lock_tables, until_unaltered
from cdcd.source.heaps import Heap
from cdcd.source.login import Dsn
from cdcd.source.published_tables import published_tables
from cdcd.source.session import Session, connect, parameters
from cdcd.source.slot_wait import SlotWait
from cdcd.transaction.column_rules import NO_RULES, ColumnRules
from cdcd.transaction.relations import Relations, ResolvedRelation
from cdcd.verify.row_store import BUCKET_DIGITS, INLINE_BYTES_MAX, SUM_DIGITS, bucket_of, digest, value_token

Row: TypeAlias = "tuple[str, list[str], str]"
"""Bucket, the key's pieces (of the whole row where there is no key), the row's digest."""

_FETCH_ROWS: Final = 5_000
_MASKED_BUCKETS: Final = 256
"""Rows of so many parts of a masked table are in memory at a time."""


@dataclass(frozen=True)
class ChecksummedTable:
    """The columns of a table to compare. `key`: the names of the key columns; empty if there is no key."""

    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


def _bucket(row: Row) -> str:
    return row[0]


def unconvertible(table: ChecksummedTable) -> RequestRejected:
    """The error of a table with a value that PostgreSQL cannot convert."""
    return RequestRejected(
        f"{table.schema}.{table.name} cannot be compared: PostgreSQL cannot convert one of its values to UTF-8",
        "Name the other tables: cdcd verify TABLE ...",
        code="text-unconvertible",
    )


class Checksums:
    """A transaction that sees tables of a publication as of `lsn`: all earlier commits, and no others."""

    def __init__(
        self,
        dsn: Dsn,
        application_name: str,
        publication: str,
        tables: Sequence[tuple[str, str]],
        primary: Dsn | None = None,
        rules: ColumnRules = NO_RULES,
    ) -> None:
        """Take the snapshot of `tables` (schema, name). The server first waits for the open write transactions.

        `primary`: the primary's, if `dsn` leads to a standby. `rules`: of columns left out or masked.

        Raises RequestRejected or PostgresUnavailable, as `Connection` does. Raises RequestRejected if a table is not
        published any more, or if other sessions keep altering a table.
        """
        self._primary = primary
        self._rules = rules
        with Session(dsn, application_name) as session:
            until_unaltered(lambda: self._take(dsn, application_name, session, publication, tables))
            self.encoding = session.encoding
            utf8 = session.encoding in {"UTF8", "SQL_ASCII"}
        self._utf8 = sql.SQL("{}" if utf8 else "convert_to({}, 'UTF8')")

    def _take(
        self, dsn: Dsn, application_name: str, session: Session, publication: str, tables: Sequence[tuple[str, str]]
    ) -> None:
        connection = SnapshotConnection(connect(parameters(dsn, application_name)))
        try:
            with (
                Connection(dsn, application_name) as maker,
                SlotWait(session, self._primary, is_standby=maker.standby, application_name=application_name) as wait,
            ):
                slot = export_snapshot(maker, session, meanwhile=wait.look)
                connection.import_snapshot(slot.snapshot or "")
            published = {(table.schema, table.name): table for table in published_tables(connection, publication)}
            if missing := [table for table in tables if table not in published]:
                raise RequestRejected(
                    f"the table {'.'.join(missing[0])} is not published any more", code="tables-missing"
                )
            wanted = [published[table] for table in tables]
            oids = [table.oid for table in wanted]
            relations = Relations(Catalog(session, publication), rules=self._rules)
            described = [relations.resolve(each.relation) for each in published_relations(connection, publication)]
            heaps = lock_tables(connection, session, oids, [table.expression for table in wanted])
        except BaseException:
            connection.close()
            raise
        self.lsn = slot.consistent_lsn
        self.connection = connection
        self._published = published
        self._heaps = heaps
        self._relations = {(each.schema, each.name): each for each in described}

    def parts(self, table: ChecksummedTable) -> Iterator[tuple[str, int, int]]:
        """For each part that has rows: its bucket, its number of rows, and the sum of their digests."""
        if self._is_masked(table):
            yield from self._masked_parts(table)
            return
        query = sql.SQL(
            "SELECT bucket, count(*), sum(('x' || substr(digest, 1, {digits}))::bit({bits})::bigint)"
            " FROM ({rows}) AS digests GROUP BY bucket"
        ).format(digits=sql.Literal(SUM_DIGITS), bits=sql.Literal(4 * SUM_DIGITS), rows=self._rows(table))
        try:
            for bucket, rows, total in self._stream(query):
                yield bucket, rows, int(total)
        except TextUnconvertible as error:
            raise unconvertible(table) from error

    def rows(self, table: ChecksummedTable, buckets: Sequence[str]) -> Iterator[Row]:
        """The rows of these parts, in the order of the buckets."""
        if self._is_masked(table):
            wanted = sorted(buckets)
            for at in range(0, len(wanted), _MASKED_BUCKETS):
                some = frozenset(wanted[at : at + _MASKED_BUCKETS])
                yield from sorted((row for row in self._masked_rows(table) if row[0] in some), key=_bucket)
            return
        # The query has no placeholders: a % in the name of a table could look like one.
        query = sql.SQL(
            'SELECT bucket, key, digest FROM ({}) AS digests WHERE bucket = ANY({}) ORDER BY bucket COLLATE "C"'
        )
        yield from self._stream(query.format(self._rows(table), sql.Literal(list(buckets))))

    def heaps(self, table: ChecksummedTable) -> list[Heap]:
        """Where the rows of a table lie."""
        return self._heaps[self._published[table.schema, table.name].oid]

    def relation(self, table: ChecksummedTable) -> ResolvedRelation:
        """The table as the stream would describe it."""
        return self._relations[table.schema, table.name]

    def row_filter(self, table: ChecksummedTable) -> str:
        """The SQL condition of the rows that are published; empty if all are."""
        return self._published[table.schema, table.name].row_filter

    def rows_at(self, table: ChecksummedTable, heap: Heap, places: Iterable[tuple[int, int]]) -> Iterator[Row]:
        """The rows of a heap at these places: block and number."""
        tids = "{" + ",".join(f'"({block},{item})"' for block, item in places) + "}"
        where = sql.SQL(" WHERE t.ctid = ANY({}::pg_catalog.tid[])").format(sql.Literal(tids))
        expression = sql.SQL("ONLY {}").format(sql.Identifier(heap.schema, heap.name))
        if self._is_masked(table):
            yield from self._masked_rows(table, expression, where)
            return
        yield from self._stream(self._rows(table, expression, where))

    def close(self) -> None:
        """End the transaction."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(
        self, table: ChecksummedTable, expression: sql.Composable | None = None, where: sql.Composable | None = None
    ) -> sql.Composed:
        """A query for the bucket, key and digest of every row that is published.

        `expression` and `where`: only of these rows.
        """
        published = self._published[table.schema, table.name]
        columns = sql.SQL(", ").join(self._piece(column, is_key=column in table.key) for column in table.columns)
        key = sql.SQL(", ").join(
            self._piece(column, is_key=column in table.key) for column in table.key or table.columns
        )
        pieces = sql.SQL("SELECT ARRAY[{key}]::text[] AS key, {row} AS digest FROM {table} AS t{where}").format(
            key=key,
            row=self._md5(sql.SQL("array_to_string(ARRAY[{}]::text[], '')").format(columns)),
            table=expression or sql.SQL(published.expression),
            where=where or sql.SQL(f" WHERE {published.row_filter}" if published.row_filter else ""),
        )
        joined = sql.SQL("array_to_string(key, '')")
        # Without a key, the digest of the row serves as its key.
        bucket = self._md5(joined) if table.key else sql.SQL("md5(digest)")
        return sql.SQL("SELECT substr({bucket}, 1, {digits}) AS bucket, key, digest FROM ({pieces}) AS pieces").format(
            bucket=bucket, digits=sql.Literal(BUCKET_DIGITS), pieces=pieces
        )

    def _is_masked(self, table: ChecksummedTable) -> bool:
        return any(column.is_masked for column in self.relation(table).columns)

    def _masked_parts(self, table: ChecksummedTable) -> Iterator[tuple[str, int, int]]:
        parts: dict[str, tuple[int, int]] = {}
        for bucket, _, row in self._masked_rows(table):
            rows, total = parts.get(bucket, (0, 0))
            parts[bucket] = rows + 1, total + int(row[:SUM_DIGITS], 16)
        for bucket, (rows, total) in parts.items():
            yield bucket, rows, total

    def _masked_rows(
        self, table: ChecksummedTable, expression: sql.Composable | None = None, where: sql.Composable | None = None
    ) -> Iterator[Row]:
        """As `_rows`, made here: no statement has the secret, which the server could log."""
        published, masking = self._published[table.schema, table.name], self.relation(table).masking
        assert masking is not None
        texts = copied_columns(table.columns, bytes([TEXT]) * len(table.columns))
        query = sql.SQL("SELECT {columns} FROM {table} AS t{where}").format(
            columns=sql.SQL(", ").join(sql.SQL("pg_catalog.textsend({})").format(text) for text in texts),
            table=expression or sql.SQL(published.expression),
            where=where or sql.SQL(f" WHERE {published.row_filter}" if published.row_filter else ""),
        )
        try:
            for values in self._stream(query):
                tokens = []
                for column, value in zip(table.columns, values, strict=True):
                    text = masking.text(column, value)
                    shown = None if text is None else text.decode("utf-8", "surrogateescape")
                    tokens.append(value_token(shown, is_key=column in table.key))
                key = [tokens[table.columns.index(column)] for column in table.key] or tokens
                row = digest(tokens)
                yield bucket_of("".join(key) if table.key else row), key, row
        except TextUnconvertible as error:
            raise unconvertible(table) from error

    def _piece(self, column: str, *, is_key: bool) -> sql.Composed:
        text = sql.SQL("concat({})").format(sql.Identifier("t", column))
        size = sql.SQL("octet_length({})").format(self._utf8.format(text))
        # IS NULL is also true for a composite value whose fields are all null.
        return sql.SQL(
            "CASE WHEN {c} IS NOT DISTINCT FROM NULL THEN '-'"
            " WHEN {whole} OR {size} <= {short} THEN {size} || ':' || {text} ELSE '#' || {md5} END"
        ).format(
            c=sql.Identifier("t", column),
            size=size,
            whole=sql.Literal(is_key),
            short=sql.Literal(INLINE_BYTES_MAX),
            text=text,
            md5=self._md5(text),
        )

    def _md5(self, text: sql.Composable) -> sql.Composed:
        return sql.SQL("md5({})").format(self._utf8.format(text))

    def _stream(self, query: sql.Composed) -> Iterator[tuple[Any, ...]]:
        self.connection.rows(sql.SQL("DECLARE checksums NO SCROLL CURSOR FOR {}").format(query))
        try:
            while rows := self.connection.rows(f"FETCH {_FETCH_ROWS} FROM checksums"):
                yield from rows
        finally:
            with suppress(CdcdError):  # after an error the transaction has ended, and with it the cursor
                self.connection.rows("CLOSE checksums")
