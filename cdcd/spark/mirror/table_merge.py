"""One table of one run: its events between two cuts, decoded, collapsed and merged.

Before: `planner` has planned the run. After: the target's new version goes into the run's row.

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
from cdcd.spark.mirror.batch_schemas import batch_schemas, last_headers, writers_after_truncate
from cdcd.spark.mirror.batches import Batch, Batches, Work
from cdcd.spark.mirror.merge_sql import DELETED, INSERTED, MergeSource
from cdcd.spark.mirror.per_table import PerTable, TableRules
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.schema_evolution import OWN_COLUMNS, Evolution, Succession, TargetSchema
from cdcd.spark.mirror.table_write import Attempt, TableWriter
from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.reading.decoding import decode, in_order
from cdcd.spark.reading.missing_values import MissingValue, missing_values
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
    BatchStats,
    after_truncate,
    batch_stats,
    collapse,
    fallible_names,
    fill_key_changes,
    flatten,
    ordered_names,
    single_rows,
    without_lost_columns,
)


@dataclass(frozen=True)
class MergedTable:
    """A table after its merge."""

    table: MirroredTable
    events: int


@dataclass(frozen=True)
class Changes:
    """The events of a batch, decoded."""

    events: DataFrame
    """Flat, in the table's columns; also those that a truncate voids."""
    narrow: DataFrame
    """The same in the columns of the key, if there is one."""
    stats: BatchStats
    columns: list[dict[str, Any]]
    key: Sequence[str]
    ordered: Sequence[str]
    """The columns of the key that have bounds."""
    rules: TableRules
    missing: Mapping[str, MissingValue]
    """What older rows hold in younger columns."""
    fills: Mapping[str, MissingValue | None]
    """What the published rows hold in the columns that this batch brings."""
    succession: Succession


class TableMerger:
    """Merges tables, one a call. Several threads may use it."""

    def __init__(self, batches: Batches, target: Target, per_table: PerTable) -> None:
        self._batches = batches
        self._kafka = batches.kafka
        self._writers = batches.writers
        self._target = target
        self._per_table = per_table

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
            writers = self._writers.find(batch.values, plan.schema, plan.name, plan.topic, "value")
            if not writers or last_headers(batch.raw, writers, plan.topic) is None:
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
                found = self._writers.find(batch.values, plan.schema, plan.name, plan.topic, "value")
                return in_order(batch.raw, found, plan.topic).names if found else plan.columns
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

    def _changes(self, batch: Batch, plan: MirroredTable, before: MirroredTable | None) -> Changes | MergedTable:
        """The decoded events of a batch, for which the table has been made or altered; a MergedTable if it has none."""
        raw = batch.raw
        writers, key = batch_schemas(
            self._writers, batch.values, batch.keys, plan, before, lambda found: last_headers(raw, found, plan.topic)
        )
        if not writers:
            return MergedTable(replace(plan, key=key, version=None if before is None else before.version), 0)
        order = in_order(raw, writers, plan.topic)
        rules = self._per_table.rules(plan.schema, plan.name)
        schema = TargetSchema(self._target, rules)
        succession = self._succession(plan, before, order.writers)
        try:
            evolution = schema.fit(plan.target, writers, key or (), succession)
        except RequestRejected:
            # A table that was replaced has other columns, and none of its rows is there yet: no column was renamed.
            later = writers_after_truncate(raw, writers, plan.topic)
            if later is None or not later.writers:
                raise
            anew = Succession(later.writers[0].names, True, later.writers)
            evolution = schema.fit(plan.target, writers, key or (), anew)
        columns = evolution.columns

        def flat(of: Sequence[dict[str, Any]]) -> DataFrame:
            events = flatten(decode(raw, writers, of, plan.topic), of, key or ())
            if of is columns:
                events = without_lost_columns(events, columns, order)
            return events.where(f.col("_order.lsn") >= plan.loaded_lsn) if plan.loaded_lsn else events

        keyed = {name.lower() for name in key or ()}
        narrow = flat([each for each in columns if each["name"].lower() in keyed] if key else columns)
        ordered = ordered_names(key or (), columns)
        stats = batch_stats(narrow, ordered)
        missing = missing_values(writers)
        fills = {} if stats.last_truncate is not None else self._fills(plan, before, evolution, missing)
        return Changes(flat(columns), narrow, stats, columns, key or (), ordered, rules, missing, fills, succession)

    def _merge(self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt) -> MergedTable:
        made = self._changes(batch, plan, before)
        if isinstance(made, MergedTable):
            return made
        stats, columns, key, narrow, ordered = made.stats, made.columns, made.key, made.narrow, made.ordered
        missing, fills, succession = made.missing, made.fills, made.succession
        writer = TableWriter(self._target, made.rules.deletes)
        events = after_truncate(made.events, stats)
        truncates = stats.last_truncate is not None
        needs_base = (stats.has_incomplete_key_change or not key) and not truncates
        base = None if before is None or not needs_base else self._base(plan, before)
        was_empty = before is None or before.version is None
        counted: DataFrame | None = None
        names = [column["name"] for column in columns]
        view = f"cdcd_source_{attempt.tag.token}_{abs(hash(plan.topic))}"
        if key:
            check_keyed(stats, plan.table, had_key=stats.has_keyed_rows or bool(before is not None and before.key))
            may_append = not fills and not attempt.has_appended and (was_empty or not truncates)
            if may_append and writer.lacks(
                after_truncate(narrow, stats), stats, key, None if was_empty else plan.target
            ):
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

    def _base(self, plan: MirroredTable, before: MirroredTable) -> DataFrame:
        """The rows that the last run published, under the present names of the columns.

        A version has the names that its columns had then. A person who renames a column leaves it in its place.
        """
        base, present = self._target.at(plan.target, before.version), list(self._target.columns(plan.target))
        for old, new in zip(base.columns, present, strict=False):
            if old not in present and new not in base.columns:
                base = base.withColumnRenamed(old, new)
        return base

    def _fills(
        self,
        plan: MirroredTable,
        before: MirroredTable | None,
        evolution: Evolution,
        missing: Mapping[str, MissingValue],
    ) -> dict[str, MissingValue | None]:
        """What the published rows hold in the columns that this plan adds, or that came again; None: null.

        An earlier attempt may have added them.
        """
        if before is None or before.version is None or not (missing or evolution.returned):
            return {}
        published = {name.lower() for name in self._base(plan, before).columns}
        added = [each["name"] for each in evolution.columns if each["name"].lower() not in published]
        stale = [name for name in evolution.returned if name.lower() in published]
        return {name: missing[name] for name in added if name in missing} | {name: missing.get(name) for name in stale}

    def _succession(self, plan: MirroredTable, before: MirroredTable | None, writers: Sequence[Writer]) -> Succession:
        """What the published run says of the columns before these schemas of a batch.

        Before its first rows, they are those of the batch's first events. The run of an older cdcd does not say it.
        Then it is likely the schema that was published before these.
        """
        if before is None or before.version is None:  # a person may have made the table, with more columns
            return Succession(writers[0].names, True, writers)
        if before.columns is not None:
            return Succession(before.columns, True, writers)
        known = self._writers.known(plan.schema, plan.name, plan.topic, "value")
        earlier = known[: known.index(writers[0])] if writers[0] in known else []
        return Succession(earlier[-1].names if earlier else None, False, writers)


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
