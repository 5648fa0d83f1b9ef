"""The topics in Spark: read as typed DataFrames, mirrored into a lake at exact LSNs, verified, loaded.

Before: the topics that `cdcd run` fills. After: DataFrames, and Delta or Iceberg tables.
The only importer of PySpark; of the other rooms it knows the vocabulary of the wire format and of the progress record.

    from cdcd.spark import Cdc
    cdc = Cdc(spark, bootstrap="k:9092", prefix="shop")
    cdc.changes("public.orders").show()

The way through it::

    kafka -> cuts                       which offsets belong to an LSN
          -> wire -> changes            bytes -> typed events, each by the schema that wrote it
                  -> collapse -> rows   the last state of every key: `as_of`, `verify`
                              -> mirror a MERGE a table, then one row that publishes them all
"""

from cdcd.spark.cdc import Cdc
from cdcd.spark.packages import packages
from cdcd.spark.reading.cuts import Cut

__all__ = ["Cdc", "Cut", "packages"]
