"""`cdcd check` against brokers that are set up wrongly: it finds beforehand what would stop or starve the daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import servers
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.fix_postgres import Database
from support.kafka_cluster import ClusterView
from support.stream import eventually

from cdcd.config.settings import Settings
from cdcd.preflight.check import findings
from cdcd.preflight.findings import Finding, Level
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection

pytestmark = pytest.mark.whole

NOWHERE = "host=127.0.0.1 port=1"
WEEK = "604800000"
OWN = {
    "progress": {"cleanup.policy": "compact", "min.compaction.lag.ms": WEEK},
    "schemas": {"cleanup.policy": "compact"},
    "snapshots": {"cleanup.policy": "compact"},
    "parked": {"retention.ms": "-1"},
}


def about_kafka(bootstrap: str, prefix: str, dsn: str = NOWHERE, **sink: Any) -> list[Finding]:
    """What is bad about Kafka, but that it is slow, as on a busy machine.

    Without a server, only the topics of cdcd's own are looked at.
    """
    given = Settings(source={"dsn": dsn}, sink={"bootstrap_servers": bootstrap, "prefix": prefix, **sink})
    subjects = ("brokers", "replication", "transactions", "sizes", "topics", "sink", "progress", "privileges")
    found = [each for each in findings(given) if each.about in subjects and each.level is not Level.OK]
    return [each for each in found if "s for an answer" not in each.message]


def make(bootstrap: str, *topics: NewTopic) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    for done in client.create_topics(list(topics)).values():
        done.result(20)
    names = {topic.topic for topic in topics}
    eventually(lambda: names <= client.list_topics(timeout=10).topics.keys(), "the topics")


def make_own(bootstrap: str, prefix: str, topic: str, config: Mapping[str, str], replicas: int = 1) -> None:
    """Make cdcd's own topics, one of them with other settings."""
    topics = {name: {**usual, **(config if name == topic else {})} for name, usual in OWN.items()}
    make(bootstrap, *(NewTopic(f"{prefix}.{name}", 1, replicas, config=config) for name, config in topics.items()))


def follow(bootstrap: str, finding: Finding) -> None:
    """Do what the hint says: it has a command of Kafka's own tools."""
    words = finding.hint.partition("kafka-configs.sh ")[2].partition(". Or")[0].split()
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options["--entity-type"] == "topics"
    name, _, value = options["--add-config"].partition("=")
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, options["--entity-name"], incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": bootstrap})
    [done] = client.incremental_alter_configs([resource]).values()
    done.result(20)


# Topics


@pytest.mark.parametrize(
    ("topic", "config", "level", "said"),
    [
        ("progress", {"cleanup.policy": "delete"}, Level.ERROR, "cleanup.policy=delete"),
        ("schemas", {"cleanup.policy": "compact,delete"}, Level.ERROR, "cleanup.policy=compact,delete"),
        ("parked", {"cleanup.policy": "compact"}, Level.ERROR, "would delete parked events"),
        ("parked", {"retention.ms": WEEK}, Level.WARNING, f"retention.ms={WEEK}"),
        ("progress", {"min.compaction.lag.ms": "0"}, Level.WARNING, "min.compaction.lag.ms=0"),
        ("progress", {"message.timestamp.before.max.ms": "1"}, Level.ERROR, "if the clocks differ"),
        ("schemas", {"max.message.bytes": "1000"}, Level.WARNING, "takes records of at most 1000 B"),
    ],
)
def test_a_topic_of_cdcds_own_that_would_lose_or_refuse_records_is_told_until_the_hint_is_followed(
    broker: str, prefix: str, topic: str, config: dict[str, str], level: Level, said: str
) -> None:
    make_own(broker, prefix, topic, config)
    [found] = about_kafka(broker, prefix)
    assert found.level is level
    assert f"{prefix}.{topic}" in found.message
    assert said in found.message
    follow(broker, found)
    eventually(lambda: about_kafka(broker, prefix) == [], "the new setting")


@pytest.mark.parametrize(
    ("config", "level", "said"),
    [
        ({"message.timestamp.after.max.ms": "1"}, Level.ERROR, "if the clocks differ"),
        ({"max.message.bytes": "100000"}, Level.WARNING, "takes records of at most 97.7 KiB"),
        ({"cleanup.policy": "compact"}, Level.ERROR, "refuses the rows of its table, which has no key"),
    ],
)
def test_a_tables_topic_that_would_refuse_rows_is_told_before_and_after_it_is_made(
    database: Database, broker: str, prefix: str, config: dict[str, str], level: Level, said: str
) -> None:
    database.execute("CREATE TABLE t (a int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    before = about_kafka(broker, prefix, database.dsn, topic_config=config)
    assert [each.level for each in before] == ([level] if level is Level.ERROR else [])
    make(broker, NewTopic(f"{prefix}.public.t", 1, 1, config=config))
    [found] = about_kafka(broker, prefix, database.dsn)
    assert found.level is level
    assert said in found.message
    follow(broker, found)
    eventually(lambda: about_kafka(broker, prefix, database.dsn) == [], "the new setting")


# Brokers


def test_brokers_that_advertise_an_address_that_does_not_resolve_are_named_with_it(
    start_kafka: Callable[..., servers.Kafka],
) -> None:
    kafka = start_kafka(settings={"advertised.listeners": "PLAINTEXT://nohost.invalid:9092"})
    [found] = about_kafka(kafka.bootstrap, "p")
    assert found.level is Level.ERROR
    assert "at the addresses that they advertise: nohost.invalid:9092" in found.message
    assert "Failed to resolve" in found.message
    assert "may not see" not in found.message


@pytest.fixture(scope="module")
def uneven() -> Iterator[servers.KafkaCluster]:
    """Start three brokers, of which the third has another setting."""
    with servers.KafkaCluster() as cluster:
        odd = cluster[3]
        odd.settings["transaction.max.timeout.ms"] = "30000"
        odd.restart()
        ClusterView(cluster).wait_until_in_sync()
        yield cluster


def test_the_least_time_that_any_broker_allows_a_transaction_counts(uneven: servers.KafkaCluster) -> None:
    [found] = about_kafka(uneven.bootstrap, "p", replication_factor=3)
    assert (found.level, found.about) == (Level.WARNING, "transactions")
    assert "The brokers allow a transaction 30 s" in found.message
    assert KafkaAdmin(KafkaConnection(uneven.bootstrap, "c")).transaction_timeout_max_ms() == 30_000


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("advertised", ["nohost.invalid:9092", "127.0.0.1:1"])
def test_one_broker_of_three_that_cannot_be_reached_is_named(uneven: servers.KafkaCluster, advertised: str) -> None:
    odd = uneven[2]
    # The other brokers reach it by a listener of their own.
    before = dict(odd.settings)
    odd.settings["advertised.listeners"] = f"PLAINTEXT://{advertised}"
    try:
        odd.restart()
        found = about_kafka(uneven.bootstrap, "p", replication_factor=3)
        [silent] = [each for each in found if each.about == "brokers" and "does not answer" in each.message]
        assert silent.level is Level.ERROR
        assert f"Broker 2 does not answer at the address that it advertises, {advertised} (" in silent.message
        began_s = time.monotonic()
        assert KafkaAdmin(KafkaConnection(uneven.bootstrap, "c")).transaction_timeout_max_ms() == 30_000
        assert time.monotonic() - began_s < 10
    finally:
        odd.settings = before
        odd.restart()
        ClusterView(uneven).wait_until_in_sync()


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("version", ["2.8", "newest"])
def test_replicas_that_are_not_in_sync_or_not_there_are_named_on_each_version(version: str) -> None:
    with servers.KafkaCluster(None if version == "newest" else version) as cluster:

        def told(prefix: str) -> dict[str, Level]:
            found = about_kafka(cluster.bootstrap, prefix, replication_factor=2)
            return {
                each.message.partition(",")[0]: each.level for each in found if f"{prefix}.progress" in each.message
            }

        make_own(cluster.bootstrap, "p", "progress", {"min.insync.replicas": "3"}, 3)
        make_own(cluster.bootstrap, "q", "progress", {"min.insync.replicas": "2"})
        warned = "p.progress takes no records while a broker is away: 3 replicas must be in sync (min.insync.replicas)"
        eventually(lambda: told("p") == {warned: Level.WARNING}, "the warning")  # a broker may learn of a topic late
        # Newer brokers never wait for more replicas than there are.
        refused = "q.progress takes no records: 2 replicas must be in sync (min.insync.replicas)"
        eventually(lambda: told("q") == ({refused: Level.ERROR} if version == "2.8" else {}), "the error")
        cluster[3].kill()
        now = "Kafka takes no records now: partition 0 of the topic p.progress has 2 of 3 replicas in sync"
        eventually(lambda: told("p") == {warned: Level.WARNING, now: Level.ERROR}, "the replica out of sync", 60)


def test_a_user_that_may_write_and_not_read_is_told_what_to_grant(start_kafka: Callable[..., servers.Kafka]) -> None:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{plain} required user_cdcd="secret";',
    }
    kafka = start_kafka(settings=settings, listeners={"SASL": "SASL_PLAINTEXT"}, has_acls=True)
    make_own(kafka.bootstrap, "p", "progress", {})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def grant(*operations: str) -> None:
        for operation in operations:
            binding = AclBinding(
                ResourceType.TOPIC, "p.", ResourcePatternType.PREFIXED, "User:cdcd", "*", AclOperation[operation],
                AclPermissionType.ALLOW,
            )  # fmt: skip
            [done] = admin.create_acls([binding]).values()
            done.result(20)

    def denied() -> list[Finding]:
        sasl = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "cdcd",
            "sasl.password": "secret",
        }
        return [each for each in about_kafka(kafka.address("SASL"), "p", librdkafka=sasl) if each.about == "privileges"]

    grant("WRITE", "DESCRIBE", "CREATE", "DESCRIBE_CONFIGS")
    eventually(lambda: len(denied()) == len(OWN), "the findings")
    assert all(each.level is Level.ERROR for each in denied())
    assert {each.message for each in denied()} == {f"This user may not read the topic p.{name}" for name in OWN}
    assert all("--operation Read --resource-pattern-type prefixed --topic p." in each.hint for each in denied())
    grant("READ")
    eventually(lambda: denied() == [], "the right")


# The client


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"sasl.mechanism": "OAUTHBEARER"}, "does not say how to get a token"),
        ({"oauth_cb": "x"}, "it takes a function"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "c",
                "sasl.oauthbearer.client.secret": "verysecret",
                "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
            },
            "the token endpoint http://127.0.0.1:1/token does not answer",
        ),
    ],
)  # fmt: skip
def test_a_token_that_cannot_be_had_is_told(properties: dict[str, str], said: str) -> None:
    [found] = about_kafka("127.0.0.1:1", "p", librdkafka=properties)
    assert found.level is Level.ERROR
    assert said in found.message
    assert "verysecret" not in found.message + found.hint
