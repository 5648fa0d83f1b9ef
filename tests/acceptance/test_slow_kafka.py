"""Brokers that are far away, or that name themselves as nobody can find them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import servers
from servers.processes import free_port
from support import kafka_requests
from support.daemon import Daemon, cdcd
from support.fix_postgres import Database
from support.proxied_kafka import proxied_kafka
from support.stream import StreamFixture, Writer, eventually, metric

pytestmark = [pytest.mark.slow, pytest.mark.whole]


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("each_way_s", [0.1, 0.45])
def test_commits_over_a_distance_are_late_and_cost_few_streams(
    database: Database, tmp_path: Path, each_way_s: float
) -> None:
    with (
        proxied_kafka() as (kafka, proxy),
        StreamFixture(database.dsn, kafka.bootstrap, "far", tmp_path) as stream,
    ):
        stream.sql(Writer.TABLE)
        proxy.delay(min(each_way_s, 0.1))  # from farther away, the stream that starts again shows the same
        daemon = stream.daemon(sink={"bootstrap_servers": f"127.0.0.1:{proxy.port}"}).start()
        daemon.wait_for_log("going on", 120)
        proxy.delay(each_way_s)
        with Writer(stream.dsn, pause_s=0.05):
            time.sleep(10)
        daemon.wait_until_confirmed(timeout_s=180)  # the stream that starts again asks for much, 0.9 s each time
        assert daemon.log.read_text().count("starting again") <= 3
        if each_way_s > 0.4:
            assert metric(daemon, "cdcd_kafka_retry_backoff_seconds") > 2 * each_way_s
        proxy.delay(0)
        assert daemon.stop() == 0
        stream.check(("public", "t"))


@pytest.mark.parametrize(("quota", "value"), [("request_percentage", 2.0), ("producer_byte_rate", 2_000.0)])
def test_a_quota_makes_the_stream_slower_and_ends_none(
    database: Database, start_kafka: Callable[..., servers.Kafka], tmp_path: Path, quota: str, value: float
) -> None:
    kafka = start_kafka()
    with StreamFixture(database.dsn, kafka.bootstrap, "throttled", tmp_path) as stream:
        stream.sql(Writer.TABLE)
        kafka_requests.set_quota(kafka.bootstrap, quota, value)
        daemon = stream.daemon().start()
        daemon.wait_for_log("going on", 60)
        with Writer(stream.dsn, pause_s=0.05):
            time.sleep(5)
            # The first throttled requests may be those that make the topic, which are not part of a commit.
            eventually(lambda: mean_commit_s(daemon) > 0.1, "quota in force", 60)
        daemon.wait_until_confirmed(timeout_s=90)
        assert "starting again" not in daemon.log.read_text()
        assert daemon.stop() == 0
        kafka_requests.set_quota(kafka.bootstrap, quota, None)
        stream.check(("public", "t"))


def mean_commit_s(daemon: Daemon) -> float:
    seconds, commits = (metric(daemon, f"cdcd_kafka_commit_seconds_{each}") for each in ("sum", "count"))
    return seconds / commits if commits else 0.0


def test_a_broker_whose_name_nobody_knows_is_the_only_thing_that_check_says_of_kafka(
    database: Database, start_kafka: Callable[..., servers.Kafka], tmp_path: Path
) -> None:
    port = free_port()
    kafka = start_kafka(port=port, settings={"advertised.listeners": f"PLAINTEXT://kafka.invalid:{port}"})
    with StreamFixture(database.dsn, kafka.bootstrap, "nowhere", tmp_path) as stream:
        stream.sql(Writer.TABLE)
        daemon = stream.daemon()
        said = cdcd(daemon, "check", code=1)
        assert "kafka.invalid" in said, said
        assert "may not see" not in said, said
        daemon.start()
        eventually(lambda: "kafka.invalid" in daemon.log.read_text(), "the name in the log", 60)
        assert daemon.running()
        assert daemon.stop() == 0
