"""Many events to the last state of each key: what a MERGE, or a reader of rows, needs.

Before: `decoding` gives typed events.
After: `copy_format` takes them as a table's content, `mirror` merges them into one.

The rules, in an order that is the WAL's, (commit_lsn, seq); a row of a copy (`r`) is an upsert like any other, and
stands just before the changes that its snapshot does not show:

1. A truncate voids everything before it.
2. A key's state is its last event. A column that this event does not have (`unchanged`: TOAST that PostgreSQL did not
   send) has the value of the last event of the key that has it, else the one of the row before these events.
3. An update of the key is a delete and an insert, one seq after the other and of one LSN: two changes have two. What
   the insert does not have is in the row that was just deleted, under the old key, perhaps after several moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cdcd.avro.type_forms import FALLIBLE_KINDS
from cdcd.spark.reading.types import ddl, logical

COMMIT_LSN: Final = "_commit_lsn"
SEQ: Final = "_seq"
COMMIT_TS: Final = "_commit_ts"
UNREPRESENTABLE: Final = "_unrepresentable"
"""Column -> PostgreSQL's text, of values that are null here and not in PostgreSQL; the text is null if not known."""

OP: Final = "_op"
UNCHANGED: Final = "_unchanged"
META: Final = f"{COMMIT_LSN} bigint, {SEQ} bigint, {COMMIT_TS} timestamp, {UNREPRESENTABLE} map<string,string>"


@dataclass(frozen=True)
class BatchStats:
    """What a batch of events holds, so that only what must be done is done."""

    events: int
    ops: dict[str, int]
    truncated: tuple[int, int] | None
    """The position of the last truncate."""
    unchanged: tuple[str, ...]
    """Columns that some event does not have."""
    moved: bool
    """Some row changed its key and lacks a column."""
    unkeyed: int
    """Updates and deletes that came without a key; 0 if a truncate voids them all."""
    keyed: bool
    """Some row came with a key."""
    key_lost: bool
    """The newest rows came without a key."""


def key_names(key: Sequence[str], columns: Sequence[dict[str, Any]]) -> list[str]:
    """The columns of the key whose values Avro cannot always hold: two such keys differ in their text alone."""
    types = {column["name"]: column["type"] for column in columns}
    return [name for name in key if logical(types[name]) in FALLIBLE_KINDS]


def positioned(events: DataFrame, columns: Sequence[dict[str, Any]], key: Sequence[str]) -> DataFrame:
    """Events as: _pos, _lsn, _op, _ts, _row (the new one, or the deleted one), _unchanged, _lost (by column), _key."""
    image = f.when(f.col("op") == "d", f.lit("before")).otherwise(f.lit("after"))
    flat = events.select(
        f.struct(f.col("source.commit_lsn").alias("lsn"), f.col("source.seq").alias("seq")).alias("_pos"),
        f.col("source.lsn").alias("_lsn"),
        f.col("op").alias(OP),
        f.col("source.commit_ts").alias("_ts"),
        f.when(f.col("op") == "d", f.col("before")).otherwise(f.col("after")).alias("_row"),
        f.col("unchanged").alias(UNCHANGED),
        _texts(image).alias("_lost"),
        f.when(f.col("identity") == "full", f.col("before")).alias("_before"),
        _texts(f.lit("before")).alias("_lost_before"),
        f.col("kafka.key").isNull().alias("_unkeyed"),
    )
    return flat.withColumn("_key", _key(key, columns)).where("_op <> 'm'")


def facts(events: DataFrame) -> BatchStats:
    """Looks through positioned events once."""
    row = (
        events.groupBy(OP)
        .agg(
            f.count("*").alias("events"),
            f.max("_pos").alias("last"),
            f.array_distinct(f.flatten(f.collect_set(UNCHANGED))).alias("unchanged"),
            f.count_if("_unkeyed").alias("unkeyed"),
            f.max(f.when(f.col("_unkeyed"), f.col("_pos"))).alias("last_unkeyed"),
            f.max(f.when(~f.col("_unkeyed"), f.col("_pos"))).alias("last_keyed"),
        )
        .collect()
    )
    by_op = {each[OP]: each for each in row}
    truncate = by_op.get("t")
    voided = () if truncate is None else tuple(truncate["last"])

    def last(ops: str, which: str) -> tuple[int, ...]:
        return max((tuple(by_op[op][which]) for op in ops if op in by_op and by_op[op][which] is not None), default=())

    last_keyed = last("crud", "last_keyed")
    return BatchStats(
        events=sum(each["events"] for each in row),
        ops={op: each["events"] for op, each in by_op.items()},
        truncated=None if truncate is None else (truncate["last"]["lsn"], truncate["last"]["seq"]),
        unchanged=tuple(sorted({name for each in row for name in each["unchanged"]})),
        moved="c" in by_op and bool(by_op["c"]["unchanged"]),
        unkeyed=sum(by_op[op]["unkeyed"] for op in "ud" if op in by_op and last(op, "last_unkeyed") > voided),
        keyed=bool(last_keyed),
        key_lost=last("cr", "last_unkeyed") > max(last_keyed, voided),
    )


def after_truncate(events: DataFrame, found: BatchStats) -> DataFrame:
    """The events that count: those behind the last truncate."""
    if found.truncated is None:
        return events
    lsn, seq = found.truncated
    return events.where(f.col("_pos") > f.struct(f.lit(lsn).alias("lsn"), f.lit(seq).cast("bigint").alias("seq")))


def collapse(events: DataFrame, columns: Sequence[dict[str, Any]], unchanged: Sequence[str]) -> DataFrame:
    """One row a key: its columns, the META columns, `_op` (d: it is gone; else it is there) and `_unchanged`.

    `unchanged`: the columns that may be missing in events. `_unchanged` names those that no event of the key has.
    """
    toasted = [column for column in columns if column["name"] in unchanged]
    last = f.struct(OP, "_ts", "_row", UNCHANGED, "_lost")
    found = events.groupBy("_key").agg(
        f.max("_pos").alias("_pos"),
        f.max_by(last, f.col("_pos")).alias("_last"),
        *(_known(column["name"]).alias(f"_known_{index}") for index, column in enumerate(toasted)),
    )
    values = {column["name"]: f.col("_last._row").getField(column["name"]) for column in columns}
    lost = f.col("_last._lost")
    still = f.col(f"_last.{UNCHANGED}")
    for index, column in enumerate(toasted):
        name, known = column["name"], f.col(f"_known_{index}")
        filled = f.array_contains(f.col(f"_last.{UNCHANGED}"), name) & known.isNotNull()
        values[name] = f.when(filled, known.getField("value")).otherwise(values[name])
        text = f.create_map(f.lit(name), known.getField("lost"))
        lost = f.when(filled & known.getField("flagged"), _joined(lost, text)).otherwise(lost)
        still = f.when(filled, f.array_remove(still, name)).otherwise(still)
    return found.select(
        *(value.alias(name) for name, value in values.items()),
        f.col("_pos.lsn").alias(COMMIT_LSN),
        f.col("_pos.seq").alias(SEQ),
        f.col("_last._ts").alias(COMMIT_TS),
        lost.alias(UNREPRESENTABLE),
        f.when(f.col("_last._op") == "d", f.lit("d")).otherwise(f.lit("u")).alias(OP),
        still.alias(UNCHANGED),
    )


def fill_moved(
    events: DataFrame, base: DataFrame | None, columns: Sequence[dict[str, Any]], key: Sequence[str]
) -> DataFrame:
    """Give rows that changed their key what they left behind: rule 3. Runs jobs; only for batches with such rows.

    `base`: the table before these events, with UNREPRESENTABLE; None if there was nothing.
    """
    schema = events.schema["_row"].dataType
    before = None
    if base is not None:
        lost = f.col(UNREPRESENTABLE)
        keyed = base.withColumn(
            "_row", f.struct(*(f.col(c["name"]).cast(ddl(c["type"])).alias(c["name"]) for c in columns))
        )
        before = keyed.withColumn("_lost", lost).withColumn("_key", _key(key, columns)).select("_key", "_row", "_lost")
    while True:
        is_moved = (f.col(OP) == "c") & (f.size(UNCHANGED) > 0)
        events = events.localCheckpoint()
        moved = events.where(is_moved)
        if moved.isEmpty():
            return events
        names = sorted({name for row in moved.select(f.explode(UNCHANGED)).distinct().collect() for name in row})
        left = events.where(f.col(OP) == "d").select(
            f.col("_pos.lsn").alias("_commit"), (f.col("_pos.seq") + 1).alias("_next"), f.col("_lsn").alias("_by"),
            f.col("_key").alias("_old"),
        )  # fmt: skip
        # One that nothing goes before (a row filter made an insert of an update; compaction has taken the delete away)
        # has its values nowhere: they are unknown. So are they behind the delete of another row, another change.
        same = (f.col("_at.lsn") == f.col("_commit")) & (f.col("_at.seq") == f.col("_next"))
        origin = moved.select(f.col("_pos").alias("_at"), "_lsn").join(
            left, same & (f.col("_lsn") == f.col("_by")), "left"
        ).select("_at", "_old")  # fmt: skip
        earlier = events.where(f"{OP} <> 'd'").select(
            "_key", "_pos", "_row", "_lost", UNCHANGED, is_moved.alias("_open")
        )
        met = origin.join(earlier, f.col("_old").eqNullSafe(f.col("_key")) & (f.col("_pos") < f.col("_at")), "left")
        sources = met.groupBy("_at", "_old").agg(*(_source(name).alias(f"_s_{i}") for i, name in enumerate(names)))
        if before is not None:
            old = before.select(f.col("_key").alias("_k"), f.struct("_row", "_lost").alias("_base"))
            sources = sources.join(old, f.col("_old").eqNullSafe(f.col("_k")), "left").drop("_k")
        joined = events.join(sources, f.col("_pos") == f.col("_at"), "left")
        events = _filled(joined, names, schema, has_base=before is not None).select(*events.columns)


def _source(name: str) -> Column:
    """The newest event under the old key that tells of the column: with its value, or itself still without it."""
    tells = ~f.array_contains(UNCHANGED, name) | f.col("_open")
    told = f.struct(
        f.array_contains(UNCHANGED, name).alias("open"),
        f.col("_row").getField(name).alias("value"),
        f.col("_lost").getItem(name).alias("lost"),
        _flagged(f.col("_lost"), name).alias("flagged"),
    )
    return f.max_by(f.when(tells, told), f.when(tells, f.col("_pos")))


def _filled(joined: DataFrame, names: Sequence[str], schema: Any, *, has_base: bool) -> DataFrame:
    row, lost, still = f.col("_row"), f.col("_lost"), f.col(UNCHANGED)
    values = {field.name: row.getField(field.name) for field in schema.fields}
    for index, name in enumerate(names):
        wanted = f.col("_at").isNotNull() & f.array_contains(UNCHANGED, name)
        found = f.col(f"_s_{index}")
        ready = wanted & ~f.coalesce(found.getField("open"), f.lit(False))
        value, text, flagged = (found.getField(part) for part in ("value", "lost", "flagged"))
        unknown = found.isNull()
        if has_base:
            in_base = found.isNull() & f.col("_base").isNotNull()
            value = f.when(in_base, f.col("_base._row").getField(name)).otherwise(value)
            text = f.when(in_base, f.col("_base._lost").getItem(name)).otherwise(text)
            flagged = f.when(in_base, _flagged(f.col("_base._lost"), name)).otherwise(flagged)
            unknown = found.isNull() & f.col("_base").isNull()
        values[name] = f.when(ready, value).otherwise(values[name])
        told = _joined(lost, f.create_map(f.lit(name), text))
        lost = f.when(ready & (unknown | flagged), told).otherwise(lost)
        still = f.when(ready, f.array_remove(still, name)).otherwise(still)
    filled = f.struct(*(value.cast(schema[name].dataType).alias(name) for name, value in values.items()))
    changed = joined.select(
        "*", f.when(row.isNotNull(), filled).alias("_row2"), lost.alias("_lost2"), still.alias("_still2")
    )
    renamed = {"_row2": "_row", "_lost2": "_lost", "_still2": UNCHANGED}
    return changed.drop("_row", "_lost", UNCHANGED).withColumnsRenamed(renamed)


def _known(name: str) -> Column:
    """The last value of a column that some event of the key has."""
    has = (f.col(OP) != "d") & ~f.array_contains(UNCHANGED, name)
    told = f.struct(
        f.col("_row").getField(name).alias("value"),
        f.col("_lost").getItem(name).alias("lost"),
        _flagged(f.col("_lost"), name).alias("flagged"),
    )
    return f.max_by(f.when(has, told), f.when(has, f.col("_pos")))


def _flagged(lost: Column, name: str) -> Column:
    """Whether the column is among the lost ones: also with a null text, which says that not even that is known."""
    return f.coalesce(f.map_contains_key(lost, name), f.lit(False))


def _key(key: Sequence[str], columns: Sequence[dict[str, Any]]) -> Column:
    fields = [f.col("_row").getField(name).alias(name) for name in key]
    fields += [f.col("_lost").getItem(name).alias(f"{name}_lost") for name in key_names(key, columns)]
    if not fields:
        return f.struct(f.lit(0).alias("none"))
    return f.when(f.col("_row").isNotNull(), f.struct(*fields))


def _texts(image: Column) -> Column:
    """Column -> text, of what this image of the row has lost; null if that is nothing."""
    lost = f.filter("unrepresentable", lambda each: each["image"] == image)
    texts = f.map_from_entries(f.transform(lost, lambda each: f.struct(each["column"], each["text"])))
    return f.when(f.size(lost) > 0, texts)


def _joined(one: Column, other: Column) -> Column:
    """Two maps of texts as one; a null map is an empty one."""
    empty = f.expr("cast(map() as map<string,string>)")
    return f.map_concat(f.coalesce(one, empty), f.coalesce(other, empty))
