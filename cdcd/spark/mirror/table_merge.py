"""One table of one run: its events between two cuts go into its target.

Before: `batches` reads the records, `batch_changes` decodes them. After: `keyed_merge` and `keyless_merge` merge the
events, and the target's new version goes into the run's row.

A merge may need more than the events: the values of unchanged columns, or the numbers of equal rows without a key. It
reads these from the version that the last run published. So a second attempt gives the same rows as the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from cdcd.errors import GapError, RequestRejected
from cdcd.spark.mirror.batch_changes import ChangeReader, Changes, NoChanges, Written
from cdcd.spark.mirror.batches import Batch, Batches, Work
from cdcd.spark.mirror.keyed_merge import KeyedMerges, inserts
from cdcd.spark.mirror.keyless_merge import merge_keyless
from cdcd.spark.mirror.merge_sql import DELETED
from cdcd.spark.mirror.per_table import PerTable
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.schema_evolution import TargetSchema
from cdcd.spark.mirror.staged_append import StagedAppends
from cdcd.spark.mirror.table_write import Attempt, TableWriters
from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.reading.writer_schemas import Writer
from cdcd.spark.state import keyless_rows
from cdcd.spark.state.collapse import UNREPRESENTABLE


class TableMerger:
    """Merges tables, one a call. Several threads may use it."""

    def __init__(self, batches: Batches, target: Target, per_table: PerTable) -> None:
        self._batches = batches
        self._kafka = batches.kafka
        self._writers = batches.writers
        self._target = target
        self._per_table = per_table
        self._changes = ChangeReader(batches.writers, target, per_table)
        self._table_writers = TableWriters(target)
        self._staged = StagedAppends(self._changes, self._table_writers)
        self._keyed = KeyedMerges(self._changes, self._table_writers)

    def merge(self, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt) -> MirroredTable:
        """Bring a table from `before`, its last published state (None: never published), to the plan's offsets.

        Returns the table after that, with the number of its events.
        """
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

    def check_load(self, plan: MirroredTable, key: Sequence[str]) -> None:
        """Raise RequestRejected if a load may not replace the rows of the table's target. `key`: that of the load."""

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
        table, rules = plan.target, self._per_table.rules(plan.schema, plan.name, plan.kind)
        of_table = TargetSchema(self._target, rules).fit(table, [writer], key, overwrites=True).of_table
        if not key:
            row = f.struct(*writer.names)
            hashed = rows.withColumn(keyless_rows.HASH, keyless_rows.row_hash(row, f.col(UNREPRESENTABLE)))
            number = f.row_number().over(Window.partitionBy(keyless_rows.HASH).orderBy(keyless_rows.HASH))
            rows = hashed.withColumn(keyless_rows.DUPLICATE, number.cast("bigint"))
        self._table_writers.of(table, rules, of_table).overwrite(rows)
        return self._target.version(table)

    def _merge(
        self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt
    ) -> MirroredTable:
        made: Changes | NoChanges | Written | None
        made = self._staged.append(batch, plan, before, attempt, inserts)
        made = made or self._keyed.merge_as_read(batch, plan, before, attempt)
        if made is None:
            made = self._changes.read(batch, plan, before, attempt.wait_for_plan)
            attempt.wait_for_plan()
            if isinstance(made, NoChanges):
                return without_events(plan, before, made.key)
            self._staged.note(plan, made)
            self._merge_changes(batch, made, plan, before, attempt)
        version, last = self._target.version(plan.target), made.succession.last
        return replace(plan, key=list(made.key), version=version, columns=last, events=made.count)

    def _merge_changes(
        self, batch: Batch, made: Changes, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt
    ) -> None:
        base = None
        needs_base = made.stats.last_truncate is None and (made.stats.has_incomplete_key_change or not made.key)
        if before is not None and needs_base:
            base = self._changes.base(plan, before)
        if made.key:
            self._keyed.merge(batch, made, plan, before, base, attempt)
            return
        writer = self._table_writers.of(plan.target, made.rules, made.of_table)
        merge_keyless(batch, made, plan, before, base, attempt, writer)


def without_events(plan: MirroredTable, before: MirroredTable | None, key: Sequence[str] | None) -> MirroredTable:
    """A table that stays as it was published."""
    key = None if key is None else list(key)
    return replace(plan, key=key, version=None if before is None else before.version, events=0)
