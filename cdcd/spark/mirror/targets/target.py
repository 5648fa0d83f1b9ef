"""The interface of a table format to the mirror.

Before: `mirror` and `table_merge` work on tables. After: `delta` and `iceberg` have the parts that differ.
Spark SQL's MERGE, ALTER TABLE and time travel are the same for both formats; versions, tags and compaction are not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any, ClassVar, Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

from cdcd.spark.mirror.per_table import Layout
from cdcd.spark.mirror.planned_once import cloned
from cdcd.spark.reading.sql_texts import sql_literal, sql_text
from cdcd.spark.state.key_bounds import Groups

_T = TypeVar("_T")

_INSTANT: Final = re.compile(r"\btimestamp\b(?!:)")
"""The type, and not a field of the name: Spark shows timestamp_ltz so."""


_PAUSES_S: Final = (0.5, 2.0, 5.0, 10.0)
"""Before each further try of a statement that met another job's commit."""
_CONFLICTS: Final = (
    "Concurrent", "CONCURRENT", "MetadataChangedException", "ProtocolChangedException",  # Delta's
    "ValidationException", "CommitFailed",  # Iceberg's
)  # fmt: skip
_CAUSE_MAX: Final = 200
"""Characters of a conflict's first line that are shown."""

EXACT_DATES: Final = "spark.sql.datetime.java8API.enabled"
"""With this setting the driver gets dates as they are: a java.sql.Date has another calendar before 1582."""

ASKED_FILES_MAX: Final = 32
"""Files that are asked for their statistics. Each takes some calls of Java's."""

SMALL_TABLE_MAX: Final = 4 * 1024 * 1024
"""Bytes of the files of a table that takes less time to write anew than to note which of its rows are deleted."""


@dataclass(frozen=True)
class Tag:
    """Marks what one plan of one mirror writes."""

    mirror: str
    token: str
    """The plan's."""


@dataclass(frozen=True)
class Files:
    """The data files of a table's newest version."""

    count: int
    bytes: int


class Staged:
    """Rows in files that are no files of the table yet."""

    def __init__(self, rows: DataFrame) -> None:
        """`rows`: read from the files."""
        self.rows = rows

    def publish(self) -> bool:
        """Make them files of the table, in one commit, inside `tagging` as `stage` was.

        Returns False if another process has carried out the plan, or the format cannot add them after another commit.
        """
        raise NotImplementedError

    def end(self) -> None:
        """Give the files up, if they were not published."""
        raise NotImplementedError

    def groups(self, columns: Sequence[str]) -> Groups | None:
        """By file, what its statistics tell of these columns. None: some column has no whole numbers, or no statistics.

        None, too, of many files: Spark reads them in less time.
        """
        raise NotImplementedError


class Target:
    """Tables of one format. Table names are complete: catalog.schema.table, quoted where necessary."""

    using: ClassVar[str] = ""
    properties: ClassVar[Mapping[str, str]] = {}
    log_properties: ClassVar[Mapping[str, str]] = {}
    """More for the table of runs, of which nobody reads an older version."""
    few_settings: ClassVar[Mapping[str, str]] = {
        "spark.sql.shuffle.partitions": "1",
        # A plan for few rows takes longer to compile, or to plan again after each stage, than to run.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        EXACT_DATES: "true",
    }
    """The settings of the copy of the session: see `session_for_few`."""

    def __init__(
        self, spark: SparkSession, properties: Mapping[str, str], say: Callable[[str], None] = lambda _: None
    ) -> None:
        """`properties`: more TBLPROPERTIES for the tables that it creates. `say` gets a line for each conflict."""
        self.spark = spark
        self._given = properties
        self._say = say
        self._few: SparkSession | None = None
        self._has_few = True
        """Whether `_few` has the settings of the run."""
        self._copying = Lock()

    def session_for_few(self, *tables: str) -> SparkSession:
        """The session for few changes of these tables, inside `tagging`.

        If they are small, it is a copy of the mirror's session, with settings for few rows. All tables use one copy,
        because each copy has Spark's catalogs of its own.
        """
        present = [table for table in tables if self.exists(table)]
        if not all(map(self._is_small, present)):
            return self.spark
        with self._copying:
            if not self._has_few:
                self._few, self._has_few = self._copied(), True
        if self._few is None:
            return self.spark
        for table in present:  # the copy's catalogs may keep the tables as they were in the last run
            self.refresh(table, self._few)
        return self._few

    def _is_small(self, table: str) -> bool:
        """Whether the table's files have SMALL_TABLE_MAX bytes at most."""
        return self.files(table).bytes <= SMALL_TABLE_MAX

    def files(self, table: str) -> Files:
        """The files of the table as it is now."""
        raise NotImplementedError

    def exists(self, table: str) -> bool:
        """Whether the table exists."""
        return bool(self.spark.catalog.tableExists(table))

    def refresh(self, table: str, spark: SparkSession | None = None) -> None:
        """Let a session (None: the mirror's) see what others have committed to the table."""

    def create(self, table: str, columns: str, layout: Layout | None = None) -> None:
        """Make the table, unless it exists. `columns`: as in CREATE TABLE's parentheses."""
        layout = layout or Layout()
        clauses = [f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING {self.using}"]
        if layout.partition_by:
            clauses.append(f"PARTITIONED BY ({', '.join(layout.partition_by)})")
        if layout.cluster_by:
            clauses.append(f"CLUSTER BY ({', '.join(layout.cluster_by)})")
        if layout.location:
            clauses.append(f"LOCATION {sql_literal(layout.location)}")
        if properties := self._wanted(layout):
            clauses.append(f"TBLPROPERTIES ({_pairs(properties)})")
        self.spark.sql(" ".join(clauses))

    def adopt(self, table: str, layout: Layout) -> None:
        """Take a table that a person has made: give it the properties that it lacks."""
        has = {row["key"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
        if lacking := {name: value for name, value in self._wanted(layout, has).items() if name not in has}:
            self.set_properties(table, lacking)

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        """Give the table these properties."""
        self.commit(table, f"ALTER TABLE {table} SET TBLPROPERTIES ({_pairs(properties)})")

    def _wanted(self, layout: Layout, has: Collection[str] = ()) -> dict[str, str]:
        """The properties of a table of the mirror. `has`: those that a person has given it."""
        return {**self.properties, **self._given, **layout.properties}

    def property(self, table: str, name: str) -> str | None:
        """A property of the table; None if it has none of this name."""
        row = self.spark.sql(f"SHOW TBLPROPERTIES {table}").where(f"key = {sql_text(name)}").first()
        return None if row is None else str(row["value"])

    def is_own(self, table: str) -> bool:
        """Whether the table is of this format."""
        rows = self.spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        return all(row["data_type"].lower() == self.using for row in rows if row["col_name"] == "Provider")

    def order(self, table: str, columns: Sequence[str]) -> None:
        """Let all that is written be sorted by these columns, if `check_layout` allows them."""
        raise NotImplementedError

    def check_layout(self, layout: Layout) -> None:
        """Raise SettingsError if the format has no such layout."""
        raise NotImplementedError

    def columns(self, table: str) -> dict[str, str]:
        """The table's columns and their types, as `reading.types.ddl` writes them."""
        return {name: _INSTANT.sub("timestamp_ltz", kind) for name, kind in self.spark.table(table).dtypes}

    def add_columns(self, table: str, columns: Sequence[tuple[str, str]]) -> None:
        """Add columns (name, type), or fields of columns: `column.field`, `column.element.field`."""
        shown = ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns)
        self.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({shown})")

    def widen(self, table: str, column: str, kind: str) -> None:
        """Change the type of a column, or of a part of it, to a wider type, which `widens` has allowed."""
        self.spark.sql(f"ALTER TABLE {table} ALTER COLUMN {_quoted(column)} TYPE {kind}")

    def rename_statements(self, table: str, old: str, new: str) -> list[str]:
        """The SQL with which a person renames a column."""
        return [f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"]

    def widens(self, old: str, new: str) -> bool:
        """Whether the format can change a column of type `old` to `new` in place."""
        raise NotImplementedError

    def version(self, table: str) -> int | None:
        """The table's newest version; None if it never held a row."""
        raise NotImplementedError

    def follower(self, table: str, version: int | None) -> int | None:
        """The table's newest version, if one commit has made it of this version; else None."""
        raise NotImplementedError

    def at(self, table: str, version: int | None) -> DataFrame:
        """The table as it was at a version, also after maintenance that has removed the version and kept its rows."""
        if version is None:
            return self.spark.table(table).limit(0)
        return self.spark.sql(f"SELECT * FROM {table} VERSION AS OF {self.readable(table, version)}")

    def readable(self, table: str, version: int) -> int:
        """A version with the rows of this one, whose files are there: perhaps one that only maintenance has made since.

        Raises GapError if there is surely none.
        """
        raise NotImplementedError

    def commit(self, table: str, statement: str) -> DataFrame:
        """Run a statement that changes a table, and again if another job has changed the table meanwhile.

        Returns what the statement gives.
        """
        return self.again_after_conflicts(table, lambda: self.spark.sql(statement))

    def again_after_conflicts(self, table: str, change: Callable[[], _T], *words: str) -> _T:
        """Do what changes a table, and again if another job has changed the table meanwhile.

        `words`: those of the errors after which it is done again; else those of all conflicts.
        """
        for pause_s in _PAUSES_S:
            try:
                return change()
            except Exception as error:  # Py4J's or PySpark's: only the text tells the cause
                if not (any(word in str(error) for word in words) if words else is_conflict(error)):
                    raise
                cause = str(error).strip().partition("\n")[0][:_CAUSE_MAX]
                self._say(f"{table} has another job's commit, so the change begins again in {pause_s:g} s: {cause}")
                time.sleep(pause_s)
        return change()

    def merge(self, table: str, statement: str, spark: SparkSession) -> None:
        """Run a MERGE, and again as `commit` does. `spark`: the session that knows its source."""
        self.again_after_conflicts(table, lambda: spark.sql(statement))

    def put(self, table: str, rows: DataFrame, seen: int | None) -> None:
        """Add rows in one commit, unless the table has got other rows since this version.

        It raises an error that `is_conflict` knows then.
        """
        raise NotImplementedError

    def empty(self, table: str) -> bool:
        """Whether the table holds no row."""
        return bool(self.spark.table(table).isEmpty())

    def seen(self, table: str) -> int | None:
        """The version of the table before the caller looks for tags, for `append` and `stage`."""
        return self.version(table)

    def append(self, table: str, rows: DataFrame, tag: Tag, seen: int | None, *, merges_next: bool = False) -> None:
        """Add rows that have all columns of the table, in one commit, inside `tagging(tag)`.

        `seen`: see there. `merges_next`: a MERGE of the same plan follows. If two processes append by one plan, the
        second one is passed over, or fails.
        """
        raise NotImplementedError

    def stage(self, table: str, rows: DataFrame, tag: Tag, seen: int | None) -> Staged:
        """Write rows as `append` does, into files that no reader sees. `seen`: None, too, for a table that is new."""
        raise NotImplementedError

    def tagged(self, table: str, tag: Tag) -> bool:
        """Whether a MERGE or the only append inside `tagging(tag)` has changed the table."""
        raise NotImplementedError

    def appended(self, table: str, tag: Tag) -> bool:
        """Whether an append inside `tagging(tag)` has changed the table that a MERGE was to follow."""
        raise NotImplementedError

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have the settings of the format in the session, inside the `with` block, for all that changes tables."""
        yield

    @contextmanager
    def tagging(self, tag: Tag) -> Iterator[None]:
        """Mark every MERGE and append inside the `with` block, so that `tagged` finds it."""
        with self._set(self._tags(tag)):
            self._has_few = False  # the copy is made only if there is a batch for it
            yield

    def _copied(self) -> SparkSession:
        """The session for few rows, with all settings that the mirror's session has now."""
        own: Any = self.spark
        few: Any = self._few
        if few is None:
            few = cloned(own)
        else:
            settings = few._jsparkSession.sessionState().conf().settings()  # noqa: SLF001
            settings.clear()
            settings.putAll(own._jsparkSession.sessionState().conf().settings())  # noqa: SLF001
        for name, value in self.few_settings.items():
            few.conf.set(name, value)
        return few

    def replaced(self, table: str, mirror: str, version: int) -> bool:
        """Whether the table was overwritten inside `replacing(mirror, version)`."""
        raise NotImplementedError

    @contextmanager
    def replacing(self, mirror: str, version: int | None) -> Iterator[None]:
        """Mark a table that is overwritten inside the `with` block. `version`: its published version (None: none).

        A process may overwrite a table, and die before it publishes that. `replaced` tells the next process.
        """
        with self._set(self._marks(mirror, version)):
            yield

    def _tags(self, tag: Tag) -> dict[str, str]:
        raise NotImplementedError

    def _marks(self, mirror: str, version: int | None) -> dict[str, str]:
        raise NotImplementedError

    @contextmanager
    def _set(self, settings: Mapping[str, str]) -> Iterator[None]:
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                self.spark.conf.unset(name)

    def tag(self, table: str, name: str, version: int) -> None:
        """Give a version a name, which another version may have had: only Iceberg has such."""
        raise NotImplementedError

    def compact(self, table: str) -> Any:
        """Rewrite small files into large ones. The rows do not change."""
        raise NotImplementedError

    def remove_old_files(self, table: str, older_than: datetime | None, oldest: int | None = None) -> Any:
        """Remove the files of versions that were no longer the newest one at this time, and are older than `oldest`.

        None: the table's own properties say the time; there is no such version.
        """
        raise NotImplementedError


def unqualified(table: str) -> str:
    """The last part of catalog.schema.table, quoted as it is."""
    return "`" + table.rpartition(".`")[2]


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{sql_literal(name)} = {sql_literal(value)}" for name, value in properties.items())


def _quoted(name: str) -> str:
    """A column, or a part of one, for SQL. No name of a column has a dot: see `avro_names`."""
    return ".".join(f"`{part}`" for part in name.split("."))


def is_conflict(error: Exception) -> bool:
    """Whether a statement has failed because another one has committed, such as a job that rewrites files."""
    text = str(error)
    return any(word in text for word in _CONFLICTS)


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Precision and scale of `decimal(p,s)`; None for another type."""
    if not kind.startswith("decimal("):
        return None
    precision, scale = kind[8:-1].split(",")
    return int(precision), int(scale)
