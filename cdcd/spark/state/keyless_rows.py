"""Tables without a key: their rows are a bag, and what events say is how many copies of a row come and go.

Before: `decoding` gives typed events.
After: `copy_format`, and `mirror`, which numbers the copies so that it can merge them.

With REPLICA IDENTITY FULL an update takes one copy of the whole old row away and adds one of the new row; which copy
does not matter, as nothing tells them apart. Rows are the same if their JSON is: a null column does not count, so an
added column leaves old rows what they were.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cdcd.spark.state.collapse import OP

HASH: Final = "_row_hash"
COPY: Final = "_copy"

_AS_IT_IS: Final = {
    "ignoreNullFields": "true",
    # Spark's own formats end with the milliseconds, in the session's time zone.
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def net(events: DataFrame) -> DataFrame:
    """One row for each distinct row of positioned events: HASH, `_net` (copies more or fewer), and its newest event."""
    gone = events.where("_before IS NOT NULL").select(
        f.lit(-1).alias("_sign"), "_pos", "_ts", f.col("_before").alias("_row"), f.col("_lost_before").alias("_lost")
    )
    come = events.where(f"{OP} IN ('c', 'r', 'u')").select(f.lit(1).alias("_sign"), "_pos", "_ts", "_row", "_lost")
    signed = come.unionByName(gone).withColumn(HASH, row_hash())
    newest = f.struct("_ts", "_row", "_lost")
    return signed.groupBy(HASH).agg(
        f.sum("_sign").alias("_net"), f.max("_pos").alias("_pos"), f.max_by(newest, f.col("_pos")).alias("_last")
    )


def row_hash() -> Column:
    """What the same rows have in common."""
    return f.sha2(f.to_json(f.struct("_row", "_lost"), _AS_IT_IS), 256)
