"""Delta Lake tables.

Source: Delta Lake documentation, "Idempotent table writes", "Type widening", "Deletion vectors",
"Column mapping".
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Final

from pyspark.sql import DataFrame, Row

from cdcd.errors import SettingsError
from cdcd.spark.mirror.per_table import Layout
from cdcd.spark.mirror.targets.target import ASKED_FILES_MAX, Files, Staged, Tag, Target, decimal_of, is_conflict
from cdcd.spark.state.key_bounds import Groups

_WIDER: frozenset[tuple[str, str]] = frozenset(
    [("int", "bigint"), ("float", "double"), ("int", "double"), ("date", "timestamp_ntz")]
)
_WHOLE = {"int": 10, "bigint": 20}
_RETENTION_H_MIN = 168
"""Delta refuses to remove younger files."""
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Spark takes it as a bound. VACUUM makes so many tasks, however small the table is: 10,000 if nobody says less."""
_LISTING_TASKS_PER_CORE = 4
_LOG_TASKS: Final = "spark.databricks.delta.snapshotPartitions"
"""After each commit Delta reads the table's log again, in so many tasks: 50 if nobody says less."""
_LOG_TASKS_MAX = 50
_FILES_IN_CHECKSUM: Final = "spark.databricks.delta.allFilesInCrc.enabled"
"""Delta writes a table's files into the checksum of a version, which it never reads. But outside of UTC it verifies
them, and reads the log for that after each commit."""
_MAPPING = "delta.columnMapping.mode"
_NOTE = "spark.databricks.delta.commitInfo.userMetadata"
_KEEPS_ROWS = re.compile("OPTIMIZE|REORG|VACUUM .*|SET TBLPROPERTIES|UNSET TBLPROPERTIES|ADD COLUMNS|UPGRADE PROTOCOL")
"""The operations that change no row."""
_DEFAULTS: Final[dict[str, set[str]]] = {}
"""By method that `_with_defaults` has called: the methods that give the defaults of its arguments."""
_TAGS_SEEN = 100
"""Versions to look back. If a plan is carried out again, its write is the last change that the mirror made."""
_WRITES = ("MERGE", "WRITE")
"""Delta writes the metadata into every commit. CREATE, ALTER and OPTIMIZE bring no row of the plan."""


class Delta(Target):
    """Delta skips a MERGE that a plan has made already, even if two processes try it (txnAppId).

    An append does the same by Delta's own transaction, see `_commit`.
    """

    using = "delta"
    properties: ClassVar[Mapping[str, str]] = {
        "delta.enableDeletionVectors": "true",
        "delta.enableTypeWidening": "true",
        "delta.setTransactionRetentionDuration": "interval 1 day",  # each run leaves one, which no later run needs
    }

    log_properties: ClassVar[Mapping[str, str]] = {
        "delta.deletedFileRetentionDuration": "interval 1 day",
        "delta.logRetentionDuration": "interval 2 days",
        "delta.checkpointInterval": "50",  # a checkpoint takes longer than a run's rows, which are two versions
    }
    few_settings: ClassVar[Mapping[str, str]] = {  # a MERGE takes 6 Spark jobs then, and not 15
        **Target.few_settings,
        "spark.databricks.delta.merge.deletionVectors.persistent": "false",
        _LOG_TASKS: "1",
    }

    def check_layout(self, layout: Layout) -> None:
        if layout.order_by:
            raise SettingsError("Delta has no order_by", "Use cluster_by", code="mirror-settings-invalid")
        if layout.cluster_by and layout.partition_by:
            raise SettingsError(
                "Delta has no table with both partition_by and cluster_by",
                "Leave one out",
                code="mirror-settings-invalid",
            )

    def order(self, table: str, columns: Sequence[str]) -> None: ...

    def widens(self, old: str, new: str) -> bool:
        if (old, new) in _WIDER:
            return True
        after = decimal_of(new)
        before = decimal_of(old) or ((_WHOLE[old], 0) if old in _WHOLE else None)
        if after is None or before is None:
            return False
        return after[1] >= before[1] and after[0] - after[1] >= before[0] - before[1]

    def add_columns(self, table: str, columns: Sequence[tuple[str, str]]) -> None:
        self._take_local_times(table, (kind for _, kind in columns))
        super().add_columns(table, columns)

    def widen(self, table: str, column: str, kind: str) -> None:
        self._take_local_times(table, [kind])
        super().widen(table, column, kind)

    def _take_local_times(self, table: str, kinds: Iterable[str]) -> None:
        """Delta takes a timestamp_ntz only into a new table, unless the table says before that its readers know it."""
        if any("timestamp_ntz" in kind for kind in kinds):
            self.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")

    def rename_statements(self, table: str, old: str, new: str) -> list[str]:
        """Delta renames a column only where the names of columns are mapped to those in the files."""
        mapping = f"ALTER TABLE {table} SET TBLPROPERTIES ('{_MAPPING}' = 'name')"
        mapped = self.spark.sql(f"SHOW TBLPROPERTIES {table}").where(f"key = '{_MAPPING}' AND value <> 'none'")
        return [*([] if mapped.count() else [mapping]), *super().rename_statements(table, old, new)]

    def version(self, table: str) -> int | None:
        # DESCRIBE HISTORY would run a Spark job.
        return int(self._snapshot(table).version())

    def _snapshot(self, table: str) -> Any:
        """Delta's object for the newest version of a table."""
        return _with_defaults(self._java(table).deltaLog(), "update")

    def _java(self, table: str) -> Any:
        """Delta's object for a table."""
        spark: Any = self.spark
        session, catalogs = spark._jsparkSession, self._catalogs  # noqa: SLF001
        names = session.sessionState().sqlParser().parseMultipartIdentifier(table)
        place = catalogs.getCatalogPluginAndIdentifier(session, names.head(), names.tail())
        return catalogs.getDeltaTableFromCatalog(session, place._1(), place._2())  # noqa: SLF001

    def follower(self, table: str, version: int | None) -> int | None:
        now = self.version(table)
        return now if version is not None and now == version + 1 else None

    def readable(self, table: str, version: int) -> int:
        later = {row["version"]: str(row["operation"]) for row in self._history(table) if row["version"] > version}
        is_whole = len(later) == max(later, default=version) - version
        is_vacuumed = any(operation.startswith("VACUUM") for operation in later.values())
        keeps_rows = all(_KEEPS_ROWS.fullmatch(operation) for operation in later.values())
        return max(later) if is_vacuumed and is_whole and keeps_rows else version

    def files(self, table: str) -> Files:
        # Most versions have a checksum, which knows this: to count the files is a Spark job.
        snapshot = self._snapshot(table)
        known = snapshot.checksumOpt()
        checksum = known.get() if known.isDefined() else snapshot.computeChecksum()
        return Files(int(checksum.numFiles()), int(checksum.tableSizeBytes()))

    def put(self, table: str, rows: DataFrame, seen: int | None) -> None:
        # Delta takes an append for blind: it would add the rows to any later version. So this says what it has read.
        java = self._java(table)
        snapshot = _with_defaults(java.deltaLog(), "getSnapshotAt", seen)
        transaction = java.startTransaction(self._jvm.scala.Some(snapshot))
        transaction.readWholeTable()
        transaction.commit(transaction.writeFiles(rows._jdf), self._write())  # noqa: SLF001

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm  # noqa: SLF001

    # Classes of Java's, found once: Py4J looks for a class of each part of their names in all jars.

    @cached_property
    def _catalogs(self) -> Any:
        return self._jvm.org.apache.spark.sql.delta.catalog.CatalogResolver

    @cached_property
    def _writes(self) -> Any:
        return getattr(getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$Write$"), "MODULE$")

    @cached_property
    def _append_mode(self) -> Any:
        return self._jvm.org.apache.spark.sql.SaveMode.Append

    @cached_property
    def _set_transaction(self) -> Any:
        return self._jvm.org.apache.spark.sql.delta.actions.SetTransaction

    def _write(self, note: str | None = None) -> Any:
        """Delta's object for an append, as its operation. `note`: for the table's history."""
        option = self._jvm.scala.Option
        no_partitions = no_predicate = option.empty()
        return _with_defaults(self._writes, "apply", self._append_mode, no_partitions, no_predicate, option.apply(note))

    def append(self, table: str, rows: DataFrame, tag: Tag, seen: int | None, *, merges_next: bool = False) -> None:
        self._commit(self._written(table, rows), tag, seen, merges_next=merges_next)

    def stage(self, table: str, rows: DataFrame, tag: Tag, seen: int | None) -> Staged:
        written = self._written(table, rows)
        log, snapshot = self._java(table).deltaLog(), written.transaction.snapshot()
        made = DataFrame(_with_defaults(log, "createDataFrame", snapshot, written.files), self.spark)
        return StagedInDelta(made, written, lambda: self._commit(written, tag, seen))

    def _written(self, table: str, rows: DataFrame) -> _Written:
        transaction = self._java(table).startTransaction(self._jvm.scala.Some(self._snapshot(table)))
        rows = rows.selectExpr(*(f"CAST(`{name}` AS {kind}) `{name}`" for name, kind in self.columns(table).items()))
        return _Written(transaction, transaction.writeFiles(rows._jdf))  # noqa: SLF001

    def _commit(self, written: _Written, tag: Tag, seen: int | None, *, merges_next: bool = False) -> bool:
        """Make the files files of the table; False: another process has carried out the plan.

        To find that out, Delta reads the table's log, as for any write with a txnAppId. This takes as long as 100,000
        rows do. But the version `seen` has no commit of the plan, nor has the one that made the table.
        """
        transaction, app = written.transaction, _app(tag)
        if transaction.snapshot().version() in (0, seen):
            transaction.readTxn().addOne(app)  # if another process commits from now on, that is a conflict
        elif transaction.txnVersion(app) >= 0:
            return False
        number, note = (1, _half(tag)) if merges_next else (2, _note(tag))
        now_ms = self._jvm.scala.Option.apply(time.time_ns() // 1_000_000)  # Delta does not see a mark without its time
        mark = self._set_transaction(app, number, now_ms)
        transaction.commit(written.files.prepended(mark), self._write(note))
        return True

    @contextmanager
    def running(self) -> Iterator[None]:
        cores = int(self.spark.sparkContext.defaultParallelism)
        wanted = {_LOG_TASKS: str(min(cores, _LOG_TASKS_MAX)), _FILES_IN_CHECKSUM: "false"}
        # `cdcd spark` chooses tasks for all that it runs.
        unchosen = {name: value for name, value in wanted.items() if self.spark.conf.get(name, None) is None}
        with self._set(unchosen):
            yield

    def tagged(self, table: str, tag: Tag) -> bool:
        return self._wrote(table, _note(tag))

    def appended(self, table: str, tag: Tag) -> bool:
        return self._wrote(table, _half(tag))

    def _wrote(self, table: str, note: str) -> bool:
        return any(row["operation"] in _WRITES and row["userMetadata"] == note for row in self._history(table))

    def _history(self, table: str) -> list[Row]:
        """The last commits. (Conditions in Spark would be a second job.)"""
        return list(self.spark.sql(f"DESCRIBE HISTORY {table} LIMIT {_TAGS_SEEN}").collect())

    def _tags(self, tag: Tag) -> dict[str, str]:
        return {
            "spark.databricks.delta.write.txnAppId": _app(tag),
            "spark.databricks.delta.write.txnVersion": "2",  # an append before a MERGE has 1
            _NOTE: _note(tag),
        }

    def replaced(self, table: str, mirror: str, version: int) -> bool:
        # A table that was dropped and made again counts its versions from the start.
        mark = _mark(mirror, version)
        return any(row["userMetadata"] == mark and row["version"] > version for row in self._history(table))

    def _marks(self, mirror: str, version: int | None) -> dict[str, str]:
        return {_NOTE: _mark(mirror, version)}

    def compact(self, table: str) -> Any:
        return self.spark.sql(f"OPTIMIZE {table}").collect()

    def remove_old_files(self, table: str, older_than: datetime | None, oldest: int | None = None) -> Any:
        # VACUUM goes by the time at which a file has left the table: `oldest` is as young as the run that has it.
        retained = ""
        if older_than is not None:
            hours = max(_RETENTION_H_MIN, math.ceil((datetime.now(UTC) - older_than).total_seconds() / 3600))
            retained = f" RETAIN {hours} HOURS"
        conf, cores = self.spark.conf, int(self.spark.sparkContext.defaultParallelism)
        before = str(conf.get(_LISTING_TASKS))
        conf.set(_LISTING_TASKS, str(min(int(before), _LISTING_TASKS_PER_CORE * cores)))
        try:
            return self.spark.sql(f"VACUUM {table}{retained}").collect()
        finally:
            conf.set(_LISTING_TASKS, before)


@dataclass(frozen=True)
class _Written:
    """Files that an open transaction has written. If it does not commit, VACUUM removes them."""

    transaction: Any
    files: Any


class StagedInDelta(Staged):
    """Files that are written, and not committed."""

    def __init__(self, rows: DataFrame, written: _Written, commit: Callable[[], bool]) -> None:
        super().__init__(rows)
        self._written = written
        self._commit = commit

    def groups(self, columns: Sequence[str]) -> Groups | None:
        files, properties = self._written.files, self._written.transaction.metadata().configuration()
        if files.size() > ASKED_FILES_MAX or properties.contains(_MAPPING):  # the statistics have other names then
            return None
        groups = []
        for index in range(files.size()):
            action = json.loads(files.apply(index).json())
            group = _group(action.get("add", {}).get("stats"), columns)
            if group is None:
                return None
            groups.append(group)
        return groups

    def publish(self) -> bool:
        try:
            return self._commit()
        except Exception as error:  # Py4J's
            if not is_conflict(error):
                raise
            return False

    def end(self) -> None: ...


def _group(statistics: str | None, columns: Sequence[str]) -> tuple[int, list[Any]] | None:
    """A file's rows, and the bounds that its statistics have of these columns: see `Staged.groups`."""
    said = json.loads(statistics or "{}")
    values: list[Any] = []
    for name in columns:
        low, high, nulls = (said.get(each, {}).get(name) for each in ("minValues", "maxValues", "nullCount"))
        if not all(type(each) is int for each in (low, high, nulls)):
            return None
        values += [low, high, said["numRecords"] - nulls]
    return said["numRecords"], values


def _with_defaults(java: Any, method: str, *given: Any) -> Any:
    """Call a method of Scala with the defaults of further arguments: how many there are depends on Delta's version."""
    if method not in _DEFAULTS:  # Py4J asks Java for all members of the object
        _DEFAULTS[method] = {name for name in dir(java) if name.startswith(f"{method}$default$")}
    arguments = list(given)
    while (default := f"{method}$default${len(arguments) + 1}") in _DEFAULTS[method]:
        arguments.append(getattr(java, default)())
    return getattr(java, method)(*arguments)


def _app(tag: Tag) -> str:
    return f"cdcd-{tag.mirror}-{tag.token}"


def _note(tag: Tag) -> str:
    return f"cdcd {tag.mirror} {tag.token}"


def _half(tag: Tag) -> str:
    return f"{_note(tag)} before its MERGE"


def _mark(mirror: str, version: int | None) -> str:
    return f"cdcd {mirror} load over version {version}"
