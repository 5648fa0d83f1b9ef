"""One table of one run: its events between two cuts, collapsed and merged.

Before: `batch_changes` has decoded the events. After: the target's new version goes into the run's row.

A merge may need more than the events: the values of unchanged columns, or the numbers of equal rows without a key. It
reads these from the version that the last run published. So a second attempt gives the same rows as the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from cdcd.errors import GapError, RequestRejected
from cdcd.spark.mirror.batch_changes import ChangeReader, Changes, NoChanges
from cdcd.spark.mirror.batches import Batch, Batches, Work
from cdcd.spark.mirror.merge_sql import DELETED, INSERTED, MergeSource
from cdcd.spark.mirror.new_rows import has_equal_keys, has_repeated_keys, keys_of, only_adds
from cdcd.spark.mirror.per_table import PerTable
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.schema_evolution import OWN_COLUMNS, Succession, TargetSchema
from cdcd.spark.mirror.table_write import Attempt, TableWriter
from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.reading.missing_values import MissingValue
from cdcd.spark.reading.writer_schemas import Writer
from cdcd.spark.state import keyless_rows
from cdcd.spark.state.as_of import check_keyed, with_columns, with_unknown
from cdcd.spark.state.collapse import (
    COMMIT_LSN,
    COMMIT_TS,
    META_NAMES,
    OP,
    SEQ,
    UNCHANGED,
    UNREPRESENTABLE,
    after_truncate,
    collapse,
    fallible_names,
    fill_key_changes,
    single_rows,
)


@dataclass(frozen=True)
class MergedTable:
    """A table after its merge."""

    table: MirroredTable
    events: int


class TableMerger:
    """Merges tables, one a call. Several threads may use it."""

    def __init__(self, batches: Batches, target: Target, per_table: PerTable) -> None:
        self._batches = batches
        self._kafka = batches.kafka
        self._writers = batches.writers
        self._target = target
        self._per_table = per_table
        self._changes = ChangeReader(batches.writers, target, per_table)

    def merge(self, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt) -> MergedTable:
        """Bring a table from `before`, its last published state (None: never published), to the plan's offsets."""
        with self._kafka.errors(f"reading {plan.topic}"), self._batches.read(plan, before) as batch:
            return self._merge(batch, plan, before, attempt)

    def reading_together(self, work: Sequence[Work]) -> AbstractContextManager[None]:
        """Inside the `with` block `merge` has read the small batches of these tables, in one Spark job."""
        return self._batches.together(work)

    def check_begins_anew(self, plan: MirroredTable, before: MirroredTable) -> None:
        """Raise RequestRejected unless the plan has a truncate event, as the daemon's new snapshot begins with one.

        The table was dropped in the lake: only then do its events make all of its rows again.
        """
        with self._kafka.errors(f"reading {plan.topic}"), self._batches.read(plan, before) as batch:
            if not self._changes.begins_anew(batch, plan):
                raise RequestRejected(
                    f"{plan.target} was dropped",
                    "Load it again with `cdcd spark snapshot`, or let the daemon copy it: cdcd snapshot",
                    code="mirror-load-again",
                )

    def merged_earlier(self, plan: MirroredTable, before: MirroredTable | None) -> MirroredTable:
        """A table that an earlier process has merged by this plan: its key, its columns and its version."""
        if plan.key is None:
            keys = self._writers.of(plan.schema, plan.name, plan.topic, "key")
            plan = replace(plan, key=list(keys[-1].key) if keys else [])
        return replace(plan, columns=self._last_columns(plan, before), version=self._target.version(plan.target))

    def live(self, plan: MirroredTable, rows: DataFrame) -> DataFrame | None:
        """Those of the table's rows that PostgreSQL has, too; None if the table does not tell them."""
        return rows.where(f"NOT coalesce({DELETED}, false)") if DELETED in rows.columns else rows

    def _last_columns(self, plan: MirroredTable, before: MirroredTable | None) -> list[str] | None:
        """The columns of the plan's last events; None if retention has deleted them."""
        try:
            with self._kafka.errors(f"reading {plan.topic}"), self._batches.read(plan, before) as batch:
                return self._changes.last_columns(batch, plan)
        except GapError:
            return None

    def load(self, plan: MirroredTable, rows: DataFrame, writer: Writer, key: Sequence[str]) -> int | None:
        """Overwrite the table's target with these rows; returns its version."""
        table, rules = plan.target, self._per_table.rules(plan.schema, plan.name)
        TargetSchema(self._target, rules).fit(table, [writer], key, overwrites=True)
        if not key:
            row = f.struct(*writer.names)
            hashed = rows.withColumn(keyless_rows.HASH, keyless_rows.row_hash(row, f.col(UNREPRESENTABLE)))
            number = f.row_number().over(Window.partitionBy(keyless_rows.HASH).orderBy(keyless_rows.HASH))
            rows = hashed.withColumn(keyless_rows.DUPLICATE, number.cast("bigint"))
        TableWriter(self._target, rules.deletes).completed(table, rows).writeTo(table).overwrite(f.lit(True))
        return self._target.version(table)

    def _merge(self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt) -> MergedTable:
        made = self._changes.read(batch, plan, before)
        if isinstance(made, NoChanges):
            return without_events(plan, before, made.key)
        stats, columns, key, narrow, ordered = made.stats, made.columns, made.key, made.narrow, made.ordered
        missing, fills, succession = made.missing, made.fills, made.succession
        writer = TableWriter(self._target, made.rules.deletes)
        events = after_truncate(made.events, stats)
        truncates = stats.last_truncate is not None
        needs_base = (stats.has_incomplete_key_change or not key) and not truncates
        base = None if before is None or not needs_base else self._changes.base(plan, before)
        was_empty = before is None or before.version is None
        counted: DataFrame | None = None
        names = [column["name"] for column in columns]
        view = f"cdcd_source_{attempt.tag.token}_{abs(hash(plan.topic))}"
        if key:
            check_keyed(stats, plan.table, had_key=stats.has_keyed_rows or bool(before is not None and before.key))
            may_append = not fills and not attempt.has_appended and (was_empty or not truncates)
            table = None if was_empty else plan.target
            new = after_truncate(narrow, stats)
            if may_append and _adds_each_key_once(batch, made) and writer.lacks(new, stats, key, table):
                writer.append(plan.target, single_rows(events, columns).select(*names, *META_NAMES), attempt)
                version, last = self._target.version(plan.target), succession.last
                return MergedTable(replace(plan, key=list(key), version=version, columns=last), stats.events)
            if stats.has_incomplete_key_change:
                filled = None if base is None else with_columns(base, columns, missing)
                events = fill_key_changes(events, filled, columns, key)
            rows = collapse(events, columns, stats.unchanged).withColumn(INSERTED, with_unknown())
            source = MergeSource(view, key, fallible_names(key, columns), names, stats.unchanged)
        else:
            events = keyless_rows.with_columns_of(events, succession.last)
            if base is not None and before is not None and (fills or _went(before, base, succession)):
                events, base, truncates = _counted_anew(events, base, columns, fills, succession.last), None, True
            rows, counted = _numbered(events, base, names, plan)
            row_key = [keyless_rows.HASH, keyless_rows.DUPLICATE]
            source = MergeSource(view, row_key, [], names + row_key, stats.unchanged)
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            if was_empty and not attempt.has_appended:
                writer.append_existing(plan.target, rows, source.columns, attempt)
            elif truncates or fills or not key:
                writer.merge(rows, source, plan.target, truncates=truncates, missing=fills)
            else:
                writer.append_and_merge(rows, source, stats, ordered, plan.target, attempt)
        finally:
            rows.unpersist()
            if counted is not None:
                counted.unpersist()
        version, last = self._target.version(plan.target), succession.last
        return MergedTable(replace(plan, key=list(key or ()), version=version, columns=last), stats.events)


def without_events(plan: MirroredTable, before: MirroredTable | None, key: Sequence[str] | None) -> MergedTable:
    """A table that stays as it was published."""
    key = None if key is None else list(key)
    return MergedTable(replace(plan, key=key, version=None if before is None else before.version), 0)


def _adds_each_key_once(batch: Batch, made: Changes) -> bool:
    """Whether the events are inserts and rows of snapshots alone, no two of one key; perhaps after truncates."""
    stats = made.stats
    if not only_adds(stats):
        return False
    if stats.events == 1:
        return True
    has_truncates = stats.last_truncate is not None  # they void records, and have no key
    if not has_truncates and len(batch.keys) == 1 and len(made.key) == len(made.ordered):
        return not has_repeated_keys(batch.raw)
    return not has_equal_keys(keys_of(after_truncate(made.narrow, stats), made.key))


def _went(before: MirroredTable, base: DataFrame, succession: Succession) -> bool:
    """Whether the published rows have a column that the last events of a batch lack, or have under another name."""
    known = before.columns or [name for name in base.columns if name not in OWN_COLUMNS]
    return not {name.lower() for name in known} <= {name.lower() for name in succession.last}


def _counted_anew(
    events: DataFrame,
    base: DataFrame,
    columns: Sequence[dict[str, Any]],
    fills: Mapping[str, MissingValue | None],
    last: Sequence[str],
) -> DataFrame:
    """The events with the published rows before them, as the last schema has these: their hashes are others now."""
    stale = [name for name in fills if name in base.columns]
    known = {name: each for name, each in fills.items() if each is not None}
    rows = with_columns(base.drop(*stale), columns, known)
    if DELETED in base.columns:
        # A live row may get the hash of a dead one, which is newer: the MERGE would let it lie.
        newest = base.agg(f.max(COMMIT_LSN)).first()[0]
        rows = rows.where(f"NOT coalesce({DELETED}, false)").withColumn(COMMIT_LSN, f.lit(newest).cast("bigint"))
    anew = keyless_rows.as_events(rows, events)
    return events.unionByName(keyless_rows.with_columns_of(anew, last))


def _numbered(
    events: DataFrame, base: DataFrame | None, names: Sequence[str], plan: MirroredTable
) -> tuple[DataFrame, DataFrame]:
    """The rows without a key to add and to delete, equal rows numbered from 1; raises GapError if one is missing.

    The second DataFrame is persisted: the caller unpersists it.
    """
    net = keyless_rows.net_counts(events).where("_net <> 0")
    if base is None:
        counted = net.withColumn("_have", f.lit(0).cast("bigint"))
    else:
        existing = base.where(f"NOT coalesce({DELETED}, false)") if DELETED in base.columns else base
        have = existing.groupBy(keyless_rows.HASH).agg(f.count("*").alias("_have"))
        counted = net.join(have, keyless_rows.HASH, "left").fillna(0, ["_have"])
    counted = counted.persist()
    missing = counted.where("_have + _net < 0").count()
    if missing:
        counted.unpersist()
        raise GapError(
            f"{plan.table} has no key, and {missing} rows that were deleted are not in {plan.target}",
            "Its topic does not go back to its beginning: load it again with `cdcd spark snapshot`",
            code="mirror-load-again",
        )
    low, high = f.least("_have", f.expr("_have + _net")), f.greatest("_have", f.expr("_have + _net"))
    numbered = counted.withColumn(keyless_rows.DUPLICATE, f.explode(f.sequence(low + 1, high)))
    rows = numbered.select(
        *(f.col("_last._row").getField(name).alias(name) for name in names),
        keyless_rows.HASH,
        keyless_rows.DUPLICATE,
        f.col("_order.lsn").alias(COMMIT_LSN),
        f.col("_order.seq").alias(SEQ),
        f.col("_last._ts").alias(COMMIT_TS),
        f.col("_last._lost").alias(UNREPRESENTABLE),
        f.col("_last._lost").alias(INSERTED),
        f.when(f.col("_net") > 0, "u").otherwise("d").alias(OP),
        f.expr("cast(array() as array<string>)").alias(UNCHANGED),
    )
    return rows, counted
