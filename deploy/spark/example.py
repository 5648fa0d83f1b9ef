"""A first look at the topics with PySpark, cell by cell, as in a notebook. It draws the events over time.

    tests/quickstart                                   # in another terminal; it prints Kafka's address
    pip install '.[spark]' pandas matplotlib            # in this checkout; PySpark 4.1.3
    python deploy/spark/example.py localhost:9092 shop  # writes events.png

Copy the cells that you need. Before: topics that `cdcd run` fills. After: `events.png`.
"""

# %% A session with the jars that fit the installed PySpark (fetched from Maven Central the first time)
import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from cdcd.spark import Cdc, packages

bootstrap, prefix = sys.argv[1], sys.argv[2]
builder = SparkSession.builder.master("local[2]").appName("cdcd example")
if len(sys.argv) > 3:  # paths of jars, separated by commas
    builder = builder.config("spark.jars", sys.argv[3])
else:
    builder = builder.config("spark.jars.packages", packages(formats=()))
spark = builder.config("spark.sql.session.timeZone", "UTC").config("spark.log.level", "ERROR").getOrCreate()
cdc = Cdc(spark, bootstrap=bootstrap, prefix=prefix)

# %% The tables, and the newest cut: an LSN at which all tables agree
cut = cdc.cut()
tables = cdc.tables(cut=cut)
print(f"{len(tables)} tables at {cut.lsn >> 32:X}/{cut.lsn & 0xFFFFFFFF:X}: {', '.join(tables)}")

# %% The events of a table, typed: insert, update, delete, with the row before and after
first = next(iter(tables))
changes = cdc.changes(first)
changes.groupBy("op").count().orderBy("op").show()
changes.select("source.commit_ts", "op", "after.*").orderBy("source.commit_lsn", ascending=False).show(5, truncate=25)

# %% The rows of all tables, as they stood at exactly that LSN
for name, rows in cdc.as_of(cut.lsn).items():
    print(f"{name:30} {rows.count():8} rows")

# %% Events over time: one line a table
figure, axes = plt.subplots(figsize=(10, 4))
for name in tables:
    per_second = cdc.changes(name).groupBy(f.date_trunc("second", "source.commit_ts").alias("at")).count().orderBy("at")
    points = per_second.collect()
    axes.plot([row["at"] for row in points], [row["count"] for row in points], label=name)
axes.set_ylabel("events a second")
axes.legend(loc="upper left", fontsize="small")
figure.autofmt_xdate()
figure.savefig("events.png", dpi=120, bbox_inches="tight")
print("wrote events.png")
spark.stop()
