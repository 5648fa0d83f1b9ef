"""Three brokers with three replicas, of which two must be in sync: starts in every state of the cluster, upgrades."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from servers.jars import KAFKA, pinned_kafka
from support import topics
from support.daemon import cdcd
from support.fix_postgres import Database
from support.kafka_cluster import TRANSACTION_STATE, ClusterView, ProxiedCluster
from support.stream import StreamFixture, Writer, eventually

pytestmark = pytest.mark.whole

SAFE: dict[str, Any] = {"replication_factor": 3, "topic_config": {"min.insync.replicas": "2"}}
OWN = ("progress", "snapshots", "schemas")
COMPACTED = {"cleanup.policy": "compact"}
TABLE = ("public", "t")
UPGRADED = {"metadata.version": 30, "transaction.version": 2}
"""The levels of the newest pinned Kafka."""

_numbers = itertools.count(1)


@pytest.fixture
def stream(three_brokers: ProxiedCluster, database: Database, tmp_path: Path) -> Iterator[StreamFixture]:
    """Give a stream to new topics of the three brokers."""
    name = f"three-{next(_numbers)}"
    with StreamFixture(database.dsn, three_brokers.cluster.bootstrap, name, tmp_path) as stream:
        stream.sql(Writer.TABLE)
        yield stream
        three_brokers.wait_until_in_sync()


def make(kafka: ClusterView, *topics: NewTopic) -> None:
    """Make topics, as somebody else does."""
    for done in kafka.admin.create_topics(list(topics)).values():
        done.result(20)
    eventually(lambda: {topic.topic for topic in topics} <= kafka.admin.list_topics(timeout=10).topics.keys(), "topics")


def replicas(kafka: ClusterView, prefix: str) -> dict[str, int]:
    """How many replicas each topic has, without the prefix."""
    found = kafka.admin.list_topics(timeout=10).topics
    return {
        name.removeprefix(f"{prefix}."): len(topic.partitions[0].replicas)
        for name, topic in found.items()
        if name.startswith(f"{prefix}.")
    }


def publish_one(stream: StreamFixture, number: int = 1, **settings: Any) -> None:
    """Let a daemon start, publish a row, and end."""
    with stream.daemon(sink=SAFE | settings).start() as daemon:
        daemon.wait_for_log("going on", 60)
        stream.sql(f"INSERT INTO t VALUES ({number})")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


# Starts


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("there", [("progress",), ("schemas", "snapshots"), ("progress", "snapshots", "parked")])
def test_a_start_makes_those_of_its_own_topics_that_are_missing(
    stream: StreamFixture, three_brokers: ProxiedCluster, there: tuple[str, ...]
) -> None:
    forever = {"cleanup.policy": "delete", "retention.ms": "-1"}
    configs = {name: forever if name == "parked" else COMPACTED for name in there}
    make(three_brokers, *(NewTopic(f"{stream.prefix}.{name}", 1, 3, config=configs[name]) for name in there))
    publish_one(stream)
    publish_one(stream, 2)
    assert len(stream.check(TABLE)) == 2
    found = replicas(three_brokers, stream.prefix)
    assert {*OWN, "public.t"} <= found.keys()
    assert set(found.values()) == {3}


def test_the_clusters_own_number_of_replicas_may_be_asked_for(
    stream: StreamFixture, three_brokers: ProxiedCluster
) -> None:
    publish_one(stream, replication_factor=-1)
    assert set(replicas(three_brokers, stream.prefix).values()) == {3}
    assert "error" not in cdcd(stream.daemon(sink=SAFE | {"replication_factor": -1}), "check")


def test_a_daemon_that_is_killed_at_any_moment_of_its_first_start_starts_again(stream: StreamFixture) -> None:
    stream.sql("INSERT INTO t SELECT generate_series(1, 100)")
    snapshot = {"mode": "initial"}
    daemons = [stream.daemon(sink=SAFE, snapshot=snapshot) for _ in range(13)]
    with Writer(stream.dsn, first=1000):
        for moment, daemon in enumerate(daemons[:-1]):
            daemon.start()
            time.sleep(0.4 + moment * 0.2)
            daemon.kill()
        daemon = daemons[-1].start()
        daemon.wait_for_log("going on", 180)
        # On a fast machine, one that was killed had completed it.
        eventually(lambda: any("the snapshot is complete" in each.log.read_text() for each in daemons), "snapshot", 60)
        time.sleep(1)
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.events()
    topics.check_exactly_once(events)
    assert topics.fold(events, snapshot=True) == stream.content(*TABLE)


def test_two_daemons_and_three_brokers_lose_one_of_each_at_once(
    stream: StreamFixture, three_brokers: ProxiedCluster
) -> None:
    with stream.daemon(sink=SAFE).start() as first:
        first.wait_for_log("going on", 60)
        with stream.daemon(sink=SAFE).start() as second, Writer(stream.dsn):
            second.wait_for_log("another daemon")
            for leader, other in ((first, second), (second, first)) * 2:
                broker = three_brokers.cluster[three_brokers.coordinator(f"{stream.prefix}-{stream.slot}")]
                leader.kill()
                broker.kill()
                before = other.log.read_text().count("going on")
                eventually(lambda: other.log.read_text().count("going on") > before, "take-over", 60)  # noqa: B023
                broker.start()
                three_brokers.wait_until_in_sync()
                leader.start()
                time.sleep(1)
        streaming = next(each for each in (first, second) if each.running())
        streaming.wait_until_confirmed()
    stream.check(TABLE)


def test_a_rolling_restart_in_the_middle_of_take_overs_loses_nothing(
    stream: StreamFixture, three_brokers: ProxiedCluster
) -> None:
    publish_one(stream, -1)
    rolled = threading.Event()

    def roll() -> None:
        for broker in three_brokers.cluster.brokers:
            broker.restart()
            three_brokers.wait_until_in_sync()
        rolled.set()

    roller = threading.Thread(target=roll)
    with Writer(stream.dsn):
        roller.start()
        starts = 0
        while not rolled.is_set():
            daemon = stream.daemon(sink=SAFE).start()
            time.sleep(0.8 + (starts % 5) * 0.5)
            daemon.kill()
            starts += 1
        roller.join()
        daemon = stream.daemon(sink=SAFE).start()
        daemon.wait_for_log("going on", 60)
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert starts > 5
    stream.check(TABLE)


def test_a_daemon_that_starts_while_no_majority_runs_waits_and_goes_on(
    stream: StreamFixture, three_brokers: ProxiedCluster
) -> None:
    publish_one(stream)
    brokers = three_brokers.cluster.brokers
    three_brokers.cluster.each(servers.Kafka.kill, brokers[:2])
    with stream.daemon(sink=SAFE).start() as daemon:
        daemon.wait_for_log("holding the slot")
        stream.sql("INSERT INTO t VALUES (2)")
        time.sleep(5)
        three_brokers.cluster.each(servers.Kafka.start, brokers[:2])
        daemon.wait_for_log("going on", 60)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    assert len(stream.check(TABLE)) == 2


def test_a_user_who_may_use_only_some_of_the_own_topics_is_told_which_right_is_missing(
    stream: StreamFixture, three_brokers: ProxiedCluster
) -> None:
    address = ",".join(broker.address("SASL") for broker in three_brokers.cluster.brokers)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "cdcd",
        "sasl.password": "secret",
    }
    settings = {"sink": SAFE | {"bootstrap_servers": address, "librdkafka": properties}}
    for transactional_id in (f"{stream.prefix}-{stream.slot}", f"{stream.prefix}-{stream.slot}.2"):
        allow(three_brokers, ResourceType.TRANSACTIONAL_ID, transactional_id, "Write", "Describe")
    every = ("Create", "Write", "Describe", "DescribeConfigs", "Read")
    allow(three_brokers, ResourceType.TOPIC, f"{stream.prefix}.public.t", *every)
    for own in (*OWN, "parked"):
        last = stream.run(timeout_s=90, **settings).stderr.splitlines()[-1]
        assert " ERROR cdcd: " in last
        assert f"{stream.prefix}." in last
        assert "Let the user" in last
        allow(three_brokers, ResourceType.TOPIC, f"{stream.prefix}.{own}", *every)
    with stream.daemon(**settings).start() as daemon:
        daemon.wait_for_log("going on", 60)
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    assert len(stream.check(TABLE)) == 1
    assert "error" not in cdcd(stream.daemon(**settings), "check")


def allow(kafka: ClusterView, kind: ResourceType, name: str, *operations: str) -> None:
    """Allow the user cdcd these operations."""
    bindings = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:cdcd", "*",
            AclOperation["DESCRIBE_CONFIGS" if operation == "DescribeConfigs" else operation.upper()],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]  # fmt: skip
    for done in kafka.admin.create_acls(bindings).values():
        done.result(20)


# A stream that runs


def leads_elsewhere(kafka: ProxiedCluster, earlier: int, topic: str) -> bool:
    """Whether the other brokers know of other leaders than the earlier one."""
    try:
        return earlier not in kafka.leaders_by_another(earlier, topic).values()
    except KafkaException:  # it is busy with an election
        return False


def test_a_leader_that_is_cut_off_from_the_other_brokers_takes_no_record_that_is_lost(
    stream: StreamFixture, three_brokers: ProxiedCluster
) -> None:
    # Clients reach the old leader: it takes their records, and can never say that they are replicated.
    publish_one(stream, -1)
    with stream.daemon(sink=SAFE).start() as daemon:
        daemon.wait_for_log("going on", 60)
        with Writer(stream.dsn):
            for topic in (f"{stream.prefix}.progress", TRANSACTION_STATE):
                leader = next(iter(three_brokers.leaders(topic).values()))
                others = [each.node_id for each in three_brokers.cluster.brokers if each.node_id != leader]
                three_brokers.part(leader, others, reset=False)
                try:
                    eventually(lambda: leads_elsewhere(three_brokers, leader, topic), "new leader", 60)  # noqa: B023
                    time.sleep(3)
                finally:
                    three_brokers.join()
                three_brokers.wait_until_in_sync()
        daemon.wait_until_confirmed(timeout_s=90)
        assert daemon.stop() == 0
    stream.check(TABLE)


def test_moved_leadership_ends_no_stream(stream: StreamFixture, three_brokers: ProxiedCluster) -> None:
    publish_one(stream, -1)
    led = [TRANSACTION_STATE, *(f"{stream.prefix}.{name}" for name in (*OWN, "public.t"))]
    with stream.daemon(sink=SAFE).start() as daemon:
        daemon.wait_for_log("going on", 60)
        with Writer(stream.dsn):
            for _ in range(6):
                time.sleep(1)
                three_brokers.move_leadership(led)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    stream.check(TABLE)


# Versions


def test_a_rolling_upgrade_of_the_brokers_in_the_middle_of_a_stream_is_exactly_once(
    database: Database, tmp_path: Path
) -> None:
    with servers.KafkaCluster("3.9") as cluster, contextlib.ExitStack() as stack:
        view = ClusterView(cluster)
        stream = stack.enter_context(StreamFixture(database.dsn, cluster.bootstrap, "upgrade", tmp_path))
        stream.sql(Writer.TABLE)
        daemon = stack.enter_context(stream.daemon(sink=SAFE)).start()
        daemon.wait_for_log("going on", 60)
        with Writer(stream.dsn, pause_s=0.02):
            for broker in cluster.brokers:
                broker.stop()
                broker.version = pinned_kafka(KAFKA)
                broker.start()
                view.wait_until_in_sync()
            view.set_features(UPGRADED)  # the finalization: from now on, transactions are those of KIP-890
            time.sleep(3)
            daemon.kill()
            daemon = stack.enter_context(stream.daemon(sink=SAFE)).start()
            daemon.wait_for_log("going on", 60)
            time.sleep(2)
        daemon.wait_until_confirmed(timeout_s=90)
        assert daemon.stop() == 0
        stream.check(TABLE)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("level", [0, 2])
def test_every_row_comes_once_with_and_without_transactions_of_kip_890(
    database: Database, tmp_path: Path, level: int
) -> None:
    version = KAFKA  # the newest: earlier ones do not have them
    features = {"transaction.version": level}
    with (
        servers.Kafka(version, features=features) as kafka,
        StreamFixture(database.dsn, kafka.bootstrap, f"level{level}", tmp_path) as stream,
    ):
        stream.sql(Writer.TABLE)
        daemon = stream.daemon().start()
        daemon.wait_for_log("going on", 60)
        daemon.kill()
        with Writer(stream.dsn):
            for moment in range(6):
                daemon = stream.daemon().start()
                daemon.wait_for_log("going on", 60)
                time.sleep(0.5 + moment * 0.3)
                if moment % 2:
                    kafka.kill()
                daemon.kill()
                kafka.start()
            daemon = stream.daemon().start()
            daemon.wait_for_log("going on", 60)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        stream.check(TABLE)
