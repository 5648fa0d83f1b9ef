"""A first look at the topics and at a mirror with PySpark, cell by cell, as in a notebook. It draws what it finds.

    tests/quickstart                                   # in another terminal; it prints Kafka's address
    pip install '.[spark]' pandas matplotlib            # in this checkout; PySpark 4.1.3
    python deploy/spark/example.py localhost:9092 shop  # writes events.png and mirror.png

Copy the cells that you need. Before: topics that `cdcd run` fills. After: `events.png`, and `mirror.png` of Delta
tables that a mirror makes in a folder of their own, which is removed at the end.
"""

# %% A session with the jars that fit the installed PySpark (fetched from Maven Central the first time)
import sys
import tempfile
from datetime import UTC, datetime

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from cdcd.spark import Cdc, packages

bootstrap, prefix = sys.argv[1], sys.argv[2]
lake = tempfile.TemporaryDirectory()
builder = SparkSession.builder.master("local[2]").appName("cdcd example")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
builder = builder.config("spark.sql.warehouse.dir", lake.name).config("spark.sql.shuffle.partitions", "4")
if len(sys.argv) > 3:  # paths of jars, separated by commas
    builder = builder.config("spark.jars", sys.argv[3])
else:
    builder = builder.config("spark.jars.packages", packages(formats=["delta"]))
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

# %% A mirror: Delta tables that follow the topics. Small runs, so that there are some to draw
mirror = cdc.mirror(["*"], "spark_catalog.example", "delta", rows_max=2_000)
runs = []
while (done := mirror.run_once()) is not None and len(runs) < 20:  # a mirror that keeps up finds nothing to do
    committed = datetime.fromtimestamp(done.run.commit_ts / 1e6, UTC)
    lag_s = (mirror.times(done.run)["published"] - committed).total_seconds()
    files = sum(each.count for each in mirror.files(done.run).values())
    runs.append((done.run.run, done.events / done.seconds, lag_s, files))
    print(f"run {done.run.run}: {done.events} events in {done.seconds:.1f} s, {files} files")

# %% Its rates, its lag and its files, run by run
figure, plots = plt.subplots(1, 3, figsize=(12, 4))
numbers, *measures = zip(*runs, strict=True)
for plot, measure, title in zip(
    plots, measures, ["events a second", "seconds behind PostgreSQL's commits", "files of all tables"], strict=True
):
    plot.plot(numbers, measure, marker=".")
    plot.set_ylim(bottom=0)
    plot.set_title(title)
    plot.set_xlabel("run")
    plot.xaxis.get_major_locator().set_params(integer=True)
figure.savefig("mirror.png", dpi=120, bbox_inches="tight")
print("wrote mirror.png")
spark.stop()
lake.cleanup()
