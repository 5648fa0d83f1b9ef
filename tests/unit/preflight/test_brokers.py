from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cdcd.errors import SettingsError
from cdcd.preflight import brokers as judge_of_brokers
from cdcd.preflight.findings import Finding, Level
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.broker_configs import BrokerConfigs
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.cluster_facts import ClusterFacts, TopicSize
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs

ORDERS = "cdcd.public.orders"
CONFIG = {
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "3",
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
}
BROKERS = ClusterFacts(
    brokers=3,
    topics={"__transaction_state": TopicSize(50, 3), ORDERS: TopicSize(4, 3)},
    broker_configs=BrokerConfigs({1: CONFIG, 2: CONFIG, 3: CONFIG}, {}),
    denied={},
)


def of_brokers(**changed: str) -> BrokerConfigs:
    """Give the answers of three brokers; the second one has other settings."""
    config = {name.replace("_", "."): value for name, value in changed.items()}
    return BrokerConfigs({1: CONFIG, 2: {**CONFIG, **config}, 3: CONFIG}, {})


def brokers(
    replication_factor: int = 3,
    tables: Sequence[str] = (ORDERS,),
    topic_config: Mapping[str, str] | None = None,
    keyless: Sequence[str] = (),
    **changed: Any,
) -> list[Finding]:
    facts, names, config = replace(BROKERS, **changed), TopicNames("cdcd"), topic_config or {}
    specs = own_specs(names, replication_factor, config)
    specs += [TopicSpec(name, 4, replication_factor, config) for name in tables]
    return list(judge_of_brokers.judge(facts, names, specs, replication_factor=replication_factor, keyless=keyless))


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def test_brokers_that_are_ready_give_only_ok() -> None:
    assert bad(brokers()) == []


@pytest.mark.parametrize(("largest", "level"), [("1048588", Level.OK), ("100000", Level.WARNING)])
def test_the_size_that_brokers_take_is_told(largest: str, level: Level) -> None:
    found = brokers(broker_configs=of_brokers(message_max_bytes=largest))
    assert [finding.level for finding in found if finding.about == "sizes"] == [level]


def test_a_property_that_kafkas_client_does_not_know_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match=r"security\.protocl"):
        KafkaAdmin(KafkaConnection("127.0.0.1:1", "check", {"security.protocl": "SSL"}))


@pytest.mark.parametrize(
    ("config", "level", "said"),
    [
        ({"max.message.bytes": "100000"}, Level.WARNING, "cdcd.public.orders takes records of at most 97.7 KiB"),
        ({"message.timestamp.before.max.ms": "1"}, Level.ERROR, "if the clocks differ by more than 0.001 s"),
        ({"message.timestamp.after.max.ms": "5000"}, Level.ERROR, "(message.timestamp.after.max.ms)"),
        ({"message.timestamp.difference.max.ms": "5000"}, Level.ERROR, "(message.timestamp.difference.max.ms)"),
        ({"min.insync.replicas": "4"}, Level.ERROR, "takes no records: 4 replicas must be in sync"),
        (
            {"min.insync.replicas": "4", "message.timestamp.before.max.ms": "86400000"},
            Level.WARNING,
            "takes no records while a broker is away: 4 replicas must be in sync (min.insync.replicas), of 3",
        ),
        ({"min.insync.replicas": "3"}, Level.WARNING, "takes no records while a broker is away"),
    ],
)
def test_a_topic_that_refuses_rows_is_told_with_the_command(config: dict[str, str], level: Level, said: str) -> None:
    [found] = bad(brokers(topic_configs={"cdcd.public.orders": config}))
    assert found.level is level
    assert said in found.message
    assert "kafka-configs.sh --alter --entity-type topics --entity-name cdcd.public.orders" in found.hint
    assert bad(brokers(topic_configs={"another": config})) == []


def test_a_topic_with_the_brokers_time_refuses_no_clock() -> None:
    config = {"message.timestamp.before.max.ms": "1", "message.timestamp.type": "LogAppendTime"}
    assert bad(brokers(topic_configs={"cdcd.public.orders": config})) == []


def test_topics_are_not_counted_where_the_tables_are_not_known() -> None:
    assert [told for told in brokers(tables=[]) if told.about == "topics"] == []


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({"replication_factor": 4}, Level.ERROR, "sink.replication_factor is 4, more than the cluster has brokers (3)"),
        ({"replication_factor": -1, "answer_s": 0.9}, Level.WARNING, "The brokers take 0.9 s for an answer"),
        ({"unwritable": "partition 0 of t has no leader"}, Level.ERROR, "takes no records now: partition 0 of t has"),
        ({"replication_factor": 1}, Level.WARNING, "a lost broker takes topics with it"),
        ({"broker_configs": BrokerConfigs({}, {})}, Level.WARNING, "transactions not checked"),
        (
            {"broker_configs": of_brokers(transaction_max_timeout_ms="5000")},
            Level.WARNING,
            "allow a transaction 5 s",
        ),
        (
            {"broker_configs": replace(BROKERS.broker_configs, silent={2: "k2:9092 (Failed to resolve 'k2:9092')"})},
            Level.ERROR,
            "Broker 2 does not answer at the address that it advertises, k2:9092 (Failed to resolve",
        ),
        ({"topics": {"cdcd.progress": TopicSize(3, 3)}}, Level.ERROR, "cdcd.progress has 3 partitions"),
        (
            {"topic_configs": {"cdcd.progress": {"min.compaction.lag.ms": "0"}}},
            Level.WARNING,
            "cdcd.progress has min.compaction.lag.ms=0",
        ),
        (
            {
                "topic_configs": {
                    "cdcd.progress": {"cleanup.policy": "delete"},
                    "cdcd.schemas": {"cleanup.policy": "compact"},
                }
            },
            Level.ERROR,
            "cdcd.progress has cleanup.policy=delete",
        ),
        (
            {"topic_configs": {"cdcd.snapshots": {"cleanup.policy": "compact,delete"}}},
            Level.ERROR,
            "cleanup.policy=compact,delete",
        ),
        ({"topic_configs": {"cdcd.parked": {"cleanup.policy": "compact"}}}, Level.ERROR, "delete parked events"),
        ({"topic_configs": {"cdcd.parked": {"retention.ms": "604800000"}}}, Level.WARNING, "retention.ms=604800000"),
        (
            {"denied": {"cdcd.public.orders": frozenset({"WRITE"})}},
            Level.ERROR,
            "may not write the topic cdcd.public.orders",
        ),
    ],
)
def test_what_is_wrong_with_kafka_is_said_with_its_hint(changed: dict[str, Any], level: Level, said: str) -> None:
    (finding,) = bad(brokers(**changed))
    assert finding.level is level
    assert said in finding.message
    assert finding.hint


def test_transactions_that_no_broker_could_hold_are_an_error() -> None:
    found = bad(brokers(brokers=1, replication_factor=1, topics={}))
    assert [finding.about for finding in found] == ["transactions"]
    assert "transaction.state.log.replication.factor is 3, more than there are brokers (1)" in found[0].message


@pytest.mark.parametrize(
    ("given", "level", "said"),
    [
        ({"topic_config": {"message.timestamp.after.max.ms": "1"}}, Level.ERROR, "differ by more than 0.001 s"),
        ({"broker_configs": of_brokers(log_message_timestamp_before_max_ms="1")}, None, ""),
        ({"topic_config": {"min.insync.replicas": "3"}}, Level.WARNING, "take no records while a broker is away"),
        ({"topic_config": {"min.insync.replicas": "2"}}, None, ""),
        ({"topic_config": {"cleanup.policy": "compact"}}, None, ""),
        ({"topic_config": {"cleanup.policy": "compact"}, "keyless": ["cdcd.public.new"]}, Level.ERROR, "have no key"),
    ],
)
def test_topics_that_the_daemon_would_make_are_judged_once_by_the_brokers_defaults_and_the_settings(
    given: dict[str, Any], level: Level | None, said: str
) -> None:
    found = bad(brokers(tables=["cdcd.public.new", "cdcd.public.other"], **given))
    assert [each.level for each in found] == ([level] if level else [])
    assert all(said in each.message for each in found)


def test_a_brokers_default_that_refuses_records_is_told_before_a_topic_is_made() -> None:
    config = {**CONFIG, "log.message.timestamp.before.max.ms": "1"}
    [found] = bad(brokers(broker_configs=BrokerConfigs({1: config}, {})))
    assert found.level is Level.ERROR
    assert "log.message.timestamp.before.max.ms" in found.message


def test_replicas_that_kafka_2_8_would_wait_for_are_told_before_a_topic_is_made() -> None:
    config = {name: value for name, value in CONFIG.items() if not name.startswith("log.")}
    [found] = bad(brokers(topic_config={"min.insync.replicas": "5"}, broker_configs=BrokerConfigs({1: config}, {})))
    assert found.level is Level.ERROR
    assert "5 replicas must be in sync (min.insync.replicas), of 3, by sink.replication_factor" in found.message


def test_a_compacted_topic_of_a_table_without_a_key_is_an_error_and_of_one_with_a_key_is_none() -> None:
    compacted = {ORDERS: {"cleanup.policy": "compact"}}
    [found] = bad(brokers(keyless=[ORDERS], topic_configs=compacted))
    assert found.level is Level.ERROR
    assert f"{ORDERS} is compacted" in found.message
    assert bad(brokers(topic_configs=compacted)) == []


def test_many_topics_with_the_same_fault_are_counted() -> None:
    topics = {f"cdcd.public.t{number}": TopicSize(1, 3) for number in range(30)}
    configs = {name: {"max.message.bytes": "1000"} for name in topics}
    found = bad(brokers(tables=list(topics), topics={**BROKERS.topics, **topics}, topic_configs=configs))
    assert len(found) == 21
    assert "10 more topics" in found[-1].message
