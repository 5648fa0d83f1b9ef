"""Tables of PostgreSQL as they stand at one LSN, read by many tasks at once, under one exported snapshot.

Before: a DSN and a publication. After: `Mirror.load` puts the rows into the lake, `verify` compares by them.
Source: PostgreSQL, "CREATE_REPLICATION_SLOT" (EXPORT_SNAPSHOT), "SET TRANSACTION SNAPSHOT"; Spark, "JDBC To Other
Databases" (sessionInitStatement, fetchsize).

A temporary slot gives a snapshot and the LSN that it stands for: a transaction is in it exactly if it committed below.
The connection that made it must stay open, and idle, until every task has begun. Each task reads a range of ctids
in a transaction of its own that has taken that snapshot: this holds only with a fetchsize, without which Spark commits
first and reads live rows without a word; so it is set here, always.

Each table is locked (ACCESS SHARE, as by a SELECT) until the end, so that nobody rewrites it while it is read. One that
was rewritten between snapshot and lock would look empty: its file node is another one, and a new snapshot is taken.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import psycopg
from psycopg import conninfo, sql
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from cdcd.errors import PostgresUnavailable, RequestRejected, SettingsError
from cdcd.lsn import parse_lsn
from cdcd.reading.table_schemas import TableSchemas, published_schemas
from cdcd.sink.topics import TopicNames
from cdcd.spark import sql_expressions as c
from cdcd.spark.reading.types import ddl, logical
from cdcd.spark.reading.writer_schemas import Writer, writer
from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, SEQ, UNREPRESENTABLE

FETCH_ROWS: Final = 2_000
SNAPSHOT_SEQ: Final = -1

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
"""Where rows of the tables lie. The catalog's file node is of the snapshot, the function's of now; one that was made
since has no row in the snapshot's catalog."""

_INTEGERS: Final = ("int2", "int4", "int8")
_DRIVER: Final = "org.postgresql.Driver"
_PASSED: Final = {"user": "user", "password": "password", "sslmode": "sslmode", "sslrootcert": "sslrootcert",
                  "sslcert": "sslcert", "sslkey": "sslkey", "application_name": "ApplicationName"}  # fmt: skip


class Snapshot:
    """An exported snapshot, from `with` to its end. Needs a role with REPLICATION that may read the tables."""

    def __init__(
        self,
        spark: SparkSession,
        dsn: str,
        publication: str,
        names: TopicNames,
        tables: Sequence[str],
        parallelism: int,
    ) -> None:
        self._spark = spark
        self._dsn = dsn
        self._parallelism = parallelism
        found = published_schemas(dsn, publication, names)
        self.tables: dict[str, TableSchemas] = {
            name: made for name, made in found.items() if any(fnmatchcase(name, each) for each in tables)
        }
        """By schema.table."""
        if not self.tables:
            raise RequestRejected(
                f"no table of the publication {publication} matches {', '.join(tables)}",
                "cdcd schema lists the published tables; publication= names another publication",
            )
        self.lsn = 0
        self.name = ""
        self._connection: psycopg.Connection[Any] | None = None
        self._holder: psycopg.Connection[Any] | None = None
        """Has the locks."""

    def __enter__(self) -> Self:
        try:
            tries = 1
            self._export()
            while rewritten := self._lock():
                self._close()
                if tries == _TRIES:
                    raise RequestRejected(
                        f"{rewritten[0]} was rewritten while a snapshot was taken, {tries} times",
                        "Take it while nobody alters or truncates the table",
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
                "It takes a role with REPLICATION, a free slot (max_replication_slots) and wal_level = logical",
            ) from error
        assert created is not None
        self.lsn, self.name = parse_lsn(created[1]), created[2]

    def _lock(self) -> list[str]:
        """Lock the tables and their partitions; those that the snapshot does not show any more as they were."""
        names = [self._whole(table) for table in self.tables]
        try:
            self._holder = holder = psycopg.connect(self._dsn, autocommit=True)
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            holder.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self.name)))
            holder.execute(f"SET LOCAL lock_timeout = {_LOCK_WAIT_MS}".encode())
            holder.execute(b"SET LOCAL idle_in_transaction_session_timeout = 0")
            for _, schema, name, _ in holder.execute(_HEAPS, [names]).fetchall():
                if name is not None:
                    heap = sql.Identifier(schema, name)
                    holder.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(heap))
            # Asked again: before the lock it may have become another one.
            return [shown for shown, _, _, is_same in holder.execute(_HEAPS, [names]) if not is_same]
        except psycopg.Error as error:
            raise RequestRejected(
                f"PostgreSQL does not lock the tables for a snapshot: {str(error).strip()}",
                "The role needs SELECT on them; wait until whoever alters one of them has ended",
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

    def writer(self, table: str) -> Writer:
        """The schema that the daemon would publish the table's events with now."""
        return writer(b"", json.dumps(self.tables[table].value))

    def key(self, table: str) -> tuple[str, ...]:
        """The columns of the table's key; none if it has none."""
        made = self.tables[table].key
        return () if made is None else tuple(e["name"] for e in made["fields"] if "pg_type" in e)

    def rows(self, table: str) -> DataFrame:
        """The table's rows with the columns that a mirror has: the META ones, too."""
        described = {each["name"]: each for each in self.writer(table).described()}
        selected, made, lost = [], [], {}
        for column in self.writer(table).columns:
            name, avro = column["name"], column["type"]
            expression = c.quoted(c.postgres_name(described[name]))
            fits = c.representable(expression, avro)
            sent, value = _transported(expression, name, avro, described[name]["pg_type"])
            if fits != "true":
                # Without the cast JDBC would not know a numeric's scale: CASE forgets it.
                kept = f"::numeric({avro['precision']},{avro['scale']})" if logical(avro) == "decimal" else ""
                sent = f"(CASE WHEN {fits} THEN {sent} END){kept}"
            selected.append(f"{sent} AS {c.quoted(name)}")
            made.append(value.alias(name))
            if fits != "true":
                lost[fits] = f"'{name}', CASE WHEN NOT ({fits}) THEN format('%s', {expression}) END"
        read = self.read(table, f"{', '.join(selected)}, {_texts(lost)} AS {UNREPRESENTABLE}")
        return read.select(
            *made,
            f.lit(self.lsn).cast("bigint").alias(COMMIT_LSN),
            f.lit(SNAPSHOT_SEQ).cast("bigint").alias(SEQ),
            f.lit(None).cast("timestamp").alias(COMMIT_TS),
            f.from_json(UNREPRESENTABLE, "map<string,string>").alias(UNREPRESENTABLE),
        )

    def read(self, table: str, selected: str, where: str = "true") -> DataFrame:
        """`SELECT selected FROM table` where that meets `where`, under the snapshot, in ranges of ctids."""
        whole, published = self._whole(table), self._published(table)
        # The ctid goes along for the ranges only: Spark prunes it from what it selects.
        query = f"(SELECT * FROM (SELECT ctid AS _ctid, {selected} FROM {whole} WHERE {published}) x WHERE {where}) t"
        url, properties = self._properties()
        ranges = [condition.replace("ctid", "_ctid") for condition in self._ranges(whole)]
        return self._spark.read.jdbc(url, query, predicates=ranges, properties=properties).drop("_ctid")

    def sums(self, table: str, group: str, value: str, selected: str) -> DataFrame:
        """Of each group of `SELECT selected FROM table`, in each range: the group, its rows, the sum of `value`."""
        whole, published = self._whole(table), self._published(table)
        url, properties = self._properties()
        parts = [
            self._spark.read.jdbc(
                url,
                f"(SELECT {group}, count(*) AS rows, sum({value})::numeric(38,0) AS total"
                f" FROM (SELECT {selected} FROM {whole} WHERE {published} AND {condition}) x GROUP BY 1) t",
                predicates=["true"],
                properties=properties,
            )
            for condition in self._ranges(whole)
        ]
        return reduce(DataFrame.unionAll, parts)

    def _whole(self, table: str) -> str:
        if not self.name:
            raise SettingsError("the snapshot is not open", "Use it inside `with cdc.snapshot(...) as snapshot`")
        schema, _, name = table.partition(".")
        return f"{c.quoted(schema)}.{c.quoted(name)}"

    def _published(self, table: str) -> str:
        """Which rows are published at all."""
        row_filter = self.tables[table].row_filter
        return f"({row_filter})" if row_filter else "true"

    def _properties(self) -> tuple[str, dict[str, str]]:
        url, properties = jdbc(self._dsn)
        return url, properties | {
            "fetchsize": str(FETCH_ROWS),
            "prepareThreshold": "-1",  # pgjdbc: binary from the first execution on
            "sessionInitStatement": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
            f" SET TRANSACTION SNAPSHOT '{self.name}'; SET LOCAL extra_float_digits = 1; SET LOCAL TimeZone = 'UTC';"
            " SET LOCAL IntervalStyle = 'postgres'; SET LOCAL DateStyle = 'ISO,MDY'; SET LOCAL row_security = off",
        }

    def _ranges(self, whole: str) -> list[str]:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            row = connection.execute(
                b"SELECT relkind::text, pg_relation_size(oid) / current_setting('block_size')::int"
                b" FROM pg_class WHERE oid = %s::regclass",
                [whole],
            ).fetchone()
        assert row is not None
        pieces = self._parallelism if row[0] in ("r", "m") else 1  # a partitioned table has its leaves' ctids, mixed
        return ctid_ranges(int(row[1]), pieces)


def ctid_ranges(pages: int, pieces: int) -> list[str]:
    """Conditions that divide a table of so many pages into at most so many pieces; the last one is open-ended."""
    step = max(1, -(-pages // max(1, pieces)))
    bounds = list(range(0, max(1, pages), step))
    return [
        f"ctid >= '({low},0)'::tid" + (f" AND ctid < '({low + step},0)'::tid" if low != bounds[-1] else "")
        for low in bounds
    ]


def jdbc(dsn: str) -> tuple[str, dict[str, str]]:
    """A libpq connection string as a JDBC URL and its properties."""
    parts: Mapping[str, Any] = conninfo.conninfo_to_dict(dsn)
    host = str(parts.get("host") or "localhost").split(",")[0]
    if host.startswith("/"):
        raise SettingsError("JDBC cannot use the socket directory that the DSN names", "Give a host: host=localhost")
    port = str(parts.get("port") or 5432).split(",")[0]
    properties = {theirs: str(parts[ours]) for ours, theirs in _PASSED.items() if ours in parts}
    if "password" not in properties and "PGPASSWORD" in os.environ:
        properties["password"] = os.environ["PGPASSWORD"]
    return f"jdbc:postgresql://{host}:{port}/{parts.get('dbname', '')}", {"driver": _DRIVER, **properties}


def _texts(lost: Mapping[str, str]) -> str:
    """What PostgreSQL sends for UNREPRESENTABLE: JSON of the texts of values that do not fit, NULL if all do.

    `lost`: by condition, the name and the text. The JSON is made where one is not met: making it takes 2 us a row.
    """
    if not lost:
        return "NULL::text"
    pairs = list(lost.values())  # of a name and a text; a function has at most 100 arguments
    some = [f"jsonb_build_object({', '.join(pairs[at : at + 50])})" for at in range(0, len(pairs), 50)]
    texts = f"jsonb_strip_nulls({' || '.join(some)})::text"
    return f"CASE WHEN NOT ({' AND '.join(lost)}) THEN {texts} END"


def _transported(expression: str, name: str, avro: Any, pg_type: str) -> tuple[str, Column]:
    """What PostgreSQL sends of a column, and how Spark makes the value of it."""
    kind = logical(avro)
    sent = f.col(name)
    if c.direct(avro):
        cast = "::text::bigint" if kind == "long" and pg_type not in _INTEGERS else ""  # oid, xid8: JDBC has no such
        if kind == "bytes":
            cast = "::bytea"  # a geometry would come as its text
        return f"({expression}{cast})", sent.cast(ddl(avro))
    if kind == "array" and logical(avro["items"]) not in ("array", "map", "record"):
        item = c.text_in_postgres("x", avro["items"]) if not _by_text(avro["items"]) else "x::text"
        items = f"({expression})::real[]" if c.is_vector(pg_type) else expression
        texts = f"(SELECT array_agg({item} ORDER BY o) FROM unnest({items}) WITH ORDINALITY u(x, o))"
        whole = f"CASE WHEN {expression} IS NOT NULL THEN coalesce({texts}, '{{}}'::text[]) END"
        return f"({whole})", f.transform(sent, lambda each: c.value_from(each, avro["items"]))
    if kind == "map":
        return f"hstore_to_json({expression})::text", f.from_json(sent, ddl(avro))
    if kind in ("array", "record") and not c.comparable(avro, pg_type):
        raise RequestRejected(
            f"column {name} is of type {pg_type}, which cannot be loaded from PostgreSQL directly",
            "Let the daemon copy the table: cdcd snapshot",
        )
    if kind == "record":
        parts = f.split(sent, ",")
        fields = [f.element_at(parts, index + 1).cast("bigint") for index in range(3)]
        typed = [e.cast(ddl(each["type"])).alias(each["name"]) for e, each in zip(fields, avro["fields"], strict=True)]
        return c.text_in_postgres(expression, avro), f.when(sent.isNotNull(), f.struct(*typed))
    return c.sent_by_postgres(expression, avro, pg_type), c.value_from(sent, avro)


def _by_text(avro: Any) -> bool:
    return logical(avro) in ("double", "float")
