"""The events of one table in one run, decoded, in the columns that the table in the lake gets for them.

Before: `batches` has read the records. After: `table_merge` merges the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.errors import RequestRejected
from cdcd.spark.mirror.batch_schemas import batch_schemas, last_headers, writers_after_truncate
from cdcd.spark.mirror.batches import Batch
from cdcd.spark.mirror.per_table import PerTable, TableRules
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.schema_evolution import Evolution, Succession, TargetSchema
from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.reading.decoding import decode, in_order
from cdcd.spark.reading.missing_values import MissingValue, missing_values
from cdcd.spark.reading.writer_schemas import Writer, Writers
from cdcd.spark.state.collapse import BatchStats, batch_stats, flatten, ordered_names, without_lost_columns


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
    """By column: the value of the rows that are older than the column."""
    fills: Mapping[str, MissingValue | None]
    """By column that this batch brings: the value that the published rows get; None: null."""
    succession: Succession


@dataclass(frozen=True)
class NoChanges:
    """A batch without events."""

    key: list[str] | None


class ChangeReader:
    """Decodes the batches of tables. Several threads may use it."""

    def __init__(self, writers: Writers, target: Target, per_table: PerTable) -> None:
        self._writers = writers
        self._target = target
        self._per_table = per_table

    def read(self, batch: Batch, plan: MirroredTable, before: MirroredTable | None) -> Changes | NoChanges:
        """The decoded events of a batch. The table has been made for them, or altered."""
        raw = batch.raw
        writers, key = batch_schemas(
            self._writers, batch.values, batch.keys, plan, before, lambda found: last_headers(raw, found, plan.topic)
        )
        if not writers:
            return NoChanges(key)
        order = in_order(raw, writers, plan.topic)
        rules = self._per_table.rules(plan.schema, plan.name)
        schema = TargetSchema(self._target, rules)
        succession = self.succession(plan, before, order.writers)
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

    def begins_anew(self, batch: Batch, plan: MirroredTable) -> bool:
        """Whether the batch has a truncate."""
        writers = self._writers.find(batch.values, plan.schema, plan.name, plan.topic, "value")
        return bool(writers) and last_headers(batch.raw, writers, plan.topic) is not None

    def last_columns(self, batch: Batch, plan: MirroredTable) -> list[str] | None:
        """The columns of the batch's last events; if it has none, those that the plan knows."""
        found = self._writers.find(batch.values, plan.schema, plan.name, plan.topic, "value")
        return in_order(batch.raw, found, plan.topic).names if found else plan.columns

    def base(self, plan: MirroredTable, before: MirroredTable) -> DataFrame:
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
        """By column that this plan adds, or that came again: the value that the published rows get; None: null.

        An earlier attempt may have added the columns.
        """
        if before is None or before.version is None or not (missing or evolution.returned):
            return {}
        published = {name.lower() for name in self.base(plan, before).columns}
        added = [each["name"] for each in evolution.columns if each["name"].lower() not in published]
        stale = [name for name in evolution.returned if name.lower() in published]
        return {name: missing[name] for name in added if name in missing} | {name: missing.get(name) for name in stale}

    def succession(self, plan: MirroredTable, before: MirroredTable | None, writers: Sequence[Writer]) -> Succession:
        """The columns that the table had before these schemas of a batch, as the published run names them.

        A table without rows has the columns of the batch's first events. The run of an older cdcd names no columns: the
        schema before these of the batch is likely the one that was published.
        """
        if before is None or before.version is None:  # a person may have made the table, with more columns
            return Succession(writers[0].names, True, writers)
        if before.columns is not None:
            return Succession(before.columns, True, writers)
        known = self._writers.known(plan.schema, plan.name, plan.topic, "value")
        earlier = known[: known.index(writers[0])] if writers[0] in known else []
        return Succession(earlier[-1].names if earlier else None, False, writers)
