"""What Prometheus reads: one table of every metric, and the object that fills it.

Before: `pipeline` and `supervisor` report what happened, in the words of the methods of `Metrics`.
After: `health` serves `exposition()` at /metrics.

Base units (bytes, seconds), as Prometheus asks. Labels are bounded: a relation beyond RELATIONS_MAX counts as `other`,
a reason is the name of an error class. Source: prometheus.io, "Metric and label naming".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series a counter, that nobody asks for

RELATIONS_MAX: Final = 1000
"""Distinct values of the label `relation`; rows of further tables are counted under `other`."""

_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 1800.0, 7200.0)


@dataclass(frozen=True)
class Metric:
    """One row of the table: the name as Prometheus shows it, what it is, what it says."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS: Final = (
    Metric("cdcd_info", "gauge", "Always 1; the version and how the hot rooms run.", ("version", "rooms")),
    Metric("cdcd_streaming", "gauge", "1 while the slot streams, else 0."),
    Metric("cdcd_lag_bytes", "gauge", "WAL that the server has written and Kafka does not hold yet."),
    Metric("cdcd_lag_seconds", "gauge", "Age of the oldest commit that was received and that Kafka does not hold yet."),
    Metric("cdcd_rows_total", "counter", "Events in committed Kafka transactions.", ("relation", "op")),
    Metric("cdcd_transactions_total", "counter", "PostgreSQL transactions in committed Kafka transactions."),
    Metric("cdcd_kafka_commits_total", "counter", "Kafka transactions committed."),
    Metric("cdcd_kafka_commit_seconds", "histogram", "Flush and commit of a Kafka transaction.", (), _FAST),
    Metric("cdcd_event_latency_seconds", "histogram", "From PostgreSQL's commit to Kafka's.", (), _LATENCY),
    Metric("cdcd_received_bytes_total", "counter", "Bytes of logical replication received."),
    Metric("cdcd_published_bytes_total", "counter", "Bytes of keys and values in committed Kafka transactions."),
    Metric("cdcd_queue_bytes", "gauge", "Encoded events that wait for the producer."),
    Metric("cdcd_slot_retained_bytes", "gauge", "WAL that the server keeps for the slot."),
    Metric("cdcd_slot_active", "gauge", "1 while the server counts the slot as in use, else 0."),
    Metric(
        "cdcd_restarts_total", "counter", "Streams started again, by the error that ended the one before.", ("reason",)
    ),
)
"""Every metric, in the order of the status page."""


class Metrics:
    """The metrics of one daemon, in a registry of its own. Every method may be called from any thread."""

    def __init__(self, version: str, rooms: str) -> None:
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in METRICS:
            if metric.kind == "counter":
                name = metric.name.removesuffix("_total")
                self._counters[metric.name] = Counter(name, metric.help, metric.labels, registry=self.registry)
            elif metric.kind == "gauge":
                self._gauges[metric.name] = Gauge(metric.name, metric.help, metric.labels, registry=self.registry)
            else:
                self._histograms[metric.name] = Histogram(
                    metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
                )
        ProcessCollector(registry=self.registry)  # memory, CPU and open files of the process
        self._relations: set[str] = set()
        self._gauges["cdcd_info"].labels(version, rooms).set(1)

    def published(
        self, transactions: int, rows: Mapping[tuple[str, str], int], size_bytes: int, seconds: float
    ) -> None:
        """A Kafka transaction is committed: `rows` by relation (`schema.table`) and op; flush and commit together took
        `seconds`.
        """
        self._counters["cdcd_kafka_commits_total"].inc()
        self._counters["cdcd_transactions_total"].inc(transactions)
        self._counters["cdcd_published_bytes_total"].inc(size_bytes)
        self._histograms["cdcd_kafka_commit_seconds"].observe(seconds)
        counter = self._counters["cdcd_rows_total"]
        for (relation, op), count in rows.items():
            counter.labels(self._bounded(relation), op).inc(count)

    def latency(self, seconds: float) -> None:
        """A PostgreSQL transaction became visible in Kafka so long after its commit; below 0 where clocks differ."""
        self._histograms["cdcd_event_latency_seconds"].observe(max(0.0, seconds))

    def received(self, size_bytes: int) -> None:
        """Bytes came from the walsender."""
        self._counters["cdcd_received_bytes_total"].inc(size_bytes)

    def queued(self, size_bytes: int) -> None:
        """So many encoded bytes wait for the producer now."""
        self._gauges["cdcd_queue_bytes"].set(size_bytes)

    def lag(self, size_bytes: int, seconds: float) -> None:
        """How far Kafka is behind the server now, in WAL and in time."""
        self._gauges["cdcd_lag_bytes"].set(size_bytes)
        self._gauges["cdcd_lag_seconds"].set(seconds)

    def slot(self, retained_bytes: int, active: bool) -> None:
        """What the server says of the slot now."""
        self._gauges["cdcd_slot_retained_bytes"].set(retained_bytes)
        self._gauges["cdcd_slot_active"].set(active)

    def streaming(self, streams: bool) -> None:
        """The stream has started or ended."""
        self._gauges["cdcd_streaming"].set(streams)

    def restarted(self, reason: BaseException) -> None:
        """The stream starts again because of `reason`; its class is the label, so that there are few."""
        self._counters["cdcd_restarts_total"].labels(type(reason).__name__).inc()

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def _bounded(self, relation: str) -> str:
        if relation in self._relations:
            return relation
        if len(self._relations) >= RELATIONS_MAX:
            return "other"
        self._relations.add(relation)
        return relation
