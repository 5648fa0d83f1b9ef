"""Writes one batch's rows into a table: appends those that it lacks, and merges the others.

Before: `table_merge` has made one row a key. After: the target's new version goes into the run's row.

Both in one run are two commits. If the process dies in between, the next one merges all rows: the MERGE gives those
that are there the values that they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.spark.mirror.merge_sql import DELETED, INSERTED, Deletes, MergeSource, merge
from cdcd.spark.mirror.new_rows import (
    APPENDED_ROWS_MIN,
    IS_INSERTED,
    IS_NEW,
    IS_OLD,
    Keys,
    has_keys_of,
    keys_of,
    keys_where,
)
from cdcd.spark.mirror.targets.target import Tag, Target
from cdcd.spark.reading.missing_values import MissingValue
from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, OP, SEQ, UNREPRESENTABLE, BatchStats


@dataclass(frozen=True)
class Attempt:
    """One attempt to carry out a plan for a table."""

    tag: Tag
    """What the attempt writes has it."""
    seen: int | None
    """The target's, from before the caller looked for tags."""
    has_appended: bool
    """An earlier attempt has appended rows, and has not merged the others."""


class TableWriter:
    """Writes into tables. Several threads may use it."""

    def __init__(self, target: Target, deletes: Deletes) -> None:
        self._target = target
        self._deletes: Deletes = deletes

    def completed(self, table: str, rows: DataFrame) -> DataFrame:
        """Rows that exist, with all columns of the table: those that they lack are null."""
        of_table = self._target.columns(table)
        has = {name.lower() for name in rows.columns}  # Spark takes names that differ in case alone for one
        lacking = {name: f.lit(None).cast(kind) for name, kind in of_table.items() if name.lower() not in has}
        return rows.withColumns(lacking | ({DELETED: f.lit(False)} if DELETED in of_table else {}))

    def lacks(self, events: DataFrame, stats: BatchStats, key: Sequence[str], table: str | None) -> bool:
        """Whether the table (None: it is empty) lacks the keys of these flat events."""
        known = Keys(stats.events, stats.bounds)
        return table is None or not has_keys_of(self._target.spark.table(table), keys_of(events, key), key, known)

    def append(self, table: str, rows: DataFrame, attempt: Attempt, *, merges_next: bool = False) -> None:
        """Add rows, which may lack columns of the table. `merges_next`: the attempt will also merge rows."""
        tag = attempt.tag if merges_next else None
        self._target.append(table, self.completed(table, rows), attempt.seen, tag)

    def append_existing(self, table: str, rows: DataFrame, columns: Sequence[str], attempt: Attempt) -> None:
        """Add those of the collapsed rows that exist to an empty table."""
        self.append(table, _inserted(rows.where(f"{OP} <> 'd'"), columns), attempt)

    def append_and_merge(
        self,
        rows: DataFrame,
        source: MergeSource,
        stats: BatchStats,
        ordered: Sequence[str],
        table: str,
        attempt: Attempt,
    ) -> None:
        """Append the collapsed rows that the table lacks, if they are many, and merge the others.

        `ordered`: the columns of the key that have bounds.
        """
        source = replace(source, bounds=stats.bounds)
        if stats.ops.get("c", 0) >= APPENDED_ROWS_MIN and not attempt.has_appended:
            inserted, new, old = keys_where(rows, ordered, IS_INSERTED, IS_NEW, IS_OLD)
            keys = rows.where(IS_INSERTED)
            is_worth_it = new.rows >= APPENDED_ROWS_MIN
            if is_worth_it and not has_keys_of(self._target.spark.table(table), keys, source.key, inserted):
                added = _inserted(rows.where(IS_NEW), source.columns)
                self.append(table, added, attempt, merges_next=bool(old.rows))
                if not old.rows:
                    return
                rows, source = rows.where(IS_OLD), replace(source, bounds=old.bounds)
        self.merge(rows, source, table)

    def merge(
        self,
        rows: DataFrame,
        source: MergeSource,
        table: str,
        *,
        truncates: bool = False,
        missing: Mapping[str, MissingValue | None] | None = None,
    ) -> None:
        """Merge collapsed rows; `truncates` and `missing` as for `merge_sql.merge`."""
        rows.createOrReplaceTempView(source.view)
        statement = merge(
            table, source, deletes=self._deletes, truncates=truncates,
            has_deleted_column=DELETED in self._target.columns(table), missing=missing,
        )  # fmt: skip
        try:
            self._target.commit(table, statement)
        finally:
            self._target.spark.catalog.dropTempView(source.view)


def _inserted(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Collapsed rows as a MERGE inserts them."""
    return rows.select(*columns, COMMIT_LSN, SEQ, COMMIT_TS, f.col(INSERTED).alias(UNREPRESENTABLE))
