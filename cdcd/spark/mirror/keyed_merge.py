"""Merges one batch of a table with a key: appends inserts of new keys as they come, makes one row a key of the others.

Before: `batch_changes` has decoded the events. After: `table_write` appends and merges the rows.

Whether keys come several times is known once the events are read, and they are kept for that. But most batches are as
the one before. If that one had such keys, the rows are made while the events are read, and only the rows are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from cdcd.spark.mirror.batch_changes import ChangeReader, Changes, Events, Written
from cdcd.spark.mirror.batches import Batch
from cdcd.spark.mirror.merge_sql import MergeSource
from cdcd.spark.mirror.new_rows import NetRows, is_worth_appending, only_adds, parted, parted_with, repeated_keys
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.table_write import Attempt, TableWriters, source_view
from cdcd.spark.state.as_of import check_keyed, with_columns
from cdcd.spark.state.collapse import (
    EVENTS,
    FIRST_OP,
    ODD,
    OP,
    UNCHANGED,
    after_truncate,
    collapse,
    fallible_names,
    fill_key_changes,
    row_of_event,
    single_rows,
    without_messages,
)


def inserts(events: DataFrame, columns: Sequence[dict[str, Any]]) -> DataFrame:
    """Flat events that insert rows of different keys, with all their columns, as the table's rows."""
    return events.selectExpr(*row_of_event(columns))


class KeyedMerges:
    """Merges batches of tables with keys. Several threads may use it."""

    def __init__(self, changes: ChangeReader, writers: TableWriters) -> None:
        self._changes = changes
        self._writers = writers
        self._were_collapsed: dict[str, bool] = {}
        """By the table's id: whether the events of the last batch had to be collapsed."""

    def merge_as_read(
        self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt
    ) -> Written | None:
        """Merge a batch that most likely has several events of some keys; does nothing, and returns None, unless it is.

        It has one schema, that of the batch before, and no truncates. All events have their key, and the last ones of
        each key have all columns.
        """
        is_first = before is None or before.version is None
        is_large = is_worth_appending(batch.offsets)
        if is_first or attempt.has_appended or not is_large or not self._were_collapsed.get(plan.id):
            return None
        likely = self._changes.likely(batch, plan, before, attempt.wait_for_plan)
        if likely is None or not likely.key or likely.fills:
            return None
        events = without_messages(likely.events)
        rows = batch.keep_whole(collapse(events, likely.columns, (), of_key=(FIRST_OP, EVENTS, ODD)))
        strange = f"count_if({ODD} OR size({UNCHANGED}) > 0)"
        net, [count, odd] = parted_with(rows, likely.ordered, f"coalesce(sum({EVENTS}), 0)", strange)
        has_repeated = net.inserted_keys.rows + net.other_keys.rows < count
        self._were_collapsed[plan.id] = not odd and (has_repeated or not is_worth_appending(net.new))
        if odd or not count:
            return None
        keys = net.inserted_keys | net.other_keys
        source = _source(likely, plan, attempt, ())
        writer = self._writers.of(plan.target, likely.rules, likely.of_table)
        writer.expect(likely.key, keys)
        attempt.wait_for_plan()
        if not writer.append_and_merge(net, source, attempt):
            writer.merge(rows, replace(source, bounds=keys.bounds))
        return Written(**vars(likely), count=count)

    def merge(
        self,
        batch: Batch,
        made: Changes,
        plan: MirroredTable,
        before: MirroredTable | None,
        base: DataFrame | None,
        attempt: Attempt,
    ) -> None:
        """Merge the events. `base`: the published rows; None if there are none, or no event needs them."""
        stats, columns, key = made.stats, made.columns, made.key
        check_keyed(stats, plan.table, had_key=stats.has_keyed_rows or bool(before is not None and before.key))
        source = _source(made, plan, attempt, stats.unchanged)
        writer = self._writers.of(plan.target, made.rules, made.of_table)
        writer.expect(key, stats.keys)
        events = after_truncate(made.events, stats)
        repeated = repeated_keys(events, stats)
        self._were_collapsed[plan.id] = repeated.any
        if stats.has_incomplete_key_change:
            filled = None if base is None else with_columns(base, columns, made.missing)
            events = fill_key_changes(events, filled, columns, key)
        may_append = is_worth_appending(stats.inserted.rows)
        is_mixed = may_append and repeated.of_inserts

        def net(some: DataFrame, *, repeats: bool) -> DataFrame:
            if not repeats:
                return single_rows(some, columns)
            rows = collapse(some, columns, stats.unchanged, of_key=[FIRST_OP] if is_mixed else [])
            return batch.keep(rows) if is_mixed or batch.is_held else rows

        def parts() -> NetRows:
            if is_mixed:
                return parted(rows, made.ordered)
            inserts, rest = (events.where(f"{OP} {sign} 'c'") for sign in ("=", "<>"))
            inserted, others = net(inserts, repeats=False), net(rest, repeats=repeated.of_others)
            return NetRows(inserted, stats.inserted, stats.inserted.rows, others, stats.others)

        rows = net(events, repeats=repeated.any)
        truncates = stats.last_truncate is not None
        if not attempt.has_appended and (before is None or before.version is None):
            writer.append_existing(rows, source, attempt)
        elif attempt.has_appended or truncates or made.fills:
            writer.merge(rows, source, truncates=truncates, missing=made.fills)
        elif only_adds(stats) and not repeated.any and writer.lacks(rows, key, stats.keys):
            writer.append_existing(rows, source, attempt)
        elif not (may_append and writer.append_and_merge(parts(), source, attempt)):
            writer.merge(rows, replace(source, bounds=stats.keys.bounds))


def _source(made: Events, plan: MirroredTable, attempt: Attempt, unchanged: Sequence[str]) -> MergeSource:
    """The source of a MERGE of these events. `unchanged`: the columns that some row lacks."""
    names = [column["name"] for column in made.columns]
    fallible = fallible_names(made.key, made.columns)
    return MergeSource(source_view(plan, attempt), made.key, fallible, names, unchanged)
