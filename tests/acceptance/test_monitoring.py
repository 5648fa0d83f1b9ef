"""Every metric exists and moves, and the health check fails if work waits and nothing moves."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import servers
from prometheus_client.parser import text_string_to_metric_families
from support.daemon import Daemon, cdcd
from support.fix_postgres import Database
from support.registry import Registry
from support.stream import StreamFixture, Writer, eventually, metric, port_of

from cdcd.daemon.service_watch import ASK_EVERY_S
from cdcd.monitoring.metrics import METRICS
from cdcd.monitoring.reachability import LOST_AFTER_S

STALLED_AFTER_S = 3.0
WITHIN_S = 10.0
MONITORING = {"stalled_after_s": STALLED_AFTER_S}


def ask(daemon: Daemon, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port_of(daemon)}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def wait_for(daemon: Daemon, path: str, code: int, words: str, timeout_s: float = 20.0) -> None:
    def there() -> bool:
        answer = ask(daemon, path)
        return answer[0] == code and words in answer[1]

    eventually(there, f"{code} {words!r} at {path}", timeout_s)


def test_every_metric_is_exposed_and_the_slot_and_its_wal_are_among_them(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(source={"streaming": "on"}).start()
    daemon.wait_for_log("going on")
    with Writer(stream.dsn, rows=5):
        daemon.wait_for_log("published")
        pid = eventually(stream.walsender, "walsender")
        stream.sql(f"SELECT pg_terminate_backend({pid})")
        daemon.wait_for_log("starting again")
        eventually(stream.walsender, "walsender")
        stream.sql("ALTER TABLE t ADD COLUMN w int", "INSERT INTO t VALUES (-1, 2, 3)")
        daemon.wait_until_confirmed()
    daemon.wait_until_confirmed()
    eventually(lambda: "cdcd_slot_active 1.0" in ask(daemon, "/metrics")[1], "a look at the slot", 10)
    code, text = ask(daemon, "/metrics")
    assert code == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    without = [metric.name for metric in METRICS if not families[metric.name.removesuffix("_total")].samples]
    assert without == ["cdcd_parked_rows_total"], "nothing was parked"

    def value(name: str, **labels: str) -> float:
        family = families[name.removesuffix("_total").removesuffix("_count")]
        return sum(s.value for s in family.samples if s.name == name and labels.items() <= s.labels.items())

    assert value("cdcd_streaming") == value("cdcd_state", state="streaming") == 1
    assert value("cdcd_rows_total", relation="public.t", op="c") > 10
    assert value("cdcd_kafka_transaction_seconds_count") == value("cdcd_kafka_commits_total") > 0
    assert value("cdcd_restarts_total", reason="postgres-interrupted") == 1
    assert value("cdcd_schema_versions", relation="public.t") == 2
    assert value("cdcd_slot_retained_bytes") > 0
    assert value("cdcd_slot_wal_status", status="reserved") == 1
    assert value("cdcd_slot_lost") == 0
    assert value("cdcd_last_commit_timestamp_seconds") > time.time() - 60
    assert all(metric.help in text for metric in METRICS)
    assert daemon.stop() == 0


@pytest.mark.parametrize("status_interval_s", [1, 20])
def test_an_idle_daemon_is_healthy_for_as_long_as_nothing_happens(
    stream: StreamFixture, status_interval_s: float
) -> None:
    stream.sql(Writer.TABLE)
    source = {"status_interval_s": status_interval_s}
    daemon = stream.daemon(source=source, monitoring={"stalled_after_s": 1}).start()
    wait_for(daemon, "/readyz", 200, "streaming")
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert ask(daemon, "/healthz") == (200, "alive: streaming\n")
        time.sleep(0.1)
    assert daemon.stop() == 0


def test_health_fails_while_kafka_takes_nothing_and_comes_back(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka
) -> None:
    stream = on_restartable_kafka
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(monitoring=MONITORING).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    restartable_kafka.pause()
    try:
        began = time.monotonic()
        stream.sql("INSERT INTO t VALUES (2)")
        wait_for(daemon, "/healthz", 503, "stalled: nothing moves at the sink")
        assert time.monotonic() - began >= STALLED_AFTER_S - 0.5
        assert ask(daemon, "/")[0] == 200
        assert "stalled: nothing moves at the sink" in ask(daemon, "/")[1]
        lag_s = float(next(x for x in ask(daemon, "/metrics")[1].splitlines() if x.startswith("cdcd_lag_s")).split()[1])
        assert lag_s >= STALLED_AFTER_S - 0.5
    finally:
        restartable_kafka.resume()
    wait_for(daemon, "/healthz", 200, "alive")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("how", ["pause", "kill"])
def test_a_kafka_that_is_gone_is_told_by_name_within_ten_seconds_though_nothing_waits_for_it(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka, how: str
) -> None:
    stream = on_restartable_kafka
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(source={"status_interval_s": 30}).start()
    daemon.wait_for_log("going on")
    wait_for(daemon, "/readyz", 200, "streaming")
    daemon.wait_until_confirmed()
    getattr(restartable_kafka, how)()
    try:
        wait_for(daemon, "/readyz", 503, "; Kafka lost for ", WITHIN_S)
        assert ask(daemon, "/healthz")[0] == ask(daemon, "/availablez")[0] == 200, "a restart would not help"
        assert "Kafka lost for " in ask(daemon, "/")[1]
        assert "lost Kafka: Kafka (127.0.0.1" in ask(daemon, "/")[1], "among the last errors"
        said = cdcd(daemon, "status", "--url", f"http://127.0.0.1:{port_of(daemon)}/", code=1)
        assert re.search(r"Kafka lost for .*: Kafka \(127\.0\.0\.1:\d+\) did not answer in time", said)
        assert metric(daemon, "cdcd_streaming") == 0
        assert metric(daemon, "cdcd_unreachable_seconds") >= LOST_AFTER_S
        daemon.wait_for_log("lost Kafka: Kafka (127.0.0.1")
    finally:
        restartable_kafka.resume() if how == "pause" else restartable_kafka.start()
    wait_for(daemon, "/readyz", 200, "streaming\n")
    daemon.wait_for_log("Kafka is back service=kafka seconds=")
    assert daemon.log.read_text().count("lost Kafka") == daemon.log.read_text().count("is back") == 1
    assert metric(daemon, "cdcd_streaming") == 1
    assert metric(daemon, "cdcd_unreachable_seconds") == 0
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0


def test_a_postgresql_that_is_gone_is_told_by_name_within_ten_seconds(
    on_restartable_postgres: StreamFixture, restartable_postgres: servers.PostgreSQL
) -> None:
    stream = on_restartable_postgres
    stream.sql(Writer.TABLE)
    daemon = stream.daemon().start()
    wait_for(daemon, "/readyz", 200, "streaming")
    restartable_postgres.stop()
    try:
        wait_for(daemon, "/readyz", 503, "; PostgreSQL lost for ", WITHIN_S)
        assert "PostgreSQL lost for " in ask(daemon, "/")[1]
        daemon.wait_for_log("lost PostgreSQL: ")
    finally:
        restartable_postgres.start()
    wait_for(daemon, "/readyz", 200, "streaming\n", 40)
    daemon.wait_for_log("PostgreSQL is back service=postgresql seconds=")
    assert daemon.stop() == 0


def test_a_postgresql_that_is_silent_is_told_by_name_within_ten_seconds(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(source={"application_name": stream.slot}).start()
    wait_for(daemon, "/readyz", 200, "streaming")
    eventually(lambda: "cdcd_slot_active 1.0" in ask(daemon, "/metrics")[1], "a look at the slot", 10)
    pids = [pid for (pid,) in stream.sql(f"SELECT pid FROM pg_stat_activity WHERE application_name = '{stream.slot}'")]
    assert len(pids) >= 3, "walsender, session and slot monitor"
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(daemon, "/readyz", 503, "streaming; PostgreSQL lost for ", WITHIN_S)
        daemon.wait_for_log("lost PostgreSQL: PostgreSQL does not answer")
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    wait_for(daemon, "/readyz", 200, "streaming\n", 40)
    assert daemon.stop() == 0


@pytest.mark.whole
def test_a_topic_that_lacks_replicas_in_sync_is_named_and_waited_for(database: Database, tmp_path: Path) -> None:
    with (
        servers.KafkaCluster(brokers=2, controllers=1) as cluster,
        StreamFixture(database.dsn, cluster[1].bootstrap, "replicas", tmp_path) as stream,
    ):
        second = cluster[2]
        stream.sql(Writer.TABLE)
        sink = {"replication_factor": 2, "topic_config": {"min.insync.replicas": "2"}}
        daemon = stream.daemon(sink=sink).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        second.kill()
        stream.sql("INSERT INTO t VALUES (2)")
        wait_for(daemon, "/readyz", 503, "Kafka lost for ", 30)
        said = r"lost Kafka: .* takes no records: partition \d of the topic replicas\.\S+ has 1 of 2 replicas in sync"
        assert re.search(said, daemon.log.read_text())
        assert "NOT_ENOUGH_REPLICAS" in ask(daemon, "/")[1]
        second.start()
        wait_for(daemon, "/readyz", 200, "streaming\n", 60)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


def test_a_registry_that_is_gone_is_told_by_name_but_changes_flow(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    with Registry() as registry:
        daemon = stream.daemon(avro={"registry_url": registry.url}).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
    wait_for(daemon, "/readyz", 200, "streaming; the schema registry lost for ", 15)
    daemon.wait_for_log("lost the schema registry: the schema registry at http://127.0.0.1")
    stream.sql("INSERT INTO t VALUES (2)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("streaming", ["off", "on"])
def test_the_lag_of_a_large_transaction_grows_from_its_commit_until_kafka_has_it(
    stream: StreamFixture, streaming: str
) -> None:
    stream.sql("CREATE TABLE large (id int PRIMARY KEY, v text)")
    dsn = f"{stream.dsn} options='-c logical_decoding_work_mem=1MB'"
    daemon = stream.daemon(source={"dsn": dsn, "streaming": streaming}).start()
    daemon.wait_for_log("going on")
    in_doubt_s = ASK_EVERY_S + 1.0  # until the slot monitor has seen the WAL
    walsender = eventually(stream.walsender, "walsender")
    os.kill(walsender, signal.SIGSTOP)  # so that it takes long enough
    try:
        stream.sql("INSERT INTO large SELECT n, repeat('x', 100) FROM generate_series(1, 300000) n")
        committed, asked = time.monotonic(), 0.0
        samples: list[tuple[float, float]] = []
        while metric(daemon, "cdcd_rows_total") < 300_000:
            asked = time.monotonic() - committed
            samples.append((asked, metric(daemon, "cdcd_lag_seconds")))
            if asked > in_doubt_s + 1.0:
                os.kill(walsender, signal.SIGCONT)
            assert time.monotonic() < committed + 120
    finally:
        os.kill(walsender, signal.SIGCONT)
    wrong = [(asked, lag_s) for asked, lag_s in samples[:-1] if asked > in_doubt_s and lag_s < asked - in_doubt_s]
    assert not wrong, samples
    assert asked > in_doubt_s
    eventually(lambda: metric(daemon, "cdcd_lag_seconds") == 0, "an end of the lag")
    assert daemon.stop() == 0


def test_health_fails_while_the_walsender_is_silent(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(monitoring=MONITORING).start()
    daemon.wait_for_log("going on")
    wait_for(daemon, "/readyz", 200, "streaming")
    pid = eventually(stream.walsender, "walsender")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(daemon, "/healthz", 503, "stalled: nothing moves at the server")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(daemon, "/healthz", 200, "alive")
    assert daemon.stop() == 0


def test_health_and_readiness_fail_while_the_stream_cannot_be_restarted(
    on_restartable_postgres: StreamFixture, restartable_postgres: servers.PostgreSQL
) -> None:
    stream = on_restartable_postgres
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(monitoring=MONITORING).start()
    wait_for(daemon, "/readyz", 200, "streaming")
    restartable_postgres.stop()
    try:
        wait_for(daemon, "/readyz", 503, "restarting")
        assert ask(daemon, "/availablez")[0] == 503
        wait_for(daemon, "/healthz", 503, "stalled: nothing moves at the stream")
    finally:
        restartable_postgres.start()
    wait_for(daemon, "/healthz", 200, "alive", 40)
    wait_for(daemon, "/readyz", 200, "streaming")
    assert daemon.stop() == 0


def test_a_hot_standby_reports_itself_as_such(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    first = stream.daemon(monitoring=MONITORING).start()
    wait_for(first, "/readyz", 200, "streaming")
    second = stream.daemon(monitoring=MONITORING).start()
    wait_for(second, "/availablez", 200, "waiting for the slot, which another daemon uses")
    assert ask(second, "/readyz")[0] == 503
    time.sleep(STALLED_AFTER_S + 0.5)
    assert ask(second, "/healthz")[0] == 200
    assert "cdcd_standby 1.0" in ask(second, "/metrics")[1]
    assert "cdcd_streaming 0.0" in ask(second, "/metrics")[1]
    assert first.stop() == 0
    wait_for(second, "/readyz", 200, "streaming")
    assert second.stop() == 0
