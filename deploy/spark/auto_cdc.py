"""cdcd's stream as the source of Spark's own AutoCDC (`pyspark.pipelines`, PySpark 4.2 and newer): an example.

    pip install 'pyspark[pipelines]==4.2.0' .     # in a checkout of cdcd; not '.[spark]', which is PySpark 4.1.3
    spark-pipelines run --spec pipeline.yml       # whose `libraries` glob names this file

What it cannot do, and `Cdc.mirror` can:
- **columns that an update did not send (unchanged TOAST) become NULL**: set REPLICA IDENTITY FULL on tables that have
  large values; the filter below stops the flow rather than let that happen;
- a truncate is passed over;
- tables do not agree with each other: each flow is at an offset of its own;
- the target must be a table format with row-level operations in Spark's DataSource V2: Delta is refused, and Iceberg
  has no runtime for Spark 4.2 yet.
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
    """Each change as the row after it, or for a delete the key of the row that went."""
    spark = SparkSession.active()
    cdc = Cdc(spark, bootstrap=os.environ["KAFKA"], prefix=os.environ["PREFIX"])
    changes = cdc.changes_stream(TABLE).where("op IN ('c', 'u', 'd', 'r')")
    whole = f.assert_true(f.size("unchanged") == 0, f"{TABLE} has unchanged columns: set REPLICA IDENTITY FULL")
    row = f.coalesce("after", "before")
    position = f.struct("source.commit_lsn", "source.seq").alias("position")
    return changes.select(row.alias("row"), "op", position, whole.alias("checked")).select(
        "row.*", "op", "position", "checked"
    )


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="orders_changes",
    keys=KEYS,
    sequence_by=f.col("position"),
    apply_as_deletes=f.expr("op = 'd'"),
    except_column_list=["op", "position", "checked"],
    stored_as_scd_type=1,
)
