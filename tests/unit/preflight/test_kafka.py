from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cdcd.errors import SettingsError
from cdcd.preflight import kafka
from cdcd.preflight.findings import Finding, Level
from cdcd.sink.kafka import cluster_facts
from cdcd.sink.topics import TopicNames

BROKERS = cluster_facts.ClusterFacts(
    brokers=3,
    topics={"__transaction_state": 50, "cdcd.public.orders": 4},
    config={"transaction.max.timeout.ms": "900000", "transaction.state.log.replication.factor": "3"},
    denied={},
)


def brokers(
    replication_factor: int = 3, tables: Sequence[str] = ("cdcd.public.orders",), **changed: Any
) -> list[Finding]:
    facts = replace(BROKERS, **changed)
    names = TopicNames("cdcd")
    return list(kafka.judge(facts, names, tables, partitions=4, replication_factor=replication_factor))


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def test_brokers_that_are_ready_give_only_ok() -> None:
    assert bad(brokers()) == []


@pytest.mark.parametrize(("largest", "level"), [("1048588", Level.OK), ("100000", Level.WARNING)])
def test_the_size_that_brokers_take_is_told(largest: str, level: Level) -> None:
    found = brokers(config={**BROKERS.config, "message.max.bytes": largest})
    assert [finding.level for finding in found if finding.about == "sizes"] == [level]


def test_a_property_that_kafkas_client_does_not_know_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match=r"security\.protocl"):
        cluster_facts.gather("127.0.0.1:1", {"security.protocl": "SSL"}, [])


@pytest.mark.parametrize(
    ("config", "level", "said"),
    [
        ({"max.message.bytes": "100000"}, Level.WARNING, "cdcd.public.orders takes rows of at most 97.7 KiB"),
        ({"message.timestamp.before.max.ms": "1"}, Level.ERROR, "if the clocks differ by more than 0.001 s"),
        ({"message.timestamp.after.max.ms": "5000"}, Level.ERROR, "(message.timestamp.after.max.ms)"),
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
        ({"config": {}}, Level.WARNING, "transactions not checked"),
        ({"config": {"transaction.max.timeout.ms": "5000"}}, Level.WARNING, "allow a transaction 5 s"),
        ({"topics": {"cdcd.progress": 3}}, Level.ERROR, "cdcd.progress has 3 partitions"),
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
