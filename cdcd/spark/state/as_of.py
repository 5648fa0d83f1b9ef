"""A table's rows at one LSN, from its events.

Before: `collapse` gives the last state of each key, `keyless_rows` the counts of rows without one.
After: `Cdc.as_of` and `Cdc.verify`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cdcd.errors import GapError
from cdcd.spark.reading.decoding import WriterOrder
from cdcd.spark.reading.missing_values import MissingValue
from cdcd.spark.reading.types import ddl
from cdcd.spark.state import keyless_rows
from cdcd.spark.state.collapse import (
    COMMIT_LSN,
    COMMIT_TS,
    OP,
    SEQ,
    UNCHANGED,
    UNREPRESENTABLE,
    BatchStats,
    after_truncate,
    collapse,
    fallible_names,
    fill_key_changes,
    flatten,
    joined,
    stats_in_one_pass,
    with_unknown,
    without_lost_columns,
    without_messages,
)


def fold(
    events: DataFrame,
    columns: Sequence[dict[str, Any]],
    key: Sequence[str],
    table: str,
    order: WriterOrder,
) -> DataFrame:
    """The rows that all these events of a table leave: its columns and the META ones.

    `order`: the schemas of the events.

    Spark looks through the events now (twice, where there is no key), and again when the caller uses the rows.
    Raises GapError if the events do not go back to the table's beginning.
    """
    flat = without_messages(without_lost_columns(flatten(events, columns, key), columns, order))
    stats = stats_in_one_pass(flat)
    flat = after_truncate(flat, stats)
    names = [column["name"] for column in columns]
    if not (key and stats.has_keyed_rows):  # the table may get its key later
        return _fold_keyless(keyless_rows.with_columns_of(flat, order.names), names, table)
    check_keyed(stats, table, had_key=True)
    if stats.has_incomplete_key_change:
        flat = fill_key_changes(flat, None, columns, key)
    left = collapse(flat, columns, stats.unchanged).where(f.col(OP) != "d")
    shown = (f"`{name}`" for name in names)
    return left.selectExpr(*shown, COMMIT_LSN, SEQ, COMMIT_TS, f"{with_unknown()} AS {UNREPRESENTABLE}")


def _fold_keyless(flat: DataFrame, names: Sequence[str], table: str) -> DataFrame:
    net = keyless_rows.net_counts(flat)
    if missing := net.where("_net < 0").count():
        raise GapError(
            f"{table} has no key, and {missing} rows that were deleted never came as they were then",
            "Its topic does not go back to its beginning, or it lacked REPLICA IDENTITY FULL: load it into a mirror, "
            "with `cdcd spark snapshot`",
            code="mirror-load-again",
        )
    left = net.where("_net > 0").withColumn("_number", f.explode(f.sequence(f.lit(1), f.col("_net").cast("int"))))
    return left.select(
        *(f.col("_last._row").getField(name).alias(name) for name in names),
        f.col("_order.lsn").alias(COMMIT_LSN),
        f.col("_order.seq").alias(SEQ),
        f.col("_last._ts").alias(COMMIT_TS),
        f.col("_last._lost").alias(UNREPRESENTABLE),
    )


def apply_events(
    base: DataFrame,
    events: DataFrame,
    columns: Sequence[dict[str, Any]],
    key: Sequence[str],
    table: str,
    missing: Mapping[str, MissingValue],
    order: WriterOrder,
) -> DataFrame:
    """The rows of `base` after these later events: what a MERGE would make of them, without making it.

    `missing`: what the rows of the base hold in columns that it lacks; else they are null. `order`: as for `fold`.
    """
    flat = without_messages(without_lost_columns(flatten(events, columns, key), columns, order))
    stats = stats_in_one_pass(flat)
    if not stats.events:
        return base
    flat = after_truncate(flat, stats)
    if stats.last_truncate is not None:
        base = base.limit(0)
    base = with_columns(base, columns, missing)
    base = base.select(*(column["name"] for column in columns), COMMIT_LSN, SEQ, COMMIT_TS, UNREPRESENTABLE)
    if not key:
        return _apply_keyless(base, flat, order.names)
    check_keyed(stats, table, had_key=False)  # the base has the key, so no two of its rows share one
    if stats.has_incomplete_key_change:
        flat = fill_key_changes(flat, base, columns, key)
    return _apply_keyed(base, collapse(flat, columns, stats.unchanged), columns, key)


def with_columns(base: DataFrame, columns: Sequence[dict[str, Any]], missing: Mapping[str, MissingValue]) -> DataFrame:
    """The base with each column that it lacks: as its older rows have it, see `missing_values`; else null."""
    lost = f.col(UNREPRESENTABLE)
    for column in columns:
        name = column["name"]
        if name in base.columns:
            continue
        found = missing.get(name)
        value = f.lit(None).cast(ddl(column["type"])) if found is None else found.value(column["type"])
        base = base.withColumn(name, value)
        if found is not None and found.avro is None:
            lost = joined(lost, f.create_map(f.lit(name), f.lit(found.text)))
    return base.withColumn(UNREPRESENTABLE, lost)


def _apply_keyless(base: DataFrame, flat: DataFrame, last: Sequence[str]) -> DataFrame:
    both = flat.unionByName(keyless_rows.as_events(base, flat))
    left = keyless_rows.net_counts(keyless_rows.with_columns_of(both, last)).where("_net > 0")
    names = [field.name for field in flat.schema["_row"].dataType]
    numbered = left.withColumn("_number", f.explode(f.sequence(f.lit(1), f.col("_net").cast("int"))))
    return numbered.select(
        *(f.col("_last._row").getField(name).alias(name) for name in names), f.col("_last._lost").alias(UNREPRESENTABLE)
    )


def _apply_keyed(
    base: DataFrame, states: DataFrame, columns: Sequence[dict[str, Any]], key: Sequence[str]
) -> DataFrame:
    same_key = [f.col(f"t.{name}").eqNullSafe(f.col(f"s.{name}")) for name in key]
    same_key += [
        f.col(f"t.{UNREPRESENTABLE}").getItem(name).eqNullSafe(f.col(f"s.{UNREPRESENTABLE}").getItem(name))
        for name in fallible_names(key, columns)
    ]
    joined = base.alias("t").join(states.alias("s"), reduce(lambda one, other: one & other, same_key), "full")
    joined = joined.where(f"s.{OP} IS NULL OR s.{OP} <> 'd'")
    is_new = f.col(f"s.{OP}").isNotNull()

    def value_of(name: str, spark_type: str) -> Column:
        from_new = is_new & ~f.array_contains(f"s.{UNCHANGED}", name)
        return f.when(from_new, f.col(f"s.{name}")).otherwise(f.col(f"t.{name}").cast(spark_type)).alias(name)

    lost = f.when(is_new & (f.size(f"s.{UNCHANGED}") == 0), f.col(f"s.{UNREPRESENTABLE}")).when(
        is_new, f.coalesce(f"s.{UNREPRESENTABLE}", f"t.{UNREPRESENTABLE}")
    )
    return joined.select(
        *(value_of(column["name"], ddl(column["type"])) for column in columns),
        lost.otherwise(f.col(f"t.{UNREPRESENTABLE}")).alias(UNREPRESENTABLE),
    )


def check_keyed(stats: BatchStats, table: str, *, had_key: bool) -> None:
    """Raise GapError if a table with a key has changes from a time without it: the key does not tell their rows apart.

    `had_key`: the table had the key before the newest of the changes.
    """
    if stats.unkeyed:
        raise GapError(
            f"{table} has {stats.unkeyed} updates or deletes from before it got its key, which name no row by that key",
            "Load it into a mirror again, with `cdcd spark snapshot`: the topic alone cannot give its rows",
            code="mirror-load-again",
        )
    if had_key and stats.has_lost_key:
        raise GapError(
            f"{table} has lost its key: its newest rows came without one, and several may have the same old key",
            "Drop the mirror's table, and load it again with `cdcd spark snapshot`: the topic cannot give its rows",
            code="mirror-load-again",
        )
