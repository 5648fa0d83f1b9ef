"""Judges brokers and topics: replication, transactions, record sizes, partitions, policies, privileges. Pure.

Before: `sink.kafka.cluster_facts` has asked the brokers for topics, settings and ACLs.
After: `check` passes the findings on. `sink.own_topics` has the rules for cdcd's own topics: a start has the same.
Source: Apache Kafka, "Broker Configs", "Topic Configs".

It judges transactions by the brokers' settings. To try one would fence a running daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.sink.kafka.cluster_facts import ClusterFacts
from cdcd.sink.own_topics import altering_command, faults
from cdcd.sink.topics import TopicNames
from cdcd.terminal.text_format import plural, size

TRANSACTION_TIMEOUT_MS_MIN: Final = 60_000
"""Below this limit of the brokers, a Kafka transaction may be too short for a large PostgreSQL transaction."""

SLOW_ANSWER_S: Final = 0.2
"""A cluster in the same region answers within milliseconds."""

HOUR_MS: Final = 3_600_000
CLOCKS_DIFFER_MS: Final = 10_000
"""Clocks differ, and records wait in the producer: a topic that allows less refuses rows sooner or later."""

DEFAULT_RECORD_BYTES: Final = 1_048_588
"""Kafka's default."""
RECORD_BYTES_MIN: Final = 1_000_000
"""Below this limit of the brokers, which is about Kafka's default, there is a warning."""


def judge(
    facts: ClusterFacts, names: TopicNames, tables: Sequence[str], *, partitions: int, replication_factor: int
) -> Iterator[Finding]:
    """The findings about brokers and topics for these settings. `tables` are the topics of the tables."""
    yield ok("brokers", f"Kafka answers, {plural(facts.brokers, 'broker')}")
    yield from _answers(facts)
    if replication_factor > facts.brokers:
        message = (
            f"sink.replication_factor is {replication_factor}, more than the cluster has brokers ({facts.brokers})"
        )
        yield error("replication", message, f"Set it to {facts.brokers} or less, or add brokers")
    elif replication_factor == 1 and facts.brokers > 1:
        hint = f"Set sink.replication_factor to {min(3, facts.brokers)}"
        yield warning("replication", "sink.replication_factor is 1: a lost broker takes topics with it", hint)
    yield from _transactions(facts)
    yield from _sizes(facts)
    yield from _topics(facts, names, tables, partitions)
    for topic in tables:
        yield from _refused_rows(topic, facts.topic_configs.get(topic, {}))


def _answers(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.unwritable:
        hint = "Start the brokers that are missing, or lower the topic's min.insync.replicas"
        yield error("brokers", f"Kafka takes no records now: {facts.unwritable}", hint)
    if facts.answer_s >= SLOW_ANSWER_S:
        message = f"The brokers take {facts.answer_s:.1f} s for an answer: a commit takes several"
        yield warning("brokers", message, "Run cdcd near the brokers, or expect events to be later by seconds")


def _transactions(facts: ClusterFacts) -> Iterator[Finding]:
    if not facts.config:
        hint = "Let the user describe the configs of the cluster, or ask who runs it for transaction.max.timeout.ms"
        yield warning("transactions", "This user may not see the brokers' settings: transactions not checked", hint)
        return
    replicas = int(facts.config.get("transaction.state.log.replication.factor", "1"))
    if "__transaction_state" not in facts.topics and replicas > facts.brokers:
        message = (
            f"transaction.state.log.replication.factor is {replicas}, more than there are brokers ({facts.brokers})"
        )
        hint = "Set transaction.state.log.replication.factor and transaction.state.log.min.isr to 1 on a single broker"
        yield error("transactions", message, hint)
        return
    longest_ms = int(facts.config.get("transaction.max.timeout.ms", "900000"))
    if longest_ms < TRANSACTION_TIMEOUT_MS_MIN:
        message = (
            f"The brokers allow a transaction {longest_ms / 1000:g} s; a large PostgreSQL transaction may take longer"
        )
        yield warning("transactions", message, "Raise transaction.max.timeout.ms on the brokers, best to 900000")
    else:
        yield ok("transactions", f"Transactions may take up to {longest_ms / 1000:g} s")


def _sizes(facts: ClusterFacts) -> Iterator[Finding]:
    """A value in PostgreSQL may have a gigabyte, so records can be large."""
    if "message.max.bytes" not in facts.config:
        return
    largest = int(facts.config["message.max.bytes"])
    message = f"Records may have up to {size(largest)} (message.max.bytes), unless a topic has its own limit"
    if largest < RECORD_BYTES_MIN:
        hint = "Raise max.message.bytes in sink.topic_config above the largest row, or set sink.on_unpublishable = park"
        yield warning("sizes", message, hint)
    else:
        yield ok("sizes", message)


def _refused_rows(topic: str, config: Mapping[str, str]) -> Iterator[Finding]:
    """The findings about settings of a table's topic that refuse rows."""
    limit = config.get("max.message.bytes", "")
    if limit.isdigit() and int(limit) < RECORD_BYTES_MIN:
        message = f"{topic} takes rows of at most {size(int(limit))} (max.message.bytes)"
        raised = altering_command(topic, f"max.message.bytes={DEFAULT_RECORD_BYTES}")
        yield warning("sizes", message, f"If rows may be larger, run: {raised}")
    if config.get("message.timestamp.type") == "LogAppendTime":
        return
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        allowed = config.get(name, "")
        if allowed.isdigit() and int(allowed) < CLOCKS_DIFFER_MS:
            message = f"{topic} refuses records if the clocks differ by more than {int(allowed) / 1000:g} s ({name})"
            yield error("topics", message, f"Run: {altering_command(topic, f'{name}={HOUR_MS}')}")


def _topics(facts: ClusterFacts, names: TopicNames, tables: Sequence[str], partitions: int) -> Iterator[Finding]:
    for fault in faults(names, facts.topics, facts.topic_configs):
        yield (error if fault.is_fatal else warning)("topics", fault.message, fault.hint)
    existing = [topic for topic in tables if topic in facts.topics]
    missing = len(tables) - len(existing)
    to_create = f", {plural(missing, 'topic')} will be made with {plural(partitions, 'partition')}" if missing else ""
    if tables:  # without tables, `publication` has a finding
        yield ok("topics", f"{plural(len(existing), 'topic')} of {plural(len(tables), 'table')} there{to_create}")
    for topic, operations in facts.denied.items():
        wanted = " ".join(f"--operation {operation.title()}" for operation in sorted(operations))
        message = f"This user may not {' or '.join(sorted(operations)).lower()} the topic {topic}"
        yield error(
            "privileges", message, f"Run: kafka-acls.sh --add --allow-principal User:... {wanted} --topic {topic}"
        )
