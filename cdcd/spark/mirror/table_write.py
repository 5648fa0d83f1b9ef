"""Writes one batch's rows into a table: appends those that it lacks, and merges the others.

Before: `table_merge` has made one row a key. After: the target's new version goes into the run's row.

Both in one run are two commits. If the process dies in between, the next one merges all rows: the MERGE gives those
that are there the values that they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.spark.mirror.highest_keys import HighestKeys
from cdcd.spark.mirror.merge_sql import DELETED, Deletes, MergeSource, merge, unrepresentable_if_new
from cdcd.spark.mirror.new_rows import EXISTS, NetRows, has_keys_of, is_worth_appending
from cdcd.spark.mirror.per_table import TableRules
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.targets.target import Staged, Tag, Target
from cdcd.spark.reading.missing_values import MissingValue
from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, SEQ, UNREPRESENTABLE
from cdcd.spark.state.key_bounds import Keys


@dataclass(frozen=True)
class Attempt:
    """One attempt to carry out a plan for a table."""

    tag: Tag
    """What the attempt writes has it."""
    seen: int | None
    """What `Target.seen` has said before the caller looked for tags; None, too, if the table was not there."""
    has_appended: bool
    """An earlier attempt has appended rows, and has not merged the others."""
    wait_for_plan: Callable[[], object]
    """Returns once the plan is written, or raises why it is not. To be called before any change that others see."""


class TableWriters:
    """Makes writers. Several threads may use it, one for each table."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._highest = HighestKeys(target)

    def of(self, table: str, rules: TableRules, columns: Mapping[str, str]) -> TableWriter:
        """A writer of a batch of this table. `columns`: all of its columns, and their types."""
        return TableWriter(self._target, table, rules.deletes, columns, self._highest)


class TableWriter:
    """Writes one batch into one table."""

    def __init__(
        self, target: Target, table: str, deletes: Deletes, columns: Mapping[str, str], highest: HighestKeys
    ) -> None:
        """`TableWriters.of` makes it. `highest`: that of all writers."""
        self._target = target
        self._highest = highest
        self._written: tuple[Sequence[str], Keys] = (), Keys(0, {})
        """The columns of the key, and the keys of all rows that are written."""
        self._table = table
        self._deletes: Deletes = deletes
        self._columns = columns

    def lacks(self, rows: DataFrame, key: Sequence[str], known: Keys) -> bool:
        """Whether the table lacks the keys of these rows, which `known` bounds."""
        if self._highest.are_below(self._table, key, known):
            return True
        if has_keys_of(rows.sparkSession.table(self._table), rows, key, known):
            return False
        self._highest.learn(self._table, key, known, rows.sparkSession)
        return True

    def expect(self, key: Sequence[str], keys: Keys) -> None:
        """All rows that are written have some of these keys. Say so before the first commit."""
        self._written = key, keys

    def _note_commit(self) -> None:
        self._highest.note_commit(self._table, *self._written)

    def overwrite(self, rows: DataFrame) -> None:
        """Replace all rows by these, which may lack columns of the table."""
        self._completed(rows).writeTo(self._table).overwrite(f.lit(True))

    def append(self, rows: DataFrame, attempt: Attempt, *, merges_next: bool = False) -> None:
        """Add rows, which may lack columns of the table. `merges_next`: the attempt will also merge rows."""
        self._target.append(self._table, self._to_append(rows), attempt.tag, attempt.seen, merges_next=merges_next)
        self._note_commit()

    def _to_append(self, rows: DataFrame) -> DataFrame:
        rows = rows.coalesce(int(self._target.spark.sparkContext.defaultParallelism))  # each task writes a file
        return self._completed(rows)

    def _completed(self, rows: DataFrame) -> DataFrame:
        """Rows that exist, with all columns of the table: those that they lack are null."""
        has = {name.lower() for name in rows.columns}  # Spark takes names that differ in case alone for one
        lacking = {name: f.lit(None).cast(kind) for name, kind in self._columns.items() if name.lower() not in has}
        return rows.withColumns(lacking | ({DELETED: f.lit(False)} if DELETED in self._columns else {}))

    @contextmanager
    def staged(self, rows: DataFrame, attempt: Attempt) -> Iterator[Staged]:
        """Write rows into files that are no files of the table unless the `with` block calls `publish`."""
        staged = self._target.stage(self._table, self._to_append(rows), attempt.tag, attempt.seen)
        try:
            yield staged
        finally:
            staged.end()

    def publish(self, staged: Staged) -> bool:
        """Make the staged files files of the table; False: as for `Staged.publish`."""
        if not staged.publish():
            return False
        self._note_commit()
        return True

    def append_existing(self, rows: DataFrame, source: MergeSource, attempt: Attempt) -> None:
        """Add those of the collapsed rows that exist to a table without their keys. `source`: as for `merge`."""
        self.append(_inserted(rows, source), attempt)

    def append_and_merge(self, rows: NetRows, source: MergeSource, attempt: Attempt) -> bool:
        """Append the inserted rows, and merge the others; does nothing, and returns False, unless the table lacks them.

        Nor if they are too few to be worth it.
        """
        if not is_worth_appending(rows.new) or not self.lacks(rows.inserted, source.key, rows.inserted_keys):
            return False
        self.append(_inserted(rows.inserted, source), attempt, merges_next=bool(rows.other_keys.rows))
        if rows.other_keys.rows:
            self.merge(rows.others, replace(source, bounds=rows.other_keys.bounds))
        return True

    def merge(
        self,
        rows: DataFrame,
        source: MergeSource,
        *,
        truncates: bool = False,
        missing: Mapping[str, MissingValue | None] | None = None,
    ) -> None:
        """Merge collapsed rows; `truncates` and `missing` as for `merge_sql.merge`."""
        rows.createOrReplaceTempView(source.view)
        statement = merge(
            self._table, source, deletes=self._deletes, truncates=truncates,
            has_deleted_column=DELETED in self._columns, missing=missing,
        )  # fmt: skip
        try:
            self._target.merge(self._table, statement, rows.sparkSession)
        finally:
            rows.sparkSession.catalog.dropTempView(source.view)
        self._note_commit()


def source_view(plan: MirroredTable, attempt: Attempt) -> str:
    """The name of the temporary view that has a table's rows to merge."""
    return f"cdcd_source_{attempt.tag.token}_{abs(hash(plan.id))}"


def _inserted(rows: DataFrame, source: MergeSource) -> DataFrame:
    """The collapsed rows that exist after the batch, as a MERGE inserts them."""
    columns = (f"`{name}`" for name in source.columns)
    lost = f"{unrepresentable_if_new(source)} AS {UNREPRESENTABLE}"
    return rows.where(EXISTS).selectExpr(*columns, COMMIT_LSN, SEQ, COMMIT_TS, lost)
