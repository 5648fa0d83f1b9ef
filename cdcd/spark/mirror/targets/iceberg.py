"""Apache Iceberg tables.

Source: Iceberg documentation, "Spark Writes", "Spark Procedures", "Spark Configuration" (isolation-level);
apache/iceberg#8809 (no idempotent writes). For a single writer, a tag in the snapshot's summary replaces idempotent
writes: the mirror looks for it before it writes. A second writer is found at its commit, which fails if the table has
got rows since it looked.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cdcd.errors import GapError, SettingsError
from cdcd.spark.mirror.per_table import Layout
from cdcd.spark.mirror.targets.target import (
    ASKED_FILES_MAX,
    SMALL_TABLE_MAX,
    Files,
    Staged,
    Tag,
    Target,
    decimal_of,
    is_conflict,
)
from cdcd.spark.reading.sql_texts import sql_literal, sql_text
from cdcd.spark.state.key_bounds import Groups

_WIDER: frozenset[tuple[str, str]] = frozenset([("int", "bigint"), ("float", "double")])
Snapshots: TypeAlias = "Mapping[int, tuple[int | None, str]]"
"""By id of a snapshot: its parent's id, and the operation that has made it. `replace` keeps the rows."""

_MERGE_MODE: Final = "write.merge.mode"
_CHOSEN_MODE: Final = "cdcd.merge-mode"
"""A property: the merge mode that cdcd has chosen. If a person chooses another one, cdcd leaves the table so."""

_WHOLE: Final = frozenset({"int", "long"})
"""Iceberg's types of whole numbers."""

_STAGED: Final = "cdcd_staged_"
"""How branches begin that have rows which are not published yet."""


class Iceberg(Target):
    """Format version 3. A MERGE writes small tables anew (copy-on-write), and deletion vectors of the others."""

    using = "iceberg"
    properties: ClassVar[Mapping[str, str]] = {
        "format-version": "3",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
        # Each commit leaves a metadata.json, which names all snapshots: without this all of them stay for ever.
        "write.metadata.delete-after-commit.enabled": "true",
    }

    log_properties: ClassVar[Mapping[str, str]] = {"history.expire.max-snapshot-age-ms": str(24 * 3600 * 1000)}
    few_settings: ClassVar[Mapping[str, str]] = {
        **Target.few_settings,
        # Else Spark shuffles the rows, and first looks in a job of its own for the files that have them.
        "spark.sql.iceberg.distribution-mode": "none",
        "spark.sql.optimizer.runtime.rowLevelOperationGroupFilter.enabled": "false",
        "spark.sql.iceberg.read.adaptive-split-size.enabled": "false",  # so one task reads the files, and writes one
    }

    def check_layout(self, layout: Layout) -> None:
        if layout.cluster_by:
            raise SettingsError(
                "Iceberg has no cluster_by", "Use partition_by, and order_by", code="mirror-settings-invalid"
            )

    def _wanted(self, layout: Layout, has: Collection[str] = ()) -> dict[str, str]:
        wanted = super()._wanted(layout)
        return wanted if _MERGE_MODE in {*wanted, *has} else wanted | _chosen("copy-on-write")

    def _is_small(self, table: str) -> bool:
        return _bytes(self._current(table)) <= SMALL_TABLE_MAX

    def files(self, table: str) -> Files:
        snapshot = self._current(table)
        said = {} if snapshot is None else snapshot.summary()
        count, size = (int(said.get(f"total-{what}") or 0) for what in ("data-files", "files-size"))
        return Files(count, size)

    def merge(self, table: str, statement: str, spark: SparkSession) -> None:
        self._choose_merge_mode(table)
        super().merge(table, statement, spark)

    def _choose_merge_mode(self, table: str) -> None:
        """Let a MERGE write a small table anew: so the next one finds one file, and no deletion vector.

        A table changes back only when it has shrunk to half of that size, so that it does not change all the time.
        """
        java = self._java(table)
        properties = java.properties()
        mode, size = properties.get(_CHOSEN_MODE), _bytes(java.currentSnapshot())
        wanted = mode
        if size > SMALL_TABLE_MAX:
            wanted = "merge-on-read"
        elif size <= SMALL_TABLE_MAX // 2:
            wanted = "copy-on-write"
        if mode is not None and properties.get(_MERGE_MODE) == mode and mode != wanted:
            self.set_properties(table, _chosen(wanted))

    def order(self, table: str, columns: Sequence[str]) -> None:
        self.spark.sql(f"ALTER TABLE {table} WRITE ORDERED BY {', '.join(columns)}")

    def widens(self, old: str, new: str) -> bool:
        before, after = decimal_of(old), decimal_of(new)
        if before is not None and after is not None:
            return before[1] == after[1] and before[0] <= after[0]
        return (old, new) in _WIDER

    def refresh(self, table: str, spark: SparkSession | None = None) -> None:
        """Spark's catalog keeps a table for 30 s after its last use: whoever polls sees the same state for ever.

        Spark forgets the table first. Then it reads again what is in memory of it, and that may be of a snapshot which
        has expired.
        """
        with suppress(IllegalArgumentException):
            (spark or self.spark).sql(f"REFRESH TABLE {table}")

    def version(self, table: str) -> int | None:
        snapshot = self._current(table)
        return None if snapshot is None else int(snapshot.snapshotId())

    def follower(self, table: str, version: int | None) -> int | None:
        snapshot = self._current(table)
        parent = None if snapshot is None else snapshot.parentId()
        return int(snapshot.snapshotId()) if snapshot is not None and parent == version else None

    def _current(self, table: str) -> Any:
        """The Java object of the newest snapshot, or None. (The metadata table `refs` would run a Spark job.)"""
        return self._java(table).currentSnapshot()

    def _java(self, table: str, spark: SparkSession | None = None) -> Any:
        """Iceberg's object for a table, as it is now. `spark`: the session whose object it is (None: the mirror's)."""
        session: Any = spark or self.spark
        java = self._load(session._jsparkSession, table)  # noqa: SLF001
        java.refresh()
        return java

    @cached_property
    def _load(self) -> Any:
        """The method of Java. To find it, Py4J looks for a class of each part of its name in all jars."""
        return self.spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable  # noqa: SLF001

    def readable(self, table: str, version: int) -> int:
        found = self._snapshots(table)
        if version not in found:
            self.refresh(table)
            found = self._snapshots(table)
        if version in found:
            return version
        now = self.version(table)
        if now is not None and (_is_rewritten(version, now, found) or self._was_rewritten(table, version, now, found)):
            return now
        raise GapError(
            f"{table} no longer has the snapshot {version}, which a run has published",
            "expire_snapshots has removed it: read a newer run. If there is none, load the table again with "
            "`cdcd spark snapshot`, and keep snapshots for some days, or set tags = true under [mirror]",
            code="mirror-load-again",
        )

    def _was_rewritten(self, table: str, version: int, now: int, found: Snapshots) -> bool:
        """As `_is_rewritten`, also over snapshots that have expired: the table's older metadata files know them."""
        operations = self._java(table).operations()
        parser = self.spark._jvm.org.apache.iceberg.TableMetadataParser  # noqa: SLF001
        known = dict(found)
        for entry in reversed(list(operations.current().previousFiles())):
            try:
                older = parser.read(operations.io(), entry.file())
            except (Py4JError, PySparkException):  # somebody has removed the file
                return False
            for snapshot in older.snapshots():
                known[int(snapshot.snapshotId())] = snapshot.parentId(), str(snapshot.operation())
            if version in known:
                return _is_rewritten(version, now, known)
        return False

    def seen(self, table: str) -> int | None:
        self.refresh(table)
        return super().seen(table)

    def put(self, table: str, rows: DataFrame, seen: int | None) -> None:
        self.refresh(table)
        self._append(table, rows, seen, {})

    def append(self, table: str, rows: DataFrame, tag: Tag, seen: int | None, *, merges_next: bool = False) -> None:
        mark = {f"snapshot-property.cdcd.run.{tag.mirror}": _half(tag)} if merges_next else {}
        self._append(table, rows, seen, mark)

    def _append(self, table: str, rows: DataFrame, seen: int | None, options: Mapping[str, str]) -> None:
        # An append has no such check. An overwrite that replaces nothing has one, and its snapshot is an append's.
        options = {"isolation-level": "serializable", **options}
        if seen is not None:
            options["validate-from-snapshot-id"] = str(seen)

        def append_once() -> None:
            rows.writeTo(table).options(**options).overwrite(f.lit(False))

        # The commit has surely failed then. A ValidationException says that rows came since the caller looked.
        self.again_after_conflicts(table, append_once, "CommitFailed")

    def stage(self, table: str, rows: DataFrame, tag: Tag, seen: int | None) -> Staged:
        spark = rows.sparkSession  # another session would not know the branch
        self.refresh(table, spark)
        java, branch = self._java(table, spark), f"{_STAGED}{uuid4().hex}"
        # Where the caller has looked for tags, the branch begins: rows that came since keep it from being published.
        java.manageSnapshots().createBranch(branch, *([] if seen is None else [seen])).commit()
        start = java.snapshot(branch).snapshotId()
        try:
            rows.writeTo(f"{table}.branch_{branch}").append()
        except Exception:
            _remove_branch(java, branch)
            raise
        java.refresh()
        end = java.snapshot(branch).snapshotId()
        reader = spark.read.format("iceberg").option("start-snapshot-id", start).option("end-snapshot-id", end)
        conversions = spark._jvm.org.apache.iceberg.types.Conversions  # noqa: SLF001
        return StagedInIceberg(java, branch, reader.load(table), conversions)

    def tagged(self, table: str, tag: Tag) -> bool:
        return self._wrote(table, tag.mirror, tag.token)

    def appended(self, table: str, tag: Tag) -> bool:
        return self._wrote(table, tag.mirror, _half(tag))

    def _wrote(self, table: str, mirror: str, value: str) -> bool:
        return self._has_summary(table, f"cdcd.run.{mirror}", value)

    def _has_summary(self, table: str, name: str, value: str) -> bool:
        """Whether one of the snapshots that led to the newest one has this in its summary."""
        snapshots, history = f"{table}.snapshots", f"{table}.history"
        own = f"SELECT snapshot_id FROM {history} WHERE is_current_ancestor"
        made = f"SELECT snapshot_id FROM {snapshots} WHERE summary['{name}'] = {sql_text(value)}"
        return not self.spark.sql(f"{made} INTERSECT {own}").isEmpty()

    def _tags(self, tag: Tag) -> dict[str, str]:
        return {f"spark.sql.iceberg.snapshot-property.cdcd.run.{tag.mirror}": tag.token}

    def replaced(self, table: str, mirror: str, version: int) -> bool:
        return self._has_summary(table, f"cdcd.load.{mirror}", str(version))

    def _marks(self, mirror: str, version: int | None) -> dict[str, str]:
        return {f"spark.sql.iceberg.snapshot-property.cdcd.load.{mirror}": str(version)}

    def tag(self, table: str, name: str, version: int) -> None:
        refs = self.spark.sql(f"SELECT name, snapshot_id FROM {table}.refs").collect()
        if (name, version) not in {tuple(row) for row in refs}:
            self.commit(table, f"ALTER TABLE {table} CREATE OR REPLACE TAG `{name}` AS OF VERSION {version}")

    def compact(self, table: str) -> Any:
        return self._call("rewrite_data_files", table)

    def remove_old_files(self, table: str, older_than: datetime | None, oldest: int | None = None) -> Any:
        if older_than is None:
            return self._call("expire_snapshots", table)
        self._remove_branches(table, older_than)
        # A snapshot expires by its own age. But a young run may have an old one, if the table has not changed for long.
        snapshots = f"SELECT committed_at FROM {table}.snapshots WHERE snapshot_id = {oldest}"
        made = [] if oldest is None else [row["committed_at"] for row in self.spark.sql(snapshots).collect()]
        since = min([older_than, *(each.astimezone(UTC) for each in made)])
        return self._call("expire_snapshots", table, f", older_than => timestamp_ltz '{since:%Y-%m-%d %H:%M:%S}Z'")

    def _remove_branches(self, table: str, older_than: datetime) -> None:
        """Remove the branches that processes have left, because they died before they published."""
        java = self._java(table)
        for name in [name for name in java.refs() if name.startswith(_STAGED)]:
            if java.snapshot(name).timestampMillis() < older_than.timestamp() * 1000:
                _remove_branch(java, name)

    def _snapshots(self, table: str) -> Snapshots:
        rows = self.spark.sql(f"SELECT snapshot_id, parent_id, operation FROM {table}.snapshots").collect()
        return {row["snapshot_id"]: (row["parent_id"], row["operation"]) for row in rows}

    def _call(self, procedure: str, table: str, more: str = "") -> Any:
        catalog, _, name = table.partition(".")
        return self.spark.sql(f"CALL {catalog}.system.{procedure}(table => {sql_literal(name)}{more})").collect()


class StagedInIceberg(Staged):
    """A snapshot that a branch has, and which becomes the table's if the table is still where the branch began."""

    def __init__(self, java: Any, branch: str, rows: DataFrame, conversions: Any) -> None:
        """`conversions`: Iceberg's class that reads the values of statistics."""
        super().__init__(rows)
        self._java = java
        self._branch = branch
        self._conversions = conversions

    def publish(self) -> bool:
        try:
            self._java.manageSnapshots().fastForwardBranch("main", self._branch).removeBranch(self._branch).commit()
        except Exception as error:  # Py4J's
            if not is_conflict(error) and "fast-forward" not in str(error):
                raise
            return False
        return True

    def end(self) -> None:
        _remove_branch(self._java, self._branch)

    def groups(self, columns: Sequence[str]) -> Groups | None:
        snapshot = self._java.snapshot(self._branch)
        fields = [self._java.schema().findField(name) for name in columns]
        if any(field is None or field.type().toString() not in _WHOLE for field in fields):
            return None
        if int(snapshot.summary().get("added-data-files") or 0) > ASKED_FILES_MAX:
            return None
        groups = []
        for file in snapshot.addedDataFiles(self._java.io()):
            rows, values = int(file.recordCount()), []
            statistics = file.lowerBounds(), file.upperBounds(), file.nullValueCounts()
            for field in fields:
                number, kind = field.fieldId(), field.type()
                low, high, nulls = (None if each is None else each.get(number) for each in statistics)
                if low is None or high is None or nulls is None:
                    return None
                values += [*(int(self._conversions.fromByteBuffer(kind, each)) for each in (low, high)), rows - nulls]
            groups.append((rows, values))
        return groups


def _chosen(mode: str) -> dict[str, str]:
    """The properties of a table whose merge mode cdcd has chosen."""
    return {_MERGE_MODE: mode, _CHOSEN_MODE: mode}


def _bytes(snapshot: Any) -> float:
    """Bytes of all files of a snapshot, as Iceberg's object for it says (None: of no snapshot)."""
    if snapshot is None:
        return 0
    said = snapshot.summary().get("total-files-size")
    return math.inf if said is None else int(said)


def _is_rewritten(version: int, now: int, known: Snapshots) -> bool:
    """Whether all snapshots after this version, up to `now`, have the rows of the ones before them."""
    while now != version:
        parent, operation = known.get(now, (None, ""))
        if parent is None or operation != "replace":
            return False
        now = parent
    return True


def _remove_branch(java: Any, branch: str) -> None:
    java.refresh()
    if java.refs().containsKey(branch):
        java.manageSnapshots().removeBranch(branch).commit()


def _half(tag: Tag) -> str:
    return f"{tag.token} before its MERGE"
