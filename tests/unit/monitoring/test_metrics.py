from __future__ import annotations

from math import inf, isnan
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from cdcd.errors import AccessDenied, PostgresUnavailable
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import METRICS, RELATIONS_MAX, Metrics
from cdcd.monitoring.reachability import POSTGRESQL, REGISTRY, Reachability
from cdcd.monitoring.stall_detection import SINK
from cdcd.monitoring.status import QueueDepths, Status


def status() -> Status:
    it = Status(Identity("1.0", "slot", "pub"), 1000.0)
    it.begin_stream(1000.0)
    it.positions.server_lsn, it.positions.durable_lsn = 0x5000, 0x4000
    it.positions.oldest_pending_us = 7_000_000
    it.depths = lambda: QueueDepths(3, 700, 2, 5000, 9000)
    it.stages.sink.note(1001.0, True, 1)
    it.reachability = Reachability((POSTGRESQL, REGISTRY))
    it.reachability.failed(REGISTRY, 996.0, PostgresUnavailable("gone", code="postgres-interrupted"))
    it.reachability.judge(1003.0)
    return it


def exposition(metrics: Metrics) -> str:
    return metrics.exposition(status(), 1003.0, 9_500_000).decode()


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(exposition(metrics))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def slot(metrics: Metrics, **more: Any) -> None:
    given: dict[str, Any] = {"active": True, "lost": False, "wal_status": "extended", "retained_bytes": 4096}
    metrics.slot(**{**given, "lag_bytes": 100, "safe_bytes": 50, **more})


def filled() -> Metrics:
    metrics = Metrics("pure")
    metrics.bounds(1, 2, 3)
    metrics.published(3, {("public.a", "c"): 5, ("public.a", "u"): 2}, 700, 0.004)
    metrics.latency(0.02)
    metrics.received(1000)
    metrics.transaction(0.3)
    metrics.schema("public.a", b"1")
    slot(metrics)
    metrics.parked({"public.b": 9})
    metrics.restarted(PostgresUnavailable("gone", code="postgres-interrupted"))
    return metrics


def test_every_metric_of_the_table_is_exposed_under_its_name_and_kind() -> None:
    families = {f.name: f for f in text_string_to_metric_families(exposition(filled()))}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert family.samples


def test_names_follow_prometheus() -> None:
    for metric in METRICS:
        assert metric.name.startswith("cdcd_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert metric.help.endswith(".")


def test_a_published_transaction_counts_rows_by_relation_and_op() -> None:
    got = samples(filled())
    assert got["cdcd_rows_total", (("op", "c"), ("relation", "public.a"))] == 5
    assert got["cdcd_rows_total", (("op", "u"), ("relation", "public.a"))] == 2
    assert got["cdcd_transactions_total", ()] == 3
    assert got["cdcd_kafka_commits_total", ()] == 1
    assert got["cdcd_published_bytes_total", ()] == 700
    assert got["cdcd_kafka_commit_seconds_bucket", (("le", "0.005"),)] == 1
    assert got["cdcd_restarts_total", (("reason", "postgres-interrupted"),)] == 1
    assert got["cdcd_slot_active", ()] == 1
    assert got["cdcd_kafka_transaction_seconds_sum", ()] == 0.3


def test_what_is_true_at_a_moment_is_read_from_the_status_when_prometheus_asks() -> None:
    got = samples(filled())
    assert got["cdcd_lag_bytes", ()] == 0x1000
    assert got["cdcd_lag_seconds", ()] == 2.5
    assert got["cdcd_start_time_seconds", ()] == 6.5
    assert [got["cdcd_state", (("state", name),)] for name in ("streaming", "waiting", "failed")] == [1, 0, 0]
    assert got["cdcd_streaming", ()] == 1
    assert got["cdcd_stalled_seconds", (("stage", SINK),)] == 2
    assert got["cdcd_unreachable_seconds", (("service", REGISTRY),)] == 7
    assert got["cdcd_unreachable_seconds", (("service", POSTGRESQL),)] == 0
    assert got["cdcd_queue_bytes", ()] == 700
    assert got["cdcd_spool_bytes", (("where", "disk"),)] == 9000


def test_nothing_that_alarms_is_told_before_it_is_known_nor_again_and_again() -> None:
    metrics, it = Metrics("pure"), status()
    starts = set()
    for now_us in (10_000_000, 11_000_007, 11_999_998):
        metrics.exposition(it, 1003.0 + (now_us - 10_000_003) / 1e6, now_us)
        starts.add(metrics.registry.get_sample_value("cdcd_start_time_seconds"))
    assert len(starts) == 1, "changes() counts a difference of a microsecond"
    assert metrics.registry.get_sample_value("cdcd_slot_safe_wal_bytes") == inf, "nobody has seen the slot"


def test_the_slot_is_told_in_full() -> None:
    metrics = filled()
    got = samples(metrics)
    assert got["cdcd_slot_wal_status", (("status", "extended"),)] == 1
    assert got["cdcd_slot_wal_status", (("status", "lost"),)] == 0
    assert got["cdcd_slot_safe_wal_bytes", ()] == 50
    slot(metrics, safe_bytes=None, lost=True)
    got = samples(metrics)
    assert got["cdcd_slot_safe_wal_bytes", ()] == float("inf")
    assert got["cdcd_slot_lost", ()] == 1


def test_a_schema_version_counts_once_however_often_it_is_announced() -> None:
    metrics = filled()
    for header in (b"1", b"2", b"1"):
        metrics.schema("public.a", header)
    assert samples(metrics)["cdcd_schema_versions", (("relation", "public.a"),)] == 2


def test_relations_beyond_the_bound_are_counted_together() -> None:
    metrics = Metrics("pure")
    for number in range(RELATIONS_MAX + 7):
        metrics.published(1, {(f"public.t{number}", "c"): 1}, 1, 0.1)
    got = samples(metrics)
    relations = [labels for name, labels in got if name == "cdcd_rows_total"]
    assert len(relations) == RELATIONS_MAX + 1
    assert got["cdcd_rows_total", (("op", "c"), ("relation", "other"))] == 7


def test_a_clock_that_runs_ahead_gives_no_negative_latency() -> None:
    metrics = Metrics("pure")
    metrics.latency(-3.0)
    assert samples(metrics)["cdcd_event_latency_seconds_sum", ()] == 0


def test_two_daemons_in_one_process_do_not_share_metrics() -> None:
    filled()
    assert samples(Metrics("pure"))["cdcd_transactions_total", ()] == 0


def test_what_only_postgresql_tells_is_unknown_while_it_is_lost() -> None:
    metrics, it = Metrics("pure"), status()
    slot(metrics)
    it.reachability.failed(POSTGRESQL, 996.0, AccessDenied("refused", code="login-refused"))
    it.reachability.judge(1003.0)
    metrics.exposition(it, 1003.0, 9_500_000)
    told = metrics.registry.get_sample_value
    for name in ("lag_bytes", "slot_active", "slot_retained_bytes", "slot_lag_bytes", "slot_safe_wal_bytes"):
        value = told(f"cdcd_{name}")
        assert value is not None
        assert isnan(value), name
    assert told("cdcd_unreachable_seconds", {"service": POSTGRESQL}) == 7
    it.reachability.answered(POSTGRESQL)
    it.reachability.judge(1004.0)
    slot(metrics)
    metrics.exposition(it, 1004.0, 9_500_000)
    assert told("cdcd_slot_active") == 1
    assert told("cdcd_lag_bytes") == 0x1000
