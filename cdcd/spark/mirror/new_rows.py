"""Which rows of a batch the target lacks: these are appended, which takes a part of a MERGE's time.

Before: `collapse` has looked through the batch, or made one row a key of it.
After: `table_merge` appends these rows, and merges the others.

A key whose first event is an insert has no row in the target, because PostgreSQL's primary key says so. It is not taken
on trust: a key by `[[table]]` need not be unique, a slot that was lost may have hidden a delete, and people write into
the lake. So the keys are looked up. Where keys ascend, the statistics of the target's files answer that: no file is
read, because none has keys of the batch's range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cdcd.spark.state.collapse import FIRST_OP, OP, BatchStats
from cdcd.spark.state.key_bounds import PARTS, Bounds, bounds, least_and_most

APPENDED_ROWS_MIN: Final = 10_000
"""Fewer new rows are merged with the others: a commit of their own would take longer."""
IS_INSERTED: Final = f"{FIRST_OP} = 'c'"
"""Of a collapsed row: the batch inserts it, and perhaps deletes it again."""
IS_NEW: Final = f"{IS_INSERTED} AND {OP} <> 'd'"
"""It still exists."""
IS_OLD: Final = f"{FIRST_OP} <> 'c'"

_BROADCAST_ROWS_MAX: Final = 500_000
"""Keys that each executor can hold."""


@dataclass(frozen=True)
class Keys:
    """The keys of some rows."""

    rows: int
    bounds: Bounds


def only_adds(stats: BatchStats) -> bool:
    """Whether the events are inserts and rows of snapshots, with all their columns; perhaps after truncates."""
    added = sum(stats.ops.get(op, 0) for op in "cr")
    return added > 0 and added + stats.ops.get("t", 0) == stats.events and not stats.unchanged


def has_equal_keys(keys: DataFrame) -> bool:
    """Whether two of the keys may be equal. (Two that differ may have one hash: then this is wrong about them.)"""
    return _has_equal_hashes(keys, f.xxhash64(*keys.columns))


def has_repeated_keys(records: DataFrame) -> bool:
    """As `has_equal_keys`, of records by the bytes of their keys, which nothing has to decode; true if one has no key.

    It holds where the keys have one schema, and types whose equal values have equal bytes.
    """
    key = f.col("kafka.key")
    return _has_equal_hashes(records, f.when(key.isNotNull(), f.xxhash64(key)))


def _has_equal_hashes(rows: DataFrame, hashed: Column) -> bool:
    """Whether two rows have one hash, or some row has none."""
    counted = rows.groupBy(hashed.alias("hash")).agg(f.count("*").alias("rows"))
    return not counted.where("rows > 1 OR hash IS NULL").isEmpty()


def keys_where(rows: DataFrame, ordered: Sequence[str], *conditions: str) -> list[Keys]:
    """The keys of the rows that meet each condition. `ordered`: the columns to give the bounds of."""
    parts = []
    for condition in map(f.expr, conditions):
        values = [f.when(condition, f.col(name)) for name in ordered]
        parts += [f.count_if(condition), *least_and_most(values)]
    [row] = rows.agg(*(each.alias(str(index)) for index, each in enumerate(parts))).collect()
    width = 1 + PARTS * len(ordered)
    return [Keys(row[at], bounds(ordered, [row[at + 1 : at + width]], row[at])) for at in range(0, len(row), width)]


def keys_of(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """The keys of flat events, in the key's columns."""
    return events.select(*(f.col("_key").getField(name).alias(name) for name in key))


def has_keys_of(target: DataFrame, keys: DataFrame, key: Sequence[str], known: Keys) -> bool:
    """Whether the target has one of the `keys`. Keys that differ only in their texts count as equal, see `collapse`."""
    for name, (low, high) in known.bounds.items():
        target = target.where(f.col(name).between(f.lit(low), f.lit(high)))
    if target.isEmpty():
        return False
    keys = keys.select(*(f.col(name).alias(f"_new_{index}") for index, name in enumerate(key)))
    keys = keys.hint("broadcast" if known.rows <= _BROADCAST_ROWS_MAX else "shuffle_hash")
    same = [f.col(name).eqNullSafe(f.col(f"_new_{index}")) for index, name in enumerate(key)]
    return not target.select(*key).join(keys, reduce(Column.__and__, same), "left_semi").isEmpty()
