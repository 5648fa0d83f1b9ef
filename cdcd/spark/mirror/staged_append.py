"""Appends a batch while it is read, if it most likely has inserts alone, as most first loads have.

Before: `batch_changes` decodes the events. After: `table_merge` publishes the table's new version, or merges the batch.

The rows go into files that no reader sees, and Spark counts the events meanwhile. Only then is it known what the batch
has. If it is as expected, the files become the table's, in one commit; else they are given up, and the batch is read
once more, as any other. So inserts are read, decoded and written in one pass, and nothing keeps them in between. A
process that dies before the commit has written nothing that a reader sees. So the files are written even while the
process writes its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from cdcd.spark.mirror.batch_changes import ChangeReader, Changes, Events, Written
from cdcd.spark.mirror.batches import Batch
from cdcd.spark.mirror.new_rows import has_repeated_keys, is_worth_appending, only_inserts
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.table_write import Attempt, TableWriter, TableWriters
from cdcd.spark.state.collapse import OP, UNCHANGED, without_messages
from cdcd.spark.state.key_bounds import PARTS, Keys, keys_of_groups, least_and_most

Rows: TypeAlias = "Callable[[DataFrame, Sequence[dict[str, Any]]], DataFrame]"
"""Makes a table's rows of flat events and of the table's columns."""
_Fits: TypeAlias = "Callable[[_Found, DataFrame, TableWriter], bool]"
"""Whether a batch is as expected: what its events are, its rows in the files, their writer."""

_ADDS: Final = f"{OP} IN ('c', 'r') AND NOT _unkeyed AND size({UNCHANGED}) = 0"
"""The events of rows that are new, and come with their keys and with all columns."""

_LIKE_EACH_OTHER = 2
"""So many batches of a table that are of inserts alone let expect another one."""

_SAID_WITHIN_S = 60.0
"""Spark says it within milliseconds, after the job."""


@dataclass(frozen=True)
class _Found:
    """What Spark has counted in the events of a batch while it wrote their rows."""

    events: int
    adds_alone: bool
    """No event is of another kind than `_ADDS`."""
    keys: Keys


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

        def fits(found: _Found, staged: DataFrame, writer: TableWriter) -> bool:
            self._learn(plan, has_inserts_alone=found.adds_alone)
            if not found.adds_alone or has_repeated_keys(staged, key, found.keys):
                return False
            return is_first or writer.lacks(staged, key, found.keys)

        return self._append(likely, plan, attempt, rows, fits)

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

    def _append(self, likely: Events, plan: MirroredTable, attempt: Attempt, rows: Rows, fits: _Fits) -> Written | None:
        observed = Observation()
        events = without_messages(likely.events).observe(observed, *map(f.expr, _aggregates(likely.ordered)))
        writer = self._writers.of(plan.target, likely.rules, likely.of_table)
        with writer.staged(rows(events, likely.columns), attempt) as staged:
            counted = _counted(observed)
            if counted is None or not counted["events"] or counted["unknown"]:
                return None
            found = _found(counted, likely.ordered)
            if not fits(found, staged.rows, writer):
                return None
            writer.expect(likely.key, found.keys)
            attempt.wait_for_plan()
            return Written(**vars(likely), count=found.events) if writer.publish(staged) else None


def _aggregates(ordered: Sequence[str]) -> list[str]:
    """What Spark counts, in SQL. These are few, because Spark computes them for each event by itself."""
    bounds = least_and_most([f"_key.`{name}`" for name in ordered])
    counted = {"events": "count(*)", "unknown": f"count_if({OP} IS NULL)", "adds": f"count_if({_ADDS})"}
    named = counted | {str(index): bound for index, bound in enumerate(bounds)}
    return [f"{value} AS `{name}`" for name, value in named.items()]


def _found(counted: Mapping[str, Any], ordered: Sequence[str]) -> _Found:
    """What `_aggregates` has counted. `ordered`: as there, the columns of the key that have bounds."""
    events = counted["events"]
    bounds = [counted[str(index)] for index in range(PARTS * len(ordered))]
    return _Found(events, counted["adds"] == events, keys_of_groups(ordered, [(events, bounds)]))


def _counted(observed: Observation) -> Mapping[str, Any] | None:
    """What a job has counted. None: Spark has dropped the answer, as it does when its listeners are too slow."""
    said: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
    Thread(target=lambda: said.put(observed.get), daemon=True).start()
    try:
        return said.get(timeout=_SAID_WITHIN_S)
    except Empty:
        return None
