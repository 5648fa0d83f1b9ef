"""The metrics for Prometheus: one table of them all, and the object that fills it.

Before: the stream's report, the slot monitor and the supervisor say what happened, by the methods of `Metrics`. Gauges
of the moment are read from `status` when Prometheus asks.
After: `http_answers` serves `exposition()` at /metrics. The alerts and the dashboard in `deploy/` use these names.
Source: prometheus.io, "Metric and label naming".

Units are bytes and seconds, as Prometheus asks. Labels are bounded: relations beyond RELATIONS_MAX count as `other`, a
reason is the name of an error class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

from cdcd.errors import CdcdError
from cdcd.monitoring.status import State, Status
from cdcd.terminal.visible_text import visible

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nothing uses

RELATIONS_MAX: Final = 1000
"""Distinct values of the label `relation`; rows of further tables are counted under `other`."""

SCHEMAS_MAX: Final = 1000
"""Versions of one relation's schema that are counted one by one."""

_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LATENCY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 1800.0, 7200.0)


@dataclass(frozen=True)
class Metric:
    """One row of the table: name, kind and help text as Prometheus shows them."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


WAL_STATUSES: Final = ("reserved", "extended", "unreserved", "lost")
"""The values of pg_replication_slots.wal_status."""

METRICS: Final = (
    Metric(
        "cdcd_info",
        "gauge",
        "Always 1; the version, the build (compiled or pure), the slot and the publication.",
        ("version", "build", "slot", "publication"),
    ),
    Metric("cdcd_start_time_seconds", "gauge", "When the daemon started, in seconds since 1970."),
    Metric("cdcd_state", "gauge", "1 for the state that the daemon is in, 0 for the others.", ("state",)),
    Metric("cdcd_streaming", "gauge", "1 while the slot streams to this daemon and Kafka answers, else 0."),
    Metric(
        "cdcd_unreachable_seconds",
        "gauge",
        "For how long a service has been lost: postgresql, kafka or registry; 0 while it answers.",
        ("service",),
    ),
    Metric("cdcd_standby", "gauge", "1 while another daemon has the slot and this one stands by, else 0."),
    Metric("cdcd_stalled_seconds", "gauge", "For how long work has waited at a stage while nothing moved.", ("stage",)),
    Metric(
        "cdcd_restarts_total",
        "counter",
        "Restarts of the stream, by the code of the error that ended it.",
        ("reason",),
    ),
    Metric(
        "cdcd_settings_refused",
        "gauge",
        "1 while changed settings cannot be used, and the old ones stay in force, else 0.",
    ),
    Metric("cdcd_lag_bytes", "gauge", "WAL that the server has written and Kafka does not hold yet."),
    Metric(
        "cdcd_lag_seconds",
        "gauge",
        "Age of the oldest commit that Kafka does not hold yet: received, or in WAL that was not sent yet.",
    ),
    Metric(
        "cdcd_last_commit_timestamp_seconds", "gauge", "When the last published transaction was committed, since 1970."
    ),
    Metric("cdcd_event_latency_seconds", "histogram", "From PostgreSQL's commit to Kafka's.", (), _LATENCY),
    Metric("cdcd_rows_total", "counter", "Events in committed Kafka transactions.", ("relation", "op")),
    Metric("cdcd_transactions_total", "counter", "PostgreSQL transactions in committed Kafka transactions."),
    Metric("cdcd_received_bytes_total", "counter", "Bytes of logical replication received."),
    Metric("cdcd_published_bytes_total", "counter", "Bytes of keys and values in committed Kafka transactions."),
    Metric(
        "cdcd_schema_versions", "gauge", "Versions of a relation's schema published since the start.", ("relation",)
    ),
    Metric("cdcd_kafka_commits_total", "counter", "Kafka transactions committed."),
    Metric("cdcd_kafka_commit_seconds", "histogram", "Flush and commit of a Kafka transaction.", (), _FAST),
    Metric(
        "cdcd_kafka_transaction_seconds",
        "histogram",
        "A Kafka transaction, from its beginning to its commit.",
        (),
        _FAST,
    ),
    Metric(
        "cdcd_kafka_retry_backoff_seconds",
        "gauge",
        "The pause before a producer repeats a request: longer if commits are slow.",
    ),
    Metric("cdcd_queue_batches", "gauge", "Batches that wait for the producer."),
    Metric("cdcd_queue_bytes", "gauge", "Memory of the encoded events that wait for the producer."),
    Metric("cdcd_queue_max_bytes", "gauge", "The bound of cdcd_queue_bytes: sink.queue_bytes_max."),
    Metric("cdcd_spool_transactions", "gauge", "Transactions in progress or prepared, spooled until they commit."),
    Metric("cdcd_spool_bytes", "gauge", "Size of the spool, in memory or on disk.", ("where",)),
    Metric("cdcd_spool_max_bytes", "gauge", "The bounds of cdcd_spool_bytes: memory_bytes, bytes_max.", ("where",)),
    Metric("cdcd_snapshot_tables", "gauge", "Tables whose snapshot is under way and not complete."),
    Metric("cdcd_snapshot_bytes", "gauge", "Part of these tables that is still to be read."),
    Metric("cdcd_snapshots_paused", "gauge", "1 while the snapshots are paused, else 0."),
    Metric("cdcd_parked_tables", "gauge", "Tables whose events go to the parked topic instead of their own."),
    Metric("cdcd_parked_rows_total", "counter", "Events that went to the parked topic.", ("relation",)),
    Metric("cdcd_slot_active", "gauge", "1 while the server counts the slot as in use, else 0."),
    Metric("cdcd_slot_lost", "gauge", "1 if the server has invalidated the slot, or the slot is gone, else 0."),
    Metric("cdcd_slot_wal_status", "gauge", "1 for the slot's wal_status, 0 for the others.", ("status",)),
    Metric("cdcd_slot_retained_bytes", "gauge", "WAL that the server keeps for the slot."),
    Metric("cdcd_slot_lag_bytes", "gauge", "WAL that the server has written and the slot is not confirmed for."),
    Metric(
        "cdcd_slot_safe_wal_bytes",
        "gauge",
        "WAL that may be written before the slot is in danger; +Inf without max_slot_wal_keep_size.",
    ),
)
"""Every metric."""

_OF_SERVER: Final = (
    "cdcd_lag_bytes",
    "cdcd_slot_active",
    "cdcd_slot_retained_bytes",
    "cdcd_slot_lag_bytes",
    "cdcd_slot_safe_wal_bytes",
)
"""Values that only PostgreSQL tells: NaN while it is lost. (A slot that was lost stays lost.)"""


class Metrics:
    """The metrics of one daemon, in a registry of its own. Every method may be called from any thread."""

    def __init__(self, build: str) -> None:
        """`build`: "compiled" or "pure", see `build_info`."""
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
        self._gauges["cdcd_slot_safe_wal_bytes"].set(inf)  # until the slot was seen: 0 would raise the alarm
        self._started = 0.0
        self._relations: set[str] = set()
        self._schemas: dict[str, set[bytes]] = {}
        self._build = build

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
        """A transaction became visible in Kafka so long after PostgreSQL committed it; below 0 if the clocks differ."""
        self._histograms["cdcd_event_latency_seconds"].observe(max(0.0, seconds))

    def received(self, size_bytes: int) -> None:
        """Bytes came from the walsender."""
        self._counters["cdcd_received_bytes_total"].inc(size_bytes)

    def transaction(self, seconds: float) -> None:
        """A Kafka transaction had been open for so long when it was committed."""
        self._histograms["cdcd_kafka_transaction_seconds"].observe(seconds)

    def schema(self, relation: str, header: bytes) -> None:
        """Events of `relation` are about to be published. `header` identifies their schema."""
        relation = self._bounded(relation)
        versions = self._schemas.setdefault(relation, set())
        if len(versions) < SCHEMAS_MAX:
            versions.add(header)
        self._gauges["cdcd_schema_versions"].labels(relation).set(len(versions))

    def parked(self, rows: Mapping[str, int]) -> None:
        """Events went to the parked topic, by relation (`schema.table`)."""
        for relation, count in rows.items():
            self._counters["cdcd_parked_rows_total"].labels(self._bounded(relation)).inc(count)

    def bounds(self, queue_bytes: int, spool_memory_bytes: int, spool_disk_bytes: int) -> None:
        """The bounds of what waits inside the daemon, from the settings."""
        self._gauges["cdcd_queue_max_bytes"].set(queue_bytes)
        self._gauges["cdcd_spool_max_bytes"].labels("memory").set(spool_memory_bytes)
        self._gauges["cdcd_spool_max_bytes"].labels("disk").set(spool_disk_bytes)

    def retry_backoff(self, retry_backoff_s: float) -> None:
        """The pause of the stream's producers before a repetition, which follows the cluster."""
        self._gauges["cdcd_kafka_retry_backoff_seconds"].set(retry_backoff_s)

    def slot(
        self, *, active: bool, lost: bool, wal_status: str, retained_bytes: int, lag_bytes: int, safe_bytes: int | None
    ) -> None:
        """The slot as the server describes it now. `safe_bytes` None: no limit."""
        gauges = self._gauges
        gauges["cdcd_slot_active"].set(active)
        gauges["cdcd_slot_lost"].set(lost)
        gauges["cdcd_slot_retained_bytes"].set(retained_bytes)
        gauges["cdcd_slot_lag_bytes"].set(lag_bytes)
        gauges["cdcd_slot_safe_wal_bytes"].set(inf if safe_bytes is None else safe_bytes)
        for status in WAL_STATUSES:
            gauges["cdcd_slot_wal_status"].labels(status).set(status == wal_status)

    def restarted(self, reason: CdcdError) -> None:
        """The stream starts again because of `reason`. Its code is the label: `cdcd explain` explains it."""
        self._counters["cdcd_restarts_total"].labels(reason.code).inc()

    def settings(self, *, refused: bool) -> None:
        """Changed settings were read, and they cannot be used (`refused`), or they can."""
        self._gauges["cdcd_settings_refused"].set(refused)

    def exposition(self, status: Status, now_s: float, now_us: int) -> bytes:
        """Return everything in Prometheus' text format. `now_s` is monotonic, `now_us` counts from 1970 UTC."""
        gauges, depths = self._gauges, status.depths()
        who = status.identity
        gauges["cdcd_info"].labels(who.version, self._build, who.slot, who.publication).set(1)
        if not self._started:
            # Once: a second calculation differs by microseconds, and `changes()` counts every difference.
            self._started = now_us / 1e6 - (now_s - status.started_s)
            gauges["cdcd_start_time_seconds"].set(self._started)
        for state in State:
            gauges["cdcd_state"].labels(state.name.lower()).set(status.state is state)
        gauges["cdcd_streaming"].set(status.is_ready())
        gauges["cdcd_standby"].set(status.state is State.WAITING)
        for service, seconds in status.reachability.unreachable_s(now_s).items():
            gauges["cdcd_unreachable_seconds"].labels(service).set(seconds)
        for stage, seconds in status.stalled_s(now_s).items():
            gauges["cdcd_stalled_seconds"].labels(stage).set(seconds)
        gauges["cdcd_lag_bytes"].set(status.positions.lag_bytes)
        if not status.sees_server:
            for name in _OF_SERVER:  # the next look at the slot sets those of the slot again
                gauges[name].set(nan)
        gauges["cdcd_lag_seconds"].set(status.positions.lag_s(now_us))
        gauges["cdcd_last_commit_timestamp_seconds"].set(status.positions.last_commit_us / 1e6)
        gauges["cdcd_parked_tables"].set(len(status.parked))
        gauges["cdcd_queue_batches"].set(depths.queue_batches)
        gauges["cdcd_queue_bytes"].set(depths.queue_bytes)
        gauges["cdcd_spool_transactions"].set(depths.spool_transactions)
        gauges["cdcd_spool_bytes"].labels("memory").set(depths.spool_memory_bytes)
        gauges["cdcd_spool_bytes"].labels("disk").set(depths.spool_disk_bytes)
        gauges["cdcd_snapshot_tables"].set(depths.snapshot_tables)
        gauges["cdcd_snapshot_bytes"].set(depths.snapshot_bytes)
        gauges["cdcd_snapshots_paused"].set(depths.snapshots_paused)
        return generate_latest(self.registry)

    def _bounded(self, relation: str) -> str:
        relation = visible(relation)
        if relation in self._relations:
            return relation
        if len(self._relations) >= RELATIONS_MAX:
            return "other"
        self._relations.add(relation)
        return relation
