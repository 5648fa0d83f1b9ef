from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from cdcd.errors import ServerLost
from cdcd.metrics import METRICS, RELATIONS_MAX, Metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def filled() -> Metrics:
    metrics = Metrics("1.0", "pure")
    metrics.published(3, {("public.a", "c"): 5, ("public.a", "u"): 2}, 700, 0.004)
    metrics.latency(0.02)
    metrics.received(1000)
    metrics.queued(10)
    metrics.lag(123, 0.5)
    metrics.slot(4096, active=True)
    metrics.streaming(True)
    metrics.restarted(ServerLost("gone"))
    return metrics


def test_every_metric_of_the_table_is_exposed_under_its_name_and_kind() -> None:
    families = {f.name: f for f in text_string_to_metric_families(filled().exposition().decode())}
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
    assert got["cdcd_restarts_total", (("reason", "ServerLost"),)] == 1
    assert got["cdcd_slot_active", ()] == 1
    assert got["cdcd_lag_bytes", ()] == 123


def test_relations_beyond_the_bound_are_counted_together() -> None:
    metrics = Metrics("1.0", "pure")
    for number in range(RELATIONS_MAX + 7):
        metrics.published(1, {(f"public.t{number}", "c"): 1}, 1, 0.1)
    got = samples(metrics)
    relations = [labels for name, labels in got if name == "cdcd_rows_total"]
    assert len(relations) == RELATIONS_MAX + 1
    assert got["cdcd_rows_total", (("op", "c"), ("relation", "other"))] == 7


def test_a_clock_that_runs_ahead_gives_no_negative_latency() -> None:
    metrics = Metrics("1.0", "pure")
    metrics.latency(-3.0)
    assert samples(metrics)["cdcd_event_latency_seconds_sum", ()] == 0


def test_two_daemons_in_one_process_do_not_share_metrics() -> None:
    filled()
    assert samples(Metrics("1.0", "pure"))["cdcd_transactions_total", ()] == 0
