"""Which rows of a batch the target lacks: these are appended, which takes a part of a MERGE's time.

Before: `collapse` has looked through the batch, or made one row a key of it.
After: `table_write` appends these rows, and merges the others.

A key whose first event is an insert has no row in the target, because PostgreSQL's primary key says so. It is not taken
on trust: a key by `[[table]]` need not be unique, a slot that was lost may have hidden a delete, and people write into
the lake. So the keys are looked up. Where keys ascend, the statistics of the target's files answer that: no file is
read, because none has keys of the batch's range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cdcd.spark.mirror.planned_once import planned_once
from cdcd.spark.state.collapse import FIRST_OP, OP, BatchStats
from cdcd.spark.state.key_bounds import PARTS, Keys, keys_of_groups, least_and_most

EXISTS: Final = f"{OP} <> 'd'"
"""A condition on collapsed rows: the row exists after the batch."""

_APPENDED_ROWS_MIN: Final = 10_000
"""Fewer new rows are merged with the others: a commit of their own would take longer."""
_IS_INSERTED: Final = f"{FIRST_OP} = 'c'"
"""Of a collapsed row: the batch inserts it, and perhaps deletes it again."""
_IS_OLD: Final = f"{FIRST_OP} <> 'c'"
_DENSE_MAX: Final = 16
"""Whole numbers from the lowest key to the highest, by row: up to so many, bits take less work than hashes."""
_BROADCAST_ROWS_MAX: Final = 500_000
"""Keys that each executor can hold."""


@dataclass(frozen=True)
class RepeatedKeys:
    """Whether events have the key of another event."""

    of_inserts: bool
    """Some insert has."""
    of_others: bool
    """Some events have that are no inserts. With `of_inserts`, it may be an insert whose key they have."""

    @property
    def any(self) -> bool:
        """Whether some event has."""
        return self.of_inserts or self.of_others


@dataclass(frozen=True)
class NetRows:
    """The rows of a batch, one a key: those of the inserted keys, and the others."""

    inserted: DataFrame
    """Also those that the batch deletes again."""
    inserted_keys: Keys
    new: int
    """How many of them the batch leaves."""
    others: DataFrame
    other_keys: Keys


def is_worth_appending(rows: int) -> bool:
    """Whether so many rows are worth a commit of their own."""
    return rows >= _APPENDED_ROWS_MIN


def only_adds(stats: BatchStats) -> bool:
    """Whether the events are inserts and rows of snapshots, with all their columns; perhaps after truncates."""
    added = sum(stats.ops.get(op, 0) for op in "cr")
    return added > 0 and added + stats.ops.get("t", 0) == stats.events and not stats.unchanged


def only_inserts(stats: BatchStats) -> bool:
    """Whether the events are inserts and rows of snapshots, with all their columns."""
    return only_adds(stats) and "t" not in stats.ops


def repeated_keys(events: DataFrame, stats: BatchStats) -> RepeatedKeys:
    """Which of these flat events have the key of another one. Two keys of one hash count as equal.

    Where no rows can be appended, all events count as such that have: to collapse them takes no longer.
    """
    if stats.events == 1:
        return RepeatedKeys(of_inserts=False, of_others=False)
    if not is_worth_appending(stats.inserted.rows) and not only_adds(stats):
        return RepeatedKeys(of_inserts=True, of_others=True)
    key = events.schema["_key"].dataType.fieldNames()
    if stats.last_truncate is None and _are_dense(key, stats.keys):
        number, kinds = f"_key.`{key[0]}`", (f"{OP} {sign} 'c'" for sign in ("=", "<>"))
        every, inserts, others = _distinct(planned_once(events), number, *kinds)
        is_in_both = inserts + others > every
        return RepeatedKeys(is_in_both or inserts < stats.inserted.rows, others < stats.others.rows)
    inserts = f.count_if(f.col(OP) == "c")
    hashes = events.groupBy(f.xxhash64("_key").alias("hash")).agg(
        f.count("*").alias("events"), inserts.alias("inserts")
    )
    repeated = hashes.where("events > 1").agg(f.max("inserts"), f.count_if(f.col("inserts") == 0)).first()
    return RepeatedKeys(bool(repeated[0]), bool(repeated[1]))


def has_repeated_keys(rows: DataFrame, key: Sequence[str], known: Keys) -> bool:
    """Whether two of these rows, which `known` bounds, have one key. Two keys of one hash may count as one."""
    if _are_dense(key, known):
        [keys] = _distinct(planned_once(rows), f"`{key[0]}`")
        return keys < known.rows
    hashes = rows.groupBy(f.xxhash64(*key).alias("hash")).agg(f.count("*").alias("rows"))
    return not hashes.where("rows > 1").isEmpty()


def _are_dense(key: Sequence[str], keys: Keys) -> bool:
    """Whether these keys are whole numbers that lie close together."""
    low, high = keys.of_one(key)
    return isinstance(low, int) and high - low < _DENSE_MAX * keys.rows


def _distinct(rows: DataFrame, number: str, *conditions: str) -> list[int]:
    """How many different whole numbers all rows have, and the rows that meet each condition. All are SQL."""
    # 64 numbers share a bigint, of which Spark keeps a table of hashes. For its own bitmaps it would sort the rows.
    bit = f"shiftleft(1L, int({number} & 63))"
    bits = [
        f"bit_or({each}) AS `{i}`" for i, each in enumerate([bit, *(f"if({each}, {bit}, 0L)" for each in conditions)])
    ]
    words = rows.groupBy(f.expr(f"shiftright({number}, 6)")).agg(*map(f.expr, bits))
    return list(words.selectExpr(*(f"coalesce(sum(bit_count(`{i}`)), 0)" for i in range(len(bits)))).collect()[0])


def parted(rows: DataFrame, ordered: Sequence[str]) -> NetRows:
    """Part collapsed rows by their first event. `ordered`: the columns of the key to give the bounds of."""
    return parted_with(rows, ordered)[0]


def parted_with(rows: DataFrame, ordered: Sequence[str], *more: str) -> tuple[NetRows, list[Any]]:
    """As `parted`; also `more` aggregates in SQL of all rows, from the same Spark job."""
    values, groups = list(more), (_IS_INSERTED, f"{_IS_INSERTED} AND {EXISTS}", _IS_OLD)
    for group in groups:
        values += [f"count_if({group})", *least_and_most([f"if({group}, `{name}`, NULL)" for name in ordered])]
    [found] = rows.selectExpr(*(f"{each} AS `{index}`" for index, each in enumerate(values))).collect()
    width, first = 1 + PARTS * len(ordered), len(more)
    of_inserted, of_new, of_others = (
        keys_of_groups(ordered, [(found[at], found[at + 1 : at + width])]) for at in range(first, len(found), width)
    )
    inserted, others = (rows.where(each) for each in (_IS_INSERTED, _IS_OLD))
    return NetRows(inserted, of_inserted, of_new.rows, others, of_others), list(found[:first])


def has_keys_of(target: DataFrame, rows: DataFrame, key: Sequence[str], known: Keys) -> bool:
    """Whether the target has one of the keys of these rows, which `known` bounds.

    Keys that differ only in their texts count as equal, see `collapse`.
    """
    for name, (low, high) in known.bounds.items():
        target = target.where(f.col(name).between(f.lit(low), f.lit(high)))
    if target.isEmpty():
        return False
    keys = rows.select(*(f.col(name).alias(f"_new_{index}") for index, name in enumerate(key)))
    keys = keys.hint("broadcast" if known.rows <= _BROADCAST_ROWS_MAX else "shuffle_hash")
    same = [f.col(name).eqNullSafe(f.col(f"_new_{index}")) for index, name in enumerate(key)]
    return not target.select(*key).join(keys, reduce(Column.__and__, same), "left_semi").isEmpty()
