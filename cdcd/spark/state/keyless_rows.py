"""Tables without a key: their rows are counted, because nothing tells equal rows apart.

Before: `collapse.flatten` gives flat events.
After: `as_of` makes rows of the counts; the mirror's `table_merge` numbers equal rows, so that a MERGE can name them.

With REPLICA IDENTITY FULL an update removes any one of the rows that equal the old row, and adds the new row. Rows are
equal if their JSON is equal. The JSON leaves out null columns, so an added column does not change the old rows.

A column that is dropped changes them all: PostgreSQL names an old row without it from then on. So rows are counted as
the last schema has them: `with_columns_of` makes the other columns null. A table in the lake is then counted anew.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, OP, SEQ, UNCHANGED, UNREPRESENTABLE

HASH: Final = "_row_hash"
DUPLICATE: Final = "_duplicate"
"""Numbers the rows of one hash, from 1."""

_EXACT: Final = {
    "ignoreNullFields": "true",
    # Spark's own formats stop at milliseconds, and use the session's time zone.
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def net_counts(events: DataFrame) -> DataFrame:
    """One row for each distinct row of flat events: HASH, `_net` (how many more, or fewer), and its newest event.

    The newest event is `_order` and `_last` (_ts, _row, _lost).
    """
    removed = events.where("_before IS NOT NULL").select(
        f.lit(-1).alias("_sign"), "_order", "_ts", f.col("_before").alias("_row"), f.col("_lost_before").alias("_lost")
    )
    added = events.where(f"{OP} IN ('c', 'r', 'u')").select(f.lit(1).alias("_sign"), "_order", "_ts", "_row", "_lost")
    signed = added.unionByName(removed).withColumn(HASH, row_hash(f.col("_row"), f.col("_lost")))
    newest = f.struct("_ts", "_row", "_lost")
    return signed.groupBy(HASH).agg(
        f.sum("_sign").alias("_net"), f.max("_order").alias("_order"), f.max_by(newest, f.col("_order")).alias("_last")
    )


def row_hash(row: Column, lost: Column) -> Column:
    """A hash that equal rows share. Tables hold it, so it must not change: the names `_row` and `_lost` go into it."""
    return f.sha2(f.to_json(f.struct(row.alias("_row"), lost.alias("_lost")), _EXACT), 256)


def with_columns_of(events: DataFrame, names: Collection[str]) -> DataFrame:
    """Flat events, whose rows have no value in columns other than these."""
    names = {name.lower() for name in names}
    if {field.name.lower() for field in events.schema["_row"].dataType} <= names:
        return events
    return events.withColumns(
        {row: _only(events, row, names) for row in ("_row", "_before")}
        | {lost: _only_texts(lost, names) for lost in ("_lost", "_lost_before")}
    )


def as_events(rows: DataFrame, like: DataFrame) -> DataFrame:
    """The rows of a table as flat events that add them, of the form of `like`."""
    fields = like.schema["_row"].dataType.fields
    values = {
        "_order": f.struct(f.col(COMMIT_LSN).alias("lsn"), f.col(SEQ).alias("seq")),
        OP: f.lit("r"),
        "_ts": f.col(COMMIT_TS),
        "_row": f.struct(*(_as(field.dataType, rows, field.name).alias(field.name) for field in fields)),
        "_lost": f.col(UNREPRESENTABLE),
        UNCHANGED: f.expr("cast(array() as array<string>)"),
        "_unkeyed": f.lit(True),
    }
    nothing = {each.name: f.lit(None).cast(each.dataType) for each in like.schema}
    return rows.select(*(value.alias(name) for name, value in (nothing | values).items()))


def _as(wanted: DataType, rows: DataFrame, name: str) -> Column:
    """A column of this type. Spark does not cast a type to itself if parts of it may be null here alone."""
    is_same = rows.schema[name].dataType.simpleString() == wanted.simpleString()
    return f.col(name) if is_same else f.col(name).cast(wanted)


def _only(events: DataFrame, row: str, names: Collection[str]) -> Column:
    value = f.col(row)
    fields = events.schema[row].dataType.fields
    kept = (
        (value.getField(each.name) if each.name.lower() in names else f.lit(None).cast(each.dataType)).alias(each.name)
        for each in fields
    )
    return f.when(value.isNotNull(), f.struct(*kept))


def _only_texts(lost: str, names: Collection[str]) -> Column:
    texts = f.map_filter(lost, lambda name, _: f.lower(name).isin(*names))
    return f.when(f.size(texts) > 0, texts)
