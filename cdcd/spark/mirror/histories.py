"""Tables that keep what was: every event of a table ("changelog"), or every version of each row ("scd2").

Before: `mirror` carries out a plan. After: the target's new version goes into the run's row, as for a mirrored table.

A changelog has one row an event, in the form of the row: the new row, of a delete the old one, of a truncate nulls.
Such a batch is one append.

A table of versions has one row for each state of a key that a commit has left. It is valid from its commit
(_commit_lsn, _commit_ts) until the commit that changed or deleted it (_valid_to_lsn, _valid_to); null: it is valid
still. A state that its own transaction has replaced never was one. A batch is one MERGE: the source has a row for each
key, which ends the version that is valid, and a row for each new version, which matches none. What it needs of the
table, it reads from the version that the last run published. So a second attempt gives the same rows as the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from cdcd.errors import RequestRejected
from cdcd.spark.mirror.batch_changes import Changes, NoChanges
from cdcd.spark.mirror.batches import Batch
from cdcd.spark.mirror.merge_sql import MergeSource, condition, filled
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.schema_evolution import CHANGE_OP, CHANGE_UNCHANGED, VALID_TO, VALID_TO_LSN, TargetSchema
from cdcd.spark.mirror.table_merge import TableMerger, without_events
from cdcd.spark.mirror.table_write import Attempt, source_view
from cdcd.spark.reading.writer_schemas import Writer
from cdcd.spark.state.as_of import check_keyed, with_columns
from cdcd.spark.state.collapse import (
    META_NAMES,
    OP,
    UNCHANGED,
    UNREPRESENTABLE,
    fallible_names,
    fill_key_changes,
    keyed_rows,
    row_of_event,
)

_ENDS: Final = "_x0_ends"
"""Whether a row of the source ends the version of its key that is valid. Else it is a new version."""


class HistoryMerger(TableMerger):
    """Merges tables of all kinds."""

    def _merge(
        self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt
    ) -> MirroredTable:
        kind = self._per_table.rules(plan.schema, plan.name, plan.kind).kind
        if kind == "changelog":
            return self._append_events(batch, plan, before, attempt)
        if kind == "scd2":
            return self._add_versions(batch, plan, before, attempt)
        return super()._merge(batch, plan, before, attempt)

    def check_load(self, plan: MirroredTable, key: Sequence[str]) -> None:
        """Raise RequestRejected if the table has a history, or cannot have one without a key."""
        kind = self._kind(plan)
        if kind == "scd2":
            _check_key(plan, key)
        if kind != "mirror" and self._target.exists(plan.target) and not self._target.empty(plan.target):
            raise RequestRejected(
                f"{plan.target} has a history, which a load of {plan.table} would overwrite",
                "Let the daemon copy the table, which adds to the history: cdcd snapshot. Or drop the table first",
                code="mirror-load-again",
            )

    def load(self, plan: MirroredTable, rows: DataFrame, writer: Writer, key: Sequence[str]) -> int | None:
        """Begin the table with these rows. Raises what `check_load` raises."""
        self.check_load(plan, key)
        rules = self._per_table.rules(plan.schema, plan.name, plan.kind)
        if rules.kind == "mirror":
            return super().load(plan, rows, writer, key)
        of_table = TargetSchema(self._target, rules).fit(plan.target, [writer], key, overwrites=True).of_table
        if rules.kind == "changelog":
            rows = rows.withColumn(CHANGE_OP, f.lit("r")).withColumn(CHANGE_UNCHANGED, _none())
        self._table_writers.of(plan.target, rules, of_table).overwrite(rows)
        return self._target.version(plan.target)

    def live(self, plan: MirroredTable, rows: DataFrame) -> DataFrame | None:
        """Those of the table's rows that PostgreSQL has, too; None for a changelog."""
        kind = self._kind(plan)
        if kind == "changelog":
            return None
        return rows.where(f"{VALID_TO_LSN} IS NULL") if kind == "scd2" else super().live(plan, rows)

    def _kind(self, plan: MirroredTable) -> str:
        """The kind of a table. Raises RequestRejected if its target is of another kind."""
        rules = self._per_table.rules(plan.schema, plan.name, plan.kind)
        if self._target.exists(plan.target):
            TargetSchema(self._target, rules).check_kind(plan.target, self._target.columns(plan.target))
        return str(rules.kind)

    def _append_events(
        self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt
    ) -> MirroredTable:
        made = self._staged.append_events(batch, plan, before, attempt, _changelog) or self._changes.read(
            batch, plan, before, attempt.wait_for_plan, by_key=False
        )
        attempt.wait_for_plan()
        if isinstance(made, NoChanges):
            return without_events(plan, before, plan.key)
        if isinstance(made, Changes) and made.count:
            rows = _changelog(made.events, made.columns)
            self._table_writers.of(plan.target, made.rules, made.of_table).append(rows, attempt)
        keys = self._writers.of(plan.schema, plan.name, plan.topic, "key")
        key = list(keys[-1].key) if keys else []
        version, last = self._target.version(plan.target), made.succession.last
        return replace(plan, key=key, version=version, columns=last, events=made.count)

    def _add_versions(
        self, batch: Batch, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt
    ) -> MirroredTable:
        made = self._changes.read(batch, plan, before, attempt.wait_for_plan)
        attempt.wait_for_plan()
        if isinstance(made, NoChanges):
            return without_events(plan, before, made.key)
        columns, stats, key = made.columns, made.stats, made.key
        _check_key(plan, key)
        check_keyed(stats, plan.table, had_key=stats.has_keyed_rows or bool(before is not None and before.key))
        base = None
        if before is not None and before.version is not None:
            base = with_columns(
                self._changes.base(plan, before).where(f"{VALID_TO_LSN} IS NULL"), columns, made.missing
            )
        truncates = _truncates(made.events)
        events = made.events.where(f"{OP} <> 't'")
        if stats.has_incomplete_key_change:
            events = fill_key_changes(events, base, columns, key)
        if stats.unchanged:
            events = _completed(
                events, None if base is None else keyed_rows(base, columns, key), columns, stats.unchanged
            )
        states = _last_of_commits(events).persist()
        writer = self._table_writers.of(plan.target, made.rules, made.of_table)
        try:
            versions = _versions(states, columns, truncates)
            if base is None and not attempt.has_appended:
                writer.append(versions, attempt)
            else:
                fills = made.fills if not truncates else {}
                bounds = {} if truncates or fills else stats.keys.bounds
                view = source_view(plan, attempt)
                names = [column["name"] for column in columns]
                source = MergeSource(view, key, fallible_names(key, columns), names, bounds=bounds)
                both = _ends(states, columns, truncates).unionByName(
                    versions.withColumn(_ENDS, f.lit(False)), allowMissingColumns=True
                )
                both.createOrReplaceTempView(view)
                try:
                    statement = _statement(plan.target, source, truncates, filled(fills))
                    self._target.merge(plan.target, statement, both.sparkSession)
                finally:
                    both.sparkSession.catalog.dropTempView(view)
        finally:
            states.unpersist()
        version, last = self._target.version(plan.target), made.succession.last
        return replace(plan, key=list(key), version=version, columns=last, events=stats.events)


def _check_key(plan: MirroredTable, key: Sequence[str]) -> None:
    if not key:
        raise RequestRejected(
            f"{plan.table} has no key, which tells the versions of one row from those of another",
            'Give it a key, or set kind = "changelog" in [[tables]]',
            code="mirror-schema-changed",
        )


def _changelog(events: DataFrame, columns: Sequence[dict[str, Any]]) -> DataFrame:
    """Flat events as rows of a changelog."""
    return events.selectExpr(*row_of_event(columns), f"{OP} AS {CHANGE_OP}", f"{UNCHANGED} AS {CHANGE_UNCHANGED}")


def _none() -> Column:
    return f.expr("cast(array() as array<string>)")


_Truncate = tuple[int, int, int | None]
"""Commit LSN, seq, and the commit's time in microseconds."""


def _truncates(events: DataFrame) -> list[_Truncate]:
    """The truncates, in their order."""
    found = events.where(f"{OP} = 't'").select("_order", f.expr("unix_micros(_ts)").alias("ts")).distinct().collect()
    return sorted(((row["_order"]["lsn"], row["_order"]["seq"], row["ts"]) for row in found), key=lambda each: each[:2])


def _completed(
    events: DataFrame, base: DataFrame | None, columns: Sequence[dict[str, Any]], unchanged: Sequence[str]
) -> DataFrame:
    """The events with the values that they lack: of an earlier event of the key, or of its row before these events."""
    earlier = Window.partitionBy("_key").orderBy("_order").rowsBetween(Window.unboundedPreceding, 0)
    if base is not None:
        events = events.join(base.select(f.col("_key").alias("_k"), f.struct("_row", "_lost").alias("_base")),
                             f.col("_key").eqNullSafe(f.col("_k")), "left").drop("_k")  # fmt: skip
    values = {column["name"]: f.col("_row").getField(column["name"]) for column in columns}
    lost, still = f.col("_lost"), f.col(UNCHANGED)
    for name in unchanged:
        lacks = f.array_contains(UNCHANGED, name) & (f.col(OP) != "d")
        text = f.col("_lost").getItem(name)
        is_lost = f.coalesce(f.map_contains_key("_lost", f.lit(name)), f.lit(False))
        known = f.struct(values[name].alias("value"), text.alias("text"), is_lost.alias("is_lost"))
        found = f.last(f.when((f.col(OP) != "d") & ~f.array_contains(UNCHANGED, name), known), True).over(earlier)
        if base is not None:
            of_base = f.struct(
                f.col("_base._row").getField(name).alias("value"),
                f.col("_base._lost").getItem(name).alias("text"),
                f.coalesce(f.map_contains_key("_base._lost", f.lit(name)), f.lit(False)).alias("is_lost"),
            )
            found = f.coalesce(found, f.when(f.col("_base").isNotNull(), of_base))
        events = events.withColumn(f"_found_{name}", found)
        found = f.col(f"`_found_{name}`")
        values[name] = f.when(lacks, found.getField("value")).otherwise(values[name])
        unknown = found.isNull() | found.getField("is_lost")
        added = f.create_map(f.lit(name), found.getField("text"))
        empty = f.expr("cast(map() as map<string,string>)")
        lost = f.when(lacks & unknown, f.map_concat(f.coalesce(lost, empty), added)).otherwise(lost)
        still = f.when(lacks, f.array_remove(still, name)).otherwise(still)
    row = f.when(f.col("_row").isNotNull(), f.struct(*(value.alias(name) for name, value in values.items())))
    kept = [name for name in events.columns if name not in ("_row", "_lost", UNCHANGED)]
    return events.select(*kept, row.alias("_row"), lost.alias("_lost"), still.alias(UNCHANGED))


def _last_of_commits(events: DataFrame) -> DataFrame:
    """The last event of each key in each commit, with the next one's commit, and whether it is the key's first."""
    of_commit = Window.partitionBy("_key", "_order.lsn").orderBy(f.col("_order.seq").desc())
    kept = events.where("_key IS NOT NULL").withColumn("_place", f.row_number().over(of_commit)).where("_place = 1")
    of_key = Window.partitionBy("_key").orderBy("_order")
    return kept.withColumn("_next", f.lead(_end()).over(of_key)).withColumn("_number", f.row_number().over(of_key))


def _end() -> Column:
    """The place and the time of an event, which may end a version."""
    lsn, seq = (f.col(f"_order.{name}").cast("bigint").alias(name) for name in ("lsn", "seq"))
    return f.struct(lsn, seq, f.col("_ts").cast("timestamp_ltz").alias("ts"))


def _later_truncate(truncates: Sequence[_Truncate], order: tuple[Column, Column] | None) -> Column:
    """The first truncate after a commit LSN and seq (None: the first one); null if there is none."""
    made = [
        f.struct(
            f.lit(lsn).cast("bigint").alias("lsn"),
            f.lit(seq).cast("bigint").alias("seq"),
            f.timestamp_micros(f.lit(ts).cast("bigint")).alias("ts"),
        )
        for lsn, seq, ts in truncates
    ]
    if not made:
        return f.lit(None).cast("struct<lsn:bigint,seq:bigint,ts:timestamp_ltz>")
    if order is None:
        return made[0]
    lsn, seq = order

    def is_later(each: Column) -> Column:
        return (each["lsn"] > lsn) | ((each["lsn"] == lsn) & (each["seq"] > seq))

    return f.get(f.filter(f.array(*made), is_later), f.lit(0))


def _versions(states: DataFrame, columns: Sequence[dict[str, Any]], truncates: Sequence[_Truncate]) -> DataFrame:
    """The new versions: columns, META, and until when each is valid."""
    order = f.col("_order.lsn"), f.col("_order.seq")
    end = f.least("_next", _later_truncate(truncates, order))  # passes over nulls
    rows = states.where(f"{OP} <> 'd'").withColumn("_end", end)
    rows = rows.where("_end IS NULL OR _end.lsn > _order.lsn")
    return rows.selectExpr(*row_of_event(columns), f"_end.lsn AS {VALID_TO_LSN}", f"_end.ts AS {VALID_TO}")


def _ends(states: DataFrame, columns: Sequence[dict[str, Any]], truncates: Sequence[_Truncate]) -> DataFrame:
    """By key: when the version that the table has as the valid one ends."""
    rows = states.where("_number = 1").withColumn("_end", f.least(_end(), _later_truncate(truncates, None)))
    return rows.select(
        *(f.col("_row").getField(column["name"]).alias(column["name"]) for column in columns),
        f.col("_lost").alias(UNREPRESENTABLE),
        f.col("_end.lsn").alias(VALID_TO_LSN),
        f.col("_end.ts").alias(VALID_TO),
        f.lit(True).alias(_ENDS),
    )


def _statement(target: str, source: MergeSource, truncates: Sequence[_Truncate], fills: Mapping[str, str]) -> str:
    """The MERGE. `fills`: new columns of rows that are valid, and have no event, each with SQL."""
    names = [*source.columns, *META_NAMES, VALID_TO_LSN, VALID_TO]
    shown, values = ", ".join(f"`{name}`" for name in names), ", ".join(f"s.`{name}`" for name in names)
    ends = f"s.{_ENDS} AND t.{VALID_TO_LSN} IS NULL AND {condition(source)}"
    clauses = [
        f"MERGE INTO {target} t USING {source.view} s ON {ends}",
        f"WHEN MATCHED THEN UPDATE SET t.{VALID_TO_LSN} = s.{VALID_TO_LSN}, t.{VALID_TO} = s.{VALID_TO}",
        f"WHEN NOT MATCHED AND NOT s.{_ENDS} THEN INSERT ({shown}) VALUES ({values})",
    ]
    rest = f"WHEN NOT MATCHED BY SOURCE AND t.{VALID_TO_LSN} IS NULL THEN UPDATE SET"
    if truncates:
        lsn, _, ts = truncates[0]
        at = "NULL" if ts is None else f"timestamp_micros({ts})"
        clauses.append(f"{rest} t.{VALID_TO_LSN} = {lsn}, t.{VALID_TO} = {at}")
    elif fills:
        clauses.append(f"{rest} {', '.join(f't.`{name}` = {value}' for name, value in fills.items())}")
    return "\n".join(clauses)
