"""Judges the brokers: do all answer, with replicas and transactions enough, and may this user write? Pure.

Before: `sink.kafka.cluster_facts` has asked the brokers for topics, settings and ACLs.
After: `topics` judges the settings of the topics; `kafka` passes the findings on.
Source: Apache Kafka, "Broker Configs".

It judges transactions by the brokers' settings. To try one would fence a running daemon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from cdcd.preflight import topics
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.sink.acls import of_topic
from cdcd.sink.kafka.cluster_facts import ClusterFacts
from cdcd.sink.topics import TopicNames, TopicSpec
from cdcd.terminal.text_format import plural, size

TRANSACTION_TIMEOUT_MS_MIN: Final = 60_000
"""Below this limit of the brokers, a Kafka transaction may be too short for a large PostgreSQL transaction."""

SLOW_ANSWER_S: Final = 0.2
"""A cluster in the same region answers within milliseconds."""


def judge(
    facts: ClusterFacts,
    names: TopicNames,
    specs: Sequence[TopicSpec],
    *,
    replication_factor: int,
    keyless: Collection[str] = (),
) -> Iterator[Finding]:
    """The findings about brokers and topics.

    `specs` are all topics as the daemon would make them; `keyless` are those of tables without a key.
    """
    count = plural(facts.brokers, "broker")
    protocol = facts.broker_configs.first("inter.broker.protocol.version")  # brokers of Kafka 4 do not tell a version
    seen = f"Kafka ({count}{f', protocol {protocol}' if protocol else ''})"
    yield ok("brokers", f"Kafka answers, {count}", seen=seen)
    yield from _answers(facts)
    if replication_factor > facts.brokers:
        message = (
            f"sink.replication_factor is {replication_factor}, more than the cluster has brokers ({facts.brokers})"
        )
        yield error(
            "replication", message, f"Set it to {facts.brokers} or less, or add brokers", code="topic-settings-refused"
        )
    elif replication_factor == 1 and facts.brokers > 1:
        hint = f"Set sink.replication_factor to {min(3, facts.brokers)}"
        yield warning(
            "replication",
            "sink.replication_factor is 1: a lost broker takes topics with it",
            hint,
            code="replicas-too-few",
        )
    yield from _transactions(facts)
    yield from _sizes(facts)
    yield from topics.judge(facts, names, specs, keyless)
    yield from _privileges(facts, names)


def _answers(facts: ClusterFacts) -> Iterator[Finding]:
    for node_id, address in facts.broker_configs.silent.items():
        message = f"Broker {node_id} does not answer at the address that it advertises, {address}"
        hint = "Start it, correct its advertised.listeners, or let this machine resolve and reach that address"
        yield error("brokers", message, hint, code="broker-unreachable")
    if facts.unwritable:
        hint = "Start the brokers that are missing, or lower the topic's min.insync.replicas"
        yield error("brokers", f"Kafka takes no records now: {facts.unwritable}", hint, code="replicas-too-few")
    if facts.answer_s >= SLOW_ANSWER_S:
        message = f"The brokers take {facts.answer_s:.1f} s for an answer: a commit takes several"
        yield warning(
            "brokers", message, "Run cdcd near the brokers, or expect events to be later by seconds", code="kafka-slow"
        )


def _transactions(facts: ClusterFacts) -> Iterator[Finding]:
    configs = facts.broker_configs
    if not configs.configs:
        hint = "Let the user describe the configs of the cluster, or ask who runs it for transaction.max.timeout.ms"
        yield warning(
            "transactions",
            "This user may not see the brokers' settings: transactions not checked",
            hint,
            code="kafka-acl-missing",
        )
        return
    replicas = configs.least("transaction.state.log.replication.factor") or 1
    if "__transaction_state" not in facts.topics and replicas > facts.brokers:
        message = (
            f"transaction.state.log.replication.factor is {replicas}, more than there are brokers ({facts.brokers})"
        )
        hint = "Set transaction.state.log.replication.factor and transaction.state.log.min.isr to 1 on a single broker"
        yield error("transactions", message, hint, code="transactions-unavailable")
        return
    longest_ms = configs.least("transaction.max.timeout.ms") or 900_000
    if longest_ms < TRANSACTION_TIMEOUT_MS_MIN:
        message = (
            f"The brokers allow a transaction {longest_ms / 1000:g} s; a large PostgreSQL transaction may take longer"
        )
        yield warning(
            "transactions",
            message,
            "Raise transaction.max.timeout.ms on the brokers, best to 900000",
            code="transaction-too-long",
        )
    else:
        yield ok("transactions", f"Transactions may take up to {longest_ms / 1000:g} s")


def _sizes(facts: ClusterFacts) -> Iterator[Finding]:
    """A value in PostgreSQL may have a gigabyte, so records can be large."""
    largest = facts.broker_configs.least("message.max.bytes")
    if largest is None:
        return
    message = f"Records may have up to {size(largest)} (message.max.bytes), unless a topic has its own limit"
    if largest < topics.RECORD_BYTES_MIN:
        hint = "Raise max.message.bytes in sink.topic_config above the largest row, or set sink.on_unpublishable = park"
        yield warning("sizes", message, hint, code="row-too-large")
    else:
        yield ok("sizes", message)


def _privileges(facts: ClusterFacts, names: TopicNames) -> Iterator[Finding]:
    for topic, operations in facts.denied.items():
        message = f"This user may not {' or '.join(sorted(operations)).lower()} the topic {topic}"
        hint = f"Run: {of_topic(topic, names.prefix).command()}"
        yield error("privileges", message, hint, code="kafka-acl-missing")
