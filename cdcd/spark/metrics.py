"""A mirror's metrics for Prometheus, served by the driver.

Before: `commands` reports each run. After: Prometheus reads /metrics on the port of [monitoring].
"""

from __future__ import annotations

from http import HTTPStatus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cdcd.monitoring.http_server import Answer, MonitoringServer
from cdcd.spark.mirror.mirror import PublishedRun
from cdcd.spark.mirror.planner import Lag

_SECONDS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class MirrorMetrics:
    """The metrics of one mirror, on their own port."""

    def __init__(self, port: int) -> None:
        registry = CollectorRegistry()
        self._lag_bytes = Gauge("cdcd_mirror_lag_bytes", "WAL from the published LSN to Kafka's.", registry=registry)
        self._lag_events = Gauge("cdcd_mirror_lag_events", "Offsets that are not merged yet.", registry=registry)
        self._lag_seconds = Gauge(
            "cdcd_mirror_lag_seconds", "Between the last published and Kafka's commit.", registry=registry
        )
        self._quarantined = Gauge(
            "cdcd_mirror_quarantined", "1 for each table that the others go on without.", ["table"], registry=registry
        )
        self._lsn = Gauge(
            "cdcd_mirror_published_lsn",
            "The LSN that all tables are at, but for those in quarantine.",
            registry=registry,
        )
        self._events = Counter("cdcd_mirror_events", "Events merged and published.", registry=registry)
        self._runs = Histogram("cdcd_mirror_run_seconds", "Duration of a run.", buckets=_SECONDS, registry=registry)
        self._server = MonitoringServer(
            "0.0.0.0",  # noqa: S104  # scraped from other machines
            port,
            lambda _: Answer(HTTPStatus.OK, "text/plain; version=0.0.4", generate_latest(registry)),
        )

    def report(self, published: PublishedRun | None, lag: Lag) -> None:
        """Add a run (None: there was nothing to do), and the lag after it."""
        self._lag_bytes.set(lag.bytes)
        self._lag_events.set(lag.events)
        self._lag_seconds.set(lag.seconds)
        if published is not None:
            self._quarantined.clear()
            for table in published.run.quarantined:
                self._quarantined.labels(table).set(1)
            self._lsn.set(published.run.lsn)
            self._events.inc(published.events)
            self._runs.observe(published.seconds)
