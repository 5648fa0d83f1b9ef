"""Grafana's dashboard of the mirror shows what the mirror tells, without a session."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest
from servers.processes import free_port
from support.prometheus import Prometheus, needs_prometheus, queries
from support.stream import eventually

pytest.importorskip("pyspark")

from cdcd.spark.metrics import MirrorMetrics
from cdcd.spark.mirror.mirror import PublishedRun
from cdcd.spark.mirror.planner import Lag
from cdcd.spark.mirror.run_log import PUBLISHED, MirroredTable, Run

TABLE = MirroredTable("p.public.t", "public", "t", "lake.`public_t`", None, [], 0, None, error="it is bad")


def report(metrics: MirrorMetrics, number: int, *tables: MirroredTable) -> None:
    run = Run("mirror", number, PUBLISHED, "s", number, 1, 1, 1, tables)
    metrics.report(PublishedRun(run, 0.5), Lag(1, 2, 3.0))


def test_the_dashboard_shows_each_metric_of_the_mirror_and_no_other() -> None:
    port = free_port()
    report(MirrorMetrics(port), 1, TABLE)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        samples = {line.partition("{")[0].partition(" ")[0] for line in answer.read().decode().splitlines()}
    told = {name for name in samples if name.startswith("cdcd_") and not name.endswith(("_created", "_sum", "_count"))}
    expressions = [expression for _, expression in queries("mirror.json")]
    assert {name for each in expressions for name in re.findall(r"cdcd_\w+", each)} == told
    assert all('{namespace=~".*", job=~"cdcd"}' in each for each in expressions)


@needs_prometheus
def test_every_query_of_the_dashboard_returns_data(tmp_path: Path) -> None:
    port = free_port()
    metrics = MirrorMetrics(port)
    report(metrics, 1, TABLE)
    prometheus = Prometheus(tmp_path, [port])
    try:
        eventually(lambda: prometheus.up("cdcd_mirror_lag_events"), "a first scrape", 30)
        report(metrics, 2, TABLE)
        for title, expression in queries("mirror.json"):
            found = eventually(lambda: prometheus.query(expression), title, 30)  # noqa: B023
            assert all(sample["value"][1] != "NaN" for sample in found), f"{title}: {expression}"
        in_quarantine = dict(queries("mirror.json"))["In quarantine"]
        for tables in (TABLE,), ():
            report(metrics, 3, *tables)
            wanted = [str(len(tables))]
            eventually(lambda: [each["value"][1] for each in prometheus.query(in_quarantine)] == wanted, "a count", 30)  # noqa: B023
    finally:
        prometheus.close()
