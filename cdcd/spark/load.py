"""Tables of PostgreSQL as they stand at one LSN, read by many Spark tasks at once, under one exported snapshot.

Before: `exported_snapshot` holds the snapshot.
After: `Mirror.load` writes the rows into the lake, `verify` compares them.
Source: Spark, "JDBC To Other Databases" (sessionInitStatement, fetchsize); PostgreSQL, "SET TRANSACTION".

Each task reads a range of ctids in its own transaction, which has taken the snapshot. This holds only if a fetchsize is
set. Without a fetchsize Spark commits first, and silently reads live rows. So this module always sets one.

The search path is empty. Otherwise a function that somebody has made for a type of their own could be called, with the
rights of this role.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from cdcd.avro.type_forms import kind_of
from cdcd.errors import RequestRejected, SettingsError
from cdcd.reading.table_schemas import TableSchemas, selected_schemas
from cdcd.sink.topics import TopicNames
from cdcd.source.exported_snapshot import export_snapshot
from cdcd.source.identifiers import identifier
from cdcd.source.published_tables import PARTITIONED, PublishedTable
from cdcd.source.session import Session, pinning_commands
from cdcd.source.table_selection import shell_word
from cdcd.spark import sql_expressions as c
from cdcd.spark.arguments import TableList, Tables
from cdcd.spark.exported_snapshot import APPLICATION, Export, ExportedSnapshot
from cdcd.spark.reading.types import ddl
from cdcd.spark.reading.writer_schemas import Writer, writer
from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, SEQ, UNREPRESENTABLE

FETCH_ROWS: Final = 2_000
SNAPSHOT_SEQ: Final = -1

_INTEGERS: Final = ("int2", "int4", "int8")
_DRIVER: Final = "org.postgresql.Driver"
_JDBC_NAMES: Final = {"user": "user", "password": "password", "sslmode": "sslmode", "sslrootcert": "sslrootcert",
                  "sslcert": "sslcert", "sslkey": "sslkey", "application_name": "ApplicationName",
                  "options": "options"}  # fmt: skip


class Snapshot:
    """Tables of PostgreSQL at one LSN, for a `with` block. The role needs REPLICATION, and SELECT on the tables."""

    def __init__(
        self,
        spark: SparkSession,
        dsn: str,
        publication: str,
        names: TopicNames,
        tables: Tables | TableList,
        parallelism: int,
        export: Export = export_snapshot,
    ) -> None:
        """`tables`: patterns of schema.table. `parallelism`: ranges that each table is read in."""
        self._spark = spark
        self._dsn = dsn
        self._parallelism = parallelism
        wanted = TableList.of(tables)
        self.tables: dict[str, TableSchemas] = {
            made.table: made
            for schema, name, made in selected_schemas((), dsn, "cdcd-spark", publication, names, "decimal")
            if wanted.matches(schema, name)
        }
        """The published tables that match, by schema.table."""
        if not self.tables:
            raise RequestRejected(
                f"no table of the publication {publication} matches {wanted}",
                "cdcd schema lists the published tables; publication= names another publication",
                code="tables-missing",
            )
        self.hidden: dict[str, frozenset[str]] = {}
        """By schema.table, the columns that the daemon leaves out or masks: readers of the topics must not see them."""
        self._exported = ExportedSnapshot(dsn, publication, list(self.tables), export)
        self.lsn_base = 0
        """Is added to the LSN of the server, as the daemon adds it."""

    def __enter__(self) -> Self:
        self._exported.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exported.__exit__(kind, error, trace)

    @property
    def lsn(self) -> int:
        """The rows hold every transaction that committed below this LSN, and no other."""
        return self._exported.lsn + self.lsn_base

    def writer(self, table: str) -> Writer:
        """The schema with which the daemon would publish the table's events now."""
        return writer(b"", json.dumps(self.tables[table].value))

    def key(self, table: str) -> tuple[str, ...]:
        """The columns of the table's key; none if it has none."""
        made = self.tables[table].key
        return () if made is None else tuple(e["name"] for e in made["fields"] if "pg_type" in e)

    def rows(self, table: str) -> DataFrame:
        """The table's rows with the columns of a mirrored table, the META ones included.

        Raises RequestRejected if some columns are masked or left out.
        """
        if hidden := self.hidden.get(table):
            raise RequestRejected(
                f"the daemon masks or leaves out columns of {table} ({', '.join(sorted(hidden))}), and PostgreSQL does "
                "not: so it cannot be loaded from PostgreSQL directly",
                f"Let the daemon take a snapshot of the table: cdcd snapshot {shell_word(table)}",
                code="column-not-loadable",
            )
        described = {each["name"]: each for each in self.writer(table).described()}
        selected, made, lost = [], [], {}
        for column in self.writer(table).columns:
            name, avro = column["name"], column["type"]
            expression = identifier(c.postgres_name(described[name]))
            fits = c.representable(expression, avro)
            sent, value = self._transported(expression, name, avro, described[name]["pg_type"])
            if fits != "true":
                # CASE forgets a numeric's scale, and JDBC needs it.
                kept = f"::numeric({avro['precision']},{avro['scale']})" if kind_of(avro) == "decimal" else ""
                sent = f"(CASE WHEN {fits} THEN {sent} END){kept}"
            selected.append(f"{sent} AS {identifier(name)}")
            made.append(value.alias(name))
            if fits != "true":
                lost[fits] = f"'{name}', CASE WHEN NOT ({fits}) THEN format('%s', {expression}) END"
        read = self.read(table, f"{', '.join(selected)}, {_texts(lost)} AS {UNREPRESENTABLE}")
        return read.select(
            *made,
            f.lit(self.lsn).cast("bigint").alias(COMMIT_LSN),
            f.lit(SNAPSHOT_SEQ).cast("bigint").alias(SEQ),
            f.lit(None).cast("timestamp_ltz").alias(COMMIT_TS),
            f.from_json(UNREPRESENTABLE, "map<string,string>").alias(UNREPRESENTABLE),
        )

    def read(self, table: str, selected: str, where: str = "true") -> DataFrame:
        """`SELECT selected FROM table` under the snapshot, in ranges of ctids; `where` is a condition on its result."""
        # The ctid is there for the ranges only: Spark does not fetch it.
        query = f"(SELECT * FROM (SELECT ctid AS _ctid, {selected} {self._published(table)}) x WHERE {where}) t"
        url, properties = self._properties()
        ranges = [condition.replace("ctid", "_ctid") for condition in self._ranges(table)]
        return self._spark.read.jdbc(url, query, predicates=ranges, properties=properties).drop("_ctid")

    def sums(self, table: str, group: str, value: str, selected: str) -> DataFrame:
        """Groups of `SELECT selected FROM table`, once for each range: the group, its rows, the sum of `value`."""
        url, properties = self._properties()
        parts = [
            self._spark.read.jdbc(
                url,
                f"(SELECT {group}, count(*) AS rows, sum({value})::numeric(38,0) AS total"
                f" FROM (SELECT {selected} {self._published(table)} AND {condition}) x GROUP BY 1) t",
                predicates=["true"],
                properties=properties,
            )
            for condition in self._ranges(table)
        ]
        return reduce(DataFrame.unionAll, parts)

    def _transported(self, expression: str, name: str, avro: Any, pg_type: str) -> tuple[str, Column]:
        """SQL for what PostgreSQL sends of a column, and how Spark makes the value of that."""
        if kind_of(avro) != "map":
            return _transported(expression, name, avro, pg_type)
        # Anybody may make another function of this name for a domain: the cast leaves only the extension's.
        schema = self._exported.hstore_schema
        return f"{schema}.hstore_to_json(({expression})::{schema}.hstore)::text", f.from_json(f.col(name), ddl(avro))

    def _table(self, table: str) -> PublishedTable:
        if not self._exported.name:
            raise SettingsError(
                "the snapshot is not open",
                "Use it inside `with cdc.snapshot(...) as snapshot`",
                code="arguments-invalid",
            )
        return self._exported.published[table]

    def _published(self, table: str) -> str:
        """FROM and WHERE: the rows of the table that the publication publishes."""
        row_filter = self.tables[table].row_filter
        return f"FROM {self._table(table).expression} WHERE {f'({row_filter})' if row_filter else 'true'}"

    def _properties(self) -> tuple[str, dict[str, str]]:
        url, properties = jdbc(self._exported.login)
        return url, properties | {
            "fetchsize": str(FETCH_ROWS),
            "prepareThreshold": "-1",  # pgjdbc: binary transfer from the first execution on
            "sessionInitStatement": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
            f" SET TRANSACTION SNAPSHOT '{self._exported.name}'; SET LOCAL extra_float_digits = 1;"
            " SET LOCAL TimeZone = 'UTC'; SET LOCAL IntervalStyle = 'postgres'; SET LOCAL DateStyle = 'ISO,MDY';"
            f" {pinning_commands(self._exported.server_version)}",
        }

    def _ranges(self, name: str) -> list[str]:
        """Conditions that divide the table's pages into ranges."""
        table = self._table(name)
        with Session(self._dsn, APPLICATION) as session:
            [(pages,)] = session.rows(
                "SELECT pg_catalog.pg_relation_size(%s::oid) / pg_catalog.current_setting('block_size')::int",
                [table.oid],
            )
        pieces = 1 if table.kind == PARTITIONED else self._parallelism  # a root mixes the ctids of its leaves
        return ctid_ranges(int(pages), pieces)


def ctid_ranges(pages: int, pieces: int) -> list[str]:
    """Conditions that divide a table of `pages` pages into at most `pieces` ranges; the last range has no end."""
    step = max(1, -(-pages // max(1, pieces)))
    bounds = list(range(0, max(1, pages), step))
    return [
        f"ctid >= '({low},0)'::tid" + (f" AND ctid < '({low + step},0)'::tid" if low != bounds[-1] else "")
        for low in bounds
    ]


def jdbc(login: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A JDBC URL and its properties from libpq's parameters of a connection, which pin what `session` pins."""
    host = login["host"]
    if host.startswith("/"):
        raise SettingsError(
            "JDBC cannot use the socket directory that the DSN names", "Give a host: host=localhost", code="dsn-invalid"
        )
    properties = {of_jdbc: login[name] for name, of_jdbc in _JDBC_NAMES.items() if login.get(name)}
    shown = f"[{host}]" if ":" in host else host
    return f"jdbc:postgresql://{shown}:{login['port']}/{quote(login['dbname'], safe='')}", {
        "driver": _DRIVER,
        **properties,
    }


def _texts(lost: Mapping[str, str]) -> str:
    """SQL for UNREPRESENTABLE: JSON of the texts of values that Avro cannot hold, NULL if there are none.

    `lost`: by condition, the name and the text. The JSON takes 2 us a row, so it is made only if a condition fails.
    """
    if not lost:
        return "NULL::text"
    pairs = list(lost.values())  # a name and a text each; a function has at most 100 arguments
    some = [f"jsonb_build_object({', '.join(pairs[at : at + 50])})" for at in range(0, len(pairs), 50)]
    texts = f"jsonb_strip_nulls({' || '.join(some)})::text"
    return f"CASE WHEN NOT ({' AND '.join(lost)}) THEN {texts} END"


def _transported(expression: str, name: str, avro: Any, pg_type: str) -> tuple[str, Column]:
    """SQL for what PostgreSQL sends of a column, and how Spark makes the value of that."""
    kind = kind_of(avro)
    sent = f.col(name)
    if c.is_direct(avro):
        cast = "::text::bigint" if kind == "long" and pg_type not in _INTEGERS else ""  # oid
        if kind == "bytes":
            cast = "::bytea"  # JDBC would give a geometry as its text
        return f"({expression}{cast})", sent.cast(ddl(avro))
    if kind == "array" and kind_of(avro["items"]) not in ("array", "map", "record"):
        is_float = kind_of(avro["items"]) in ("double", "float")
        item = "x::text" if is_float else c.text_in_postgres("x", avro["items"])
        items = f"({expression})::real[]" if c.is_vector(pg_type) else expression
        texts = f"(SELECT array_agg({item} ORDER BY o) FROM unnest({items}) WITH ORDINALITY u(x, o))"
        array = f"CASE WHEN {expression} IS NOT NULL THEN coalesce({texts}, '{{}}'::text[]) END"
        return f"({array})", f.transform(sent, lambda each: c.value_from(each, avro["items"]))
    if kind in ("array", "record") and not c.is_comparable(avro, pg_type):
        raise RequestRejected(
            f"column {name} is of type {pg_type}, which cannot be loaded from PostgreSQL directly",
            "Let the daemon take a snapshot of the table: cdcd snapshot, with its name",
            code="column-not-loadable",
        )
    if kind == "record":
        parts = f.split(sent, ",")
        fields = [f.element_at(parts, index + 1).cast("bigint") for index in range(3)]
        typed = [e.cast(ddl(each["type"])).alias(each["name"]) for e, each in zip(fields, avro["fields"], strict=True)]
        return c.text_in_postgres(expression, avro), f.when(sent.isNotNull(), f.struct(*typed))
    return c.sent_by_postgres(expression, avro, pg_type), c.value_from(sent, avro)
