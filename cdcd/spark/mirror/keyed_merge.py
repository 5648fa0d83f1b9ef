"""Merges one batch of a table with a key: appends inserts of new keys as they come, makes one row a key of the others.

Before: `batch_changes` has decoded the events. After: `table_write` appends and merges the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from cdcd.spark.mirror.batch_changes import Changes
from cdcd.spark.mirror.batches import Batch
from cdcd.spark.mirror.merge_sql import MergeSource
from cdcd.spark.mirror.new_rows import NetRows, is_worth_appending, only_adds, parted, repeated_keys
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.table_write import Attempt, TableWriter, source_view
from cdcd.spark.state.as_of import check_keyed, with_columns
from cdcd.spark.state.collapse import (
    OP,
    after_truncate,
    collapse,
    fallible_names,
    fill_key_changes,
    row_of_event,
    single_rows,
)


def inserts(events: DataFrame, columns: Sequence[dict[str, Any]]) -> DataFrame:
    """Flat events that insert rows of different keys, with all their columns, as the table's rows."""
    return events.selectExpr(*row_of_event(columns))


def merge_keyed(
    batch: Batch,
    made: Changes,
    plan: MirroredTable,
    before: MirroredTable | None,
    base: DataFrame | None,
    attempt: Attempt,
    writer: TableWriter,
) -> None:
    """Merge the events. `base`: the published rows; None if there are none, or no event needs them."""
    stats, columns, key = made.stats, made.columns, made.key
    check_keyed(stats, plan.table, had_key=stats.has_keyed_rows or bool(before is not None and before.key))
    writer.expect(key, stats.keys)
    events = after_truncate(made.events, stats)
    repeated = repeated_keys(events, stats)
    if stats.has_incomplete_key_change:
        filled = None if base is None else with_columns(base, columns, made.missing)
        events = fill_key_changes(events, filled, columns, key)
    may_append = is_worth_appending(stats.inserted.rows)
    is_mixed = may_append and repeated.of_inserts

    def net(some: DataFrame, *, repeats: bool) -> DataFrame:
        if not repeats:
            return single_rows(some, columns)
        rows = collapse(some, columns, stats.unchanged, with_first_op=is_mixed)
        return batch.keep(rows) if is_mixed or batch.is_held else rows

    def parts() -> NetRows:
        if is_mixed:
            return parted(rows, made.ordered)
        inserts, rest = (events.where(f"{OP} {sign} 'c'") for sign in ("=", "<>"))
        inserted, others = net(inserts, repeats=False), net(rest, repeats=repeated.of_others)
        return NetRows(inserted, stats.inserted, stats.inserted.rows, others, stats.others)

    rows = net(events, repeats=repeated.any)
    names = [column["name"] for column in columns]
    source = MergeSource(source_view(plan, attempt), key, fallible_names(key, columns), names, stats.unchanged)
    truncates = stats.last_truncate is not None
    if not attempt.has_appended and (before is None or before.version is None):
        writer.append_existing(rows, source, attempt)
    elif attempt.has_appended or truncates or made.fills:
        writer.merge(rows, source, truncates=truncates, missing=made.fills)
    elif only_adds(stats) and not repeated.any and writer.lacks(rows, key, stats.keys):
        writer.append_existing(rows, source, attempt)
    elif not (may_append and writer.append_and_merge(parts(), source, attempt)):
        writer.merge(rows, replace(source, bounds=stats.keys.bounds))
