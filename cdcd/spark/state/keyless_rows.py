"""Tables without a key: their rows are counted, because nothing tells equal rows apart.

Before: `collapse.flatten` gives flat events.
After: `as_of` makes rows of the counts; the mirror's `table_merge` numbers equal rows, so that a MERGE can name them.

With REPLICA IDENTITY FULL an update removes any one of the rows that equal the old row, and adds the new row. Rows are
equal if their JSON is equal. The JSON leaves out null columns, so an added column does not change the old rows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cdcd.spark.state.collapse import OP

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
    signed = added.unionByName(removed).withColumn(HASH, row_hash())
    newest = f.struct("_ts", "_row", "_lost")
    return signed.groupBy(HASH).agg(
        f.sum("_sign").alias("_net"), f.max("_order").alias("_order"), f.max_by(newest, f.col("_order")).alias("_last")
    )


def row_hash() -> Column:
    """A hash that equal rows share. Tables hold it, so it must not change: the names `_row` and `_lost` go into it."""
    return f.sha2(f.to_json(f.struct("_row", "_lost"), _EXACT), 256)
