"""A table's rows at a moment, folded from its events.

Before: `collapse` and `keyless_rows` say what events come to. After: `Cdc.as_of` and `verify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cdcd.errors import GapError
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
    facts,
    fill_moved,
    key_names,
    positioned,
)


def fold(events: DataFrame, columns: Sequence[dict[str, Any]], key: Sequence[str], table: str) -> DataFrame:
    """The rows that all these events of a table leave: its columns, and where each row came from.

    The events are looked through now (twice, where there is no key), and again when the rows are asked for.
    """
    placed = positioned(events, columns, key)
    found = facts(placed)
    placed = after_truncate(placed, found)
    names = [column["name"] for column in columns]
    meta = [COMMIT_LSN, SEQ, COMMIT_TS, UNREPRESENTABLE]
    if not (key and found.keyed):  # it may get its key later
        net = keyless_rows.net(placed)
        if missing := net.where("_net < 0").count():
            raise GapError(
                f"{table} has no key, and {missing} rows that were deleted never came as they were then",
                "Its topic does not go back to its beginning, or its columns were altered since, and its old rows with "
                "them: load it into a mirror, with `cdcd spark snapshot`",
            )
        copies = net.where("_net > 0")
        copies = copies.withColumn("_copies", f.explode(f.sequence(f.lit(1), f.col("_net").cast("int"))))
        return copies.select(
            *(f.col("_last._row").getField(name).alias(name) for name in names),
            f.col("_pos.lsn").alias(COMMIT_LSN),
            f.col("_pos.seq").alias(SEQ),
            f.col("_last._ts").alias(COMMIT_TS),
            f.col("_last._lost").alias(UNREPRESENTABLE),
        )
    check_keyed(found, table, had_key=True)
    if found.moved:
        placed = fill_moved(placed, None, columns, key)
    left = collapse(placed, columns, found.unchanged).where(f.col(OP) != "d")
    return left.withColumn(UNREPRESENTABLE, with_unknown()).select(*names, *meta)


def rolled(
    base: DataFrame, events: DataFrame, columns: Sequence[dict[str, Any]], key: Sequence[str], table: str
) -> DataFrame:
    """The rows of `base` after these later events: what a MERGE would make of them, without making it."""
    placed = positioned(events, columns, key)
    found = facts(placed)
    if not found.events:
        return base
    placed = after_truncate(placed, found)
    if found.truncated is not None:
        base = base.limit(0)
    names = [column["name"] for column in columns]
    for column in columns:
        if column["name"] not in base.columns:
            base = base.withColumn(column["name"], f.lit(None).cast(ddl(column["type"])))
    kept = base.select(*names, COMMIT_LSN, SEQ, COMMIT_TS, UNREPRESENTABLE)
    if not key:
        # Each row of the base came once; then it is a bag of events like any other.
        row = f.struct(*(f.col(name).cast(ddl(c["type"])).alias(name) for name, c in zip(names, columns, strict=True)))
        come = kept.select(row.alias("_row"), f.col(UNREPRESENTABLE).alias("_lost")).withColumn(
            keyless_rows.HASH, keyless_rows.row_hash()
        )
        have = come.groupBy(keyless_rows.HASH).agg(
            f.count("*").alias("_have"), f.first("_row").alias("_row"), f.first("_lost").alias("_lost")
        )
        met = have.join(
            keyless_rows.net(placed).select(keyless_rows.HASH, "_net", "_last"), keyless_rows.HASH, "full"
        ).fillna(0, ["_have", "_net"])
        left = met.where("_have + _net > 0").withColumn(
            "_copies", f.explode(f.sequence(f.lit(1), (f.col("_have") + f.col("_net")).cast("int")))
        )
        value = f.coalesce("_row", "_last._row")
        return left.select(
            *(value.getField(name).alias(name) for name in names),
            f.coalesce("_lost", "_last._lost").alias(UNREPRESENTABLE),
        )
    check_keyed(found, table, had_key=False)  # it has it at the end, so that no two rows share one
    if found.moved:
        placed = fill_moved(placed, kept, columns, key)
    newer = collapse(placed, columns, found.unchanged).alias("s")
    old = kept.alias("t")
    types = {column["name"]: ddl(column["type"]) for column in columns}
    met_by = [f.col(f"t.{name}").eqNullSafe(f.col(f"s.{name}")) for name in key]
    met_by += [
        f.col(f"t.{UNREPRESENTABLE}").getItem(name).eqNullSafe(f.col(f"s.{UNREPRESENTABLE}").getItem(name))
        for name in key_names(key, columns)
    ]
    joined = old.join(newer, reduce(lambda one, other: one & other, met_by), "full").where(
        "s._op IS NULL OR s._op <> 'd'"
    )
    is_new = f.col("s._op").isNotNull()

    def value_of(name: str) -> Column:
        from_new = is_new & ~f.array_contains(f"s.{UNCHANGED}", name)
        return f.when(from_new, f.col(f"s.{name}")).otherwise(f.col(f"t.{name}").cast(types[name])).alias(name)

    lost = f.when(is_new & (f.size(f"s.{UNCHANGED}") == 0), f.col(f"s.{UNREPRESENTABLE}")).when(
        is_new, f.coalesce(f"s.{UNREPRESENTABLE}", f"t.{UNREPRESENTABLE}")
    )
    return joined.select(
        *(value_of(name) for name in names), lost.otherwise(f.col(f"t.{UNREPRESENTABLE}")).alias(UNREPRESENTABLE)
    )


def with_unknown() -> Column:
    """UNREPRESENTABLE, and with a null text each column that no event ever had: its row is older than the topic."""
    unknown = f.map_from_entries(f.transform(UNCHANGED, lambda name: f.struct(name, f.lit(None).cast("string"))))
    lost = f.col(UNREPRESENTABLE)
    return f.when(f.size(UNCHANGED) == 0, lost).when(lost.isNull(), unknown).otherwise(f.map_concat(lost, unknown))


def check_keyed(found: BatchStats, table: str, *, had_key: bool) -> None:
    """Raises GapError if a keyed table has changes of a time without its key: they cannot be told apart by it.

    `had_key`: it had the key before the newest of them.
    """
    if found.unkeyed:
        raise GapError(
            f"{table} has {found.unkeyed} updates or deletes from before it got its key, which name no row by that key",
            "Load it into a mirror anew, with `cdcd spark snapshot`: the topic alone cannot give its rows",
        )
    if had_key and found.key_lost:
        raise GapError(
            f"{table} has lost its key: rows came without one, and several may have what was the key of one",
            "Drop the mirror's table, and load it anew with `cdcd spark snapshot`: the topic alone does not do",
        )
