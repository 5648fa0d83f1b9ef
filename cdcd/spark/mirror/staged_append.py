"""Appends a batch while it is read, if it most likely has inserts alone, as most first loads have.

Before: `batch_changes` decodes the events. After: `table_merge` publishes the table's new version, or merges the batch.

The rows go into files that no reader sees. The row of an event that is not as expected gets a mark in the place of its
LSN, and the lowest LSN of the files tells whether one has a mark. If the batch is as expected, the files become the
table's, in one commit; else they are given up, and the batch is read once more, as any other. So inserts are read,
decoded and written in one pass, and nothing keeps them in between. A process that dies before the commit has written
nothing that a reader sees. So the files are written even while the process writes its plan.

Whole numbers, as an LSN and most keys, cost no further look: each file has statistics of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.spark.mirror.batch_changes import ChangeReader, Changes, Events, Written
from cdcd.spark.mirror.batches import Batch
from cdcd.spark.mirror.new_rows import has_repeated_keys, is_worth_appending, only_inserts
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.table_write import Attempt, TableWriter, TableWriters
from cdcd.spark.mirror.targets.target import Staged
from cdcd.spark.state.collapse import COMMIT_LSN, OP, UNCHANGED, without_messages
from cdcd.spark.state.key_bounds import Groups, Keys, keys_of_groups, least_and_most

Rows: TypeAlias = "Callable[[DataFrame, Sequence[dict[str, Any]]], DataFrame]"
"""Makes a table's rows of flat events and of the table's columns."""
_Fits: TypeAlias = "Callable[[Keys, bool, DataFrame, TableWriter], bool]"
"""Whether a batch is as expected: its keys, whether its events are all of the wanted kind, its rows in the files, their
writer."""

_ADDS: Final = f"{OP} IN ('c', 'r') AND NOT _unkeyed AND size({UNCHANGED}) = 0"
"""The events of rows that are new, and come with their keys and with all columns."""
_UNWANTED: Final = -1
"""The mark of an event of another kind than the wanted ones. No LSN is negative."""
_UNKNOWN: Final = -2
"""The mark of an event of another schema."""

_LIKE_EACH_OTHER = 2
"""So many batches of a table that are of inserts alone let expect another one."""


class StagedAppends:
    """Appends batches of tables while they are read. Several threads may use it."""

    def __init__(self, changes: ChangeReader, writers: TableWriters) -> None:
        self._changes = changes
        self._writers = writers
        self._had_inserts_alone: dict[str, list[bool]] = {}
        """By the table's id, of the last batches that were looked through."""

    def note(self, plan: MirroredTable, made: Changes) -> None:
        """Learn from a batch what the next one of its table will be."""
        self._learn(plan, has_inserts_alone=bool(made.key) and only_inserts(made.stats))

    def _learn(self, plan: MirroredTable, *, has_inserts_alone: bool) -> None:
        known = self._had_inserts_alone.get(plan.id, [])
        self._had_inserts_alone[plan.id] = [*known, has_inserts_alone][-_LIKE_EACH_OTHER:]

    def append(
        self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt, rows: Rows
    ) -> Written | None:
        """Append the rows of a batch of inserts; does nothing, and returns None, unless it is one."""
        is_first = before is None or before.version is None
        if not all(self._had_inserts_alone.get(plan.id, [is_first])):
            return None
        likely = self._likely(batch, plan, before, attempt)
        if likely is None or not likely.key:
            return None
        key = likely.key

        def fits(keys: Keys, adds_alone: bool, staged: DataFrame, writer: TableWriter) -> bool:
            self._learn(plan, has_inserts_alone=adds_alone)
            if not adds_alone or has_repeated_keys(staged, key, keys):
                return False
            return is_first or writer.lacks(staged, key, keys)

        return self._append(likely, plan, attempt, rows, fits, wanted=_ADDS)

    def append_events(
        self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt, rows: Rows
    ) -> Written | None:
        """Append a row for each event of a batch; does nothing, and returns None, if the batch has several schemas."""
        likely = self._likely(batch, plan, before, attempt, by_key=False)
        return None if likely is None else self._append(likely, plan, attempt, rows, lambda *_: True)

    def _likely(
        self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt, *, by_key: bool = True
    ) -> Events | None:
        if attempt.has_appended or not is_worth_appending(batch.offsets):
            return None
        likely = self._changes.likely(batch, plan, before, attempt.wait_for_plan, by_key=by_key)
        # Spark shuffles the rows of a table that is sorted or divided, and may read the batch twice for that.
        is_shuffled = likely is not None and (likely.rules.layout.order_by or likely.rules.layout.partition_by)
        return None if likely is None or likely.fills or is_shuffled else likely

    def _append(
        self, likely: Events, plan: MirroredTable, attempt: Attempt, rows: Rows, fits: _Fits, *, wanted: str = "true"
    ) -> Written | None:
        """Write the rows, and publish them if they fit. `wanted`: the kind of events that `fits` asks for, in SQL."""
        events = _marked(without_messages(likely.events), wanted)
        writer = self._writers.of(plan.target, likely.rules, likely.of_table)
        with writer.staged(rows(events, likely.columns), attempt) as staged:
            columns = [COMMIT_LSN, *likely.ordered]
            found = keys_of_groups(columns, staged.groups(columns) or _computed(staged, columns))
            bounds = dict(found.bounds)
            least, _ = bounds.pop(COMMIT_LSN, (_UNKNOWN, None))
            if least == _UNKNOWN:
                return None
            keys = Keys(found.rows, bounds)
            if not fits(keys, least != _UNWANTED, staged.rows, writer):
                return None
            writer.expect(likely.key, keys)
            attempt.wait_for_plan()
            return Written(**vars(likely), count=keys.rows) if writer.publish(staged) else None


def _marked(events: DataFrame, wanted: str) -> DataFrame:
    """Flat events. An event that is not `wanted` gets a mark in the place of its commit LSN. `wanted`: in SQL."""
    lsn = f"CASE WHEN {OP} IS NULL THEN {_UNKNOWN} WHEN {wanted} THEN _order.lsn ELSE {_UNWANTED} END"
    return events.withColumn("_order", f.expr(f"named_struct('lsn', {lsn}, 'seq', _order.seq)"))


def _computed(staged: Staged, columns: Sequence[str]) -> Groups:
    """As `Staged.groups`, of all files together, by a Spark job."""
    values = least_and_most([f"`{name}`" for name in columns])
    named = (f"{each} AS `{index}`" for index, each in enumerate(["count(*)", *values]))
    [[count, *found]] = staged.rows.selectExpr(*named).collect()
    return [(count, found)]
