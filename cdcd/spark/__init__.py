"""The topics in Spark: read as typed DataFrames, mirrored into a lake at exact LSNs, verified, loaded.

Before: the topics that `cdcd run` fills. After: DataFrames, and Delta or Iceberg tables.
Only this package imports PySpark. From the flow it imports the vocabulary of the wire format and of the progress
record, and the modules that take a snapshot of PostgreSQL.

    from cdcd.spark import Cdc
    cdc = Cdc(spark, bootstrap="k:9092", prefix="shop")
    cdc.changes("public.orders").show()

The way through it::

    reading/kafka -> cuts                    which offsets belong to an LSN
                  -> decoding -> topics      bytes -> typed events, each by the schema that wrote it
    state/        collapse, keyless_rows     events -> the last state of every key, the count of every row
                  as_of                      states -> a table's rows at one LSN
    mirror/       planner -> table_merge     a MERGE a table
                  -> run_log                 then one row that publishes all tables
    exported_snapshot -> load                tables of PostgreSQL at one LSN
    verify                                   rows compared with PostgreSQL at one LSN, by sql_expressions
    commands                                 `cdcd spark`, with its settings, steps and metrics
    jvm -> failures                          its session, or what kept Spark from starting
    packages                                 the jars that work with each version of Spark
"""

from cdcd.spark.cdc import Cdc
from cdcd.spark.packages import packages
from cdcd.spark.reading.cuts import Cut

__all__ = ["Cdc", "Cut", "packages"]
