"""Fixtures of Spark: one session for all tests, with Kafka, Avro, Delta and Iceberg.

Before: `servers.jars` fetches the jars. After: the tests in `tests/spark/`.

- `spark`: the session, local[2]. The first use starts it (about 8 s); it ends with the tests.
- `lake`: makes a new schema for a format. `lake("delta")` returns its name, for `Cdc.mirror(catalog=...)`.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from servers.jars import fetch_jars, find_java
from servers.processes import default_home

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_numbers = itertools.count(1)

FORMATS = ("delta", "iceberg")
DELTA_WHOLE = (pytest.param("delta", marks=pytest.mark.whole), "iceberg")
"""The usual run plays the format that is quicker."""
ICEBERG_WHOLE = ("delta", pytest.param("iceberg", marks=pytest.mark.whole))

SMALL_DATA = {  # the tests run many plans on few rows: compiling a plan would take longer than running it
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def settings(warehouse: Path) -> dict[str, str]:
    """The settings of the session, and of the Spark processes that tests start."""
    from pyspark import __version__ as version

    paths = [path for name in ("spark", "lake") for path in fetch_jars(f"{name}-{version}", default_home())]
    extensions = ["io.delta.sql.DeltaSparkSessionExtension"]
    if any("iceberg" in path.name for path in paths):
        extensions.append("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    return {
        "spark.jars": ",".join(map(str, paths)),
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={warehouse} -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.cache.maxEntries": "1000",  # as `cdcd spark` sets it
        "spark.sql.extensions": ",".join(extensions),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(warehouse / "ice"),
        "spark.sql.warehouse.dir": str(warehouse / "delta"),
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def for_small_data(warehouse: Path) -> dict[str, str]:
    """The settings of a session that runs many plans on few rows."""
    made = settings(warehouse) | SMALL_DATA
    # With one level of its compiler Java reserves a fifth of the usual room for code, which a long test fills.
    made["spark.driver.extraJavaOptions"] += " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    return made


def jobs(session: SparkSession) -> int:
    """How many Spark jobs a session has run: a figure that other work on the machine does not change."""
    context: Any = session.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


def generated_classes(session: SparkSession) -> int:
    """How many classes Spark has generated in this JVM."""
    java: Any = session._jvm
    return int(java.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())


@contextmanager
def given(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Inside the `with` block a session has these settings."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.unset(name) if value is None else session.conf.set(name, value)


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of all lake tables."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    """Start the session."""
    pyspark = pytest.importorskip("pyspark.sql")
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    os.environ.setdefault("JAVA_HOME", os.path.dirname(os.path.dirname(os.path.realpath(find_java()))))  # noqa: PTH120
    builder = pyspark.SparkSession.builder.master("local[2]").appName("cdcd tests")
    for name, value in for_small_data(warehouse).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def lake(spark: SparkSession) -> Callable[[str], str]:
    """Return a function that makes a new schema for a format, "delta" or "iceberg"."""

    def make(form: str) -> str:
        if form not in spark.conf.get("spark.sql.extensions").lower():
            pytest.skip(f"there is no {form} for Spark {spark.version}")
        name = f"{'spark_catalog' if form == 'delta' else 'ice'}.t{next(_numbers)}"
        spark.sql(f"CREATE SCHEMA {name}")
        return name

    return make
