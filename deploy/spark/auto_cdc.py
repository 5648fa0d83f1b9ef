"""cdcd's stream as the source of Spark's own AutoCDC (`pyspark.pipelines`, PySpark 4.2 and newer): an example.

    pip install 'pyspark[pipelines]==4.2.0' .     # in a checkout of cdcd; not '.[spark]', which is PySpark 4.1.3
    spark-pipelines run --spec pipeline.yml       # its `libraries` glob names this file

`Cdc.mirror` does not have these limits of AutoCDC:
- **Columns that an update did not send (unchanged TOAST values) become NULL.** Set REPLICA IDENTITY FULL on tables with
  large values. The assertion below stops the flow before a column becomes NULL.
- AutoCDC ignores a truncate.
- The tables do not agree with each other: each flow is at its own offset.
- The target needs row-level operations in Spark's DataSource V2. Spark refuses Delta, and Iceberg has no runtime for
  Spark 4.2 yet.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cdcd.spark import Cdc

TABLE, KEYS = "public.orders", ["id"]


@dp.temporary_view
def orders_changes() -> DataFrame:
    """Each change as the row after it, or for a delete as the key of the deleted row."""
    spark = SparkSession.active()
    cdc = Cdc(spark, bootstrap=os.environ["KAFKA"], prefix=os.environ["PREFIX"])
    changes = cdc.changes_stream(TABLE).where("op IN ('c', 'u', 'd', 'r')")
    checked = f.assert_true(f.size("unchanged") == 0, f"{TABLE} has unchanged columns: set REPLICA IDENTITY FULL")
    row = f.coalesce("after", "before")
    wal_order = f.struct("source.commit_lsn", "source.seq").alias("wal_order")
    return changes.select(row.alias("row"), "op", wal_order, checked.alias("checked")).select(
        "row.*", "op", "wal_order", "checked"
    )


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="orders_changes",
    keys=KEYS,
    sequence_by=f.col("wal_order"),
    apply_as_deletes=f.expr("op = 'd'"),
    except_column_list=["op", "wal_order", "checked"],
    stored_as_scd_type=1,
)
