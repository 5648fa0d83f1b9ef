"""A mirror that runs for long: the driver's memory stays flat, and the files of its tables do not grow in number."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.fix_spark import FORMATS
from support.rendering import content
from support.stream import StreamFixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdcd.spark import Cdc
    from cdcd.spark.packages import Format

RUNS, UPKEEP = 500, 50
"""Runs in all, and between two compactions."""
LOOKS_MIN, LOOKS_MAX, LOOK_EVERY_S = 3, 20, 1.0
STEADY = 0.99
"""A look that finds more than this part of the one before is the last one."""


def heap(spark: SparkSession) -> int:
    """The bytes of the JVM that are in use, when collections free no more of them.

    After a collection Spark's cleaner, in a thread of its own, lets go of what no handle holds: the next one frees it.
    """
    jvm: Any = spark._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    looks: list[int] = []
    while len(looks) < LOOKS_MIN or (looks[-1] < STEADY * looks[-2] and len(looks) < LOOKS_MAX):
        if looks:
            time.sleep(LOOK_EVERY_S)
        gc.collect()  # Python's handles keep objects of the JVM alive
        jvm.java.lang.System.gc()
        looks.append(int(runtime.totalMemory() - runtime.freeMemory()))
    return looks[-1]


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_five_hundred_runs_take_no_more_memory_or_files_than_the_first_half_of_them(
    stream: StreamFixture,
    cdc: Cdc,
    lake: Callable[[str], str],
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: Format,
) -> None:
    monkeypatch.setattr("cdcd.spark.mirror.targets.delta._RETENTION_H_MIN", 0)
    cdc.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # The table of runs keeps what was removed for a day.
    monkeypatch.setattr(
        "cdcd.spark.mirror.targets.delta.Delta.log_properties",
        {"delta.deletedFileRetentionDuration": "interval 0 seconds"},
    )
    monkeypatch.setattr(
        "cdcd.spark.mirror.targets.iceberg.Iceberg.log_properties", {"history.expire.max-snapshot-age-ms": "1"}
    )
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE keyless (v int)")
    stream.sql("ALTER TABLE keyless REPLICA IDENTITY FULL")
    daemon = stream.daemon(sink={"transaction_linger_ms": 20}).start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    schema = catalog.partition(".")[2]
    folder = warehouse / (f"delta/{schema}.db" if form == "delta" else f"ice/{schema}")
    mirror = cdc.mirror(["*"], catalog, form)
    found = {}
    for run in range(1, RUNS + 1):
        stream.sql(
            f"INSERT INTO t VALUES ({run}, 0)",
            f"UPDATE t SET v = v + 1 WHERE id = {run // 2}",
            f"DELETE FROM t WHERE id = {run // 3}",
            f"INSERT INTO keyless VALUES ({run % 7})",
        )
        daemon.wait_until_confirmed()
        mirror.run_once()
        if run % UPKEEP == 0:
            mirror.compact(keep_runs=UPKEEP, keep_days=-1)  # also what was removed just now
            files = [path for path in folder.rglob("*") if path.is_file()]
            data = sum(path.suffix == ".parquet" and "_delta_log" not in path.parts for path in files)
            rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            found[run] = heap(cdc.spark), rss, data, len(files)
            used, *others = found[run]
            print(f"run {run}: heap {used / 1e6:.0f} MB, Python {others[0]} MB, {others[1]} data files of {others[2]}")
    cdc.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    half = RUNS // UPKEEP // 2
    then, now = list(found.values())[:half], list(found.values())[half:]
    # What Java keeps softly stays after a collection, and goes now and then: so the least of several looks counts.
    assert min(heap for heap, *_ in now) < 1.1 * min(heap for heap, *_ in then)
    (_, python_then, data_then, files_then), (_, python_now, data_now, files_now) = then[-1], now[-1]
    assert python_now < 1.1 * python_then
    assert data_now < 1.3 * data_then + 10
    if form == "iceberg":  # Delta removes commits from its log a day after their retention
        assert files_now < 1.3 * files_then + 10
    for name in "t", "keyless":
        rows = mirror.as_of()[f"public.{name}"]
        assert content(rows, ignore=("_row_hash", "_duplicate")) == stream.content("public", name)
