"""Asks Kafka for `cdcd check`, and puts the findings in order. Changes nothing.

Before: `check` has the settings, and knows the published tables.
After: `brokers` and `topics` judge the answers, `kafka_progress` the progress; `check` passes the findings on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from cdcd.config.settings import Settings
from cdcd.errors import CdcdError
from cdcd.preflight import brokers, kafka_progress
from cdcd.preflight.findings import Finding, error, of_error, warning
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.reading.slot_progress import kafka_cluster, sink_specs, validate_sink
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.cluster_facts import gather
from cdcd.sink.topics import PARTITIONS_HINT, SHARED_TOPIC_HINT, TopicNames, shared_topics, unequal_partitions
from cdcd.source.session import Session
from cdcd.source.slot_conflicts import SlotConflicts


def findings(
    settings: Settings, published: Sequence[tuple[str, str]], facts: PostgresFacts | None
) -> Iterator[Finding]:
    """The findings about Kafka. `published`: schema and name of each table; `facts` None: PostgreSQL did not answer."""
    names = settings.topic_names()
    for owner, table in shared_topics(names, published):
        message = f"The tables {'.'.join(owner)} and {'.'.join(table)} would share the topic {names.topic(*table)}"
        yield error("topics", message, SHARED_TOPIC_HINT, code="topics-collide")
    for message in unequal_partitions(names, published, settings.sink.partitions):
        yield error("topics", message[:1].upper() + message[1:], PARTITIONS_HINT, code="topic-partitions-unequal")
    try:
        with closing(kafka_cluster(settings)) as cluster:
            yield from _of_cluster(settings, cluster, published, facts)
    except CdcdError as failure:
        yield of_error("brokers", failure, unseen="Kafka")


def _of_cluster(
    settings: Settings, cluster: KafkaCluster, published: Sequence[tuple[str, str]], facts: PostgresFacts | None
) -> Iterator[Finding]:
    """The findings about brokers, topics and the progress. Raises as `KafkaCluster` does."""
    names = settings.topic_names()
    tables = [names.topic(*table) for table in published]
    specs, replication_factor = sink_specs(settings, published), settings.sink.replication_factor
    keyless = [names.on_broker(each.schema, each.name) for each in facts.identities if each.is_keyless] if facts else []
    answers = gather(cluster.admin, [*(spec.name for spec in specs), *names.tableless])
    yield from brokers.judge(answers, names, specs, replication_factor=replication_factor, keyless=keyless)
    if replication_factor <= answers.brokers:  # if it is larger, `brokers` has said so
        yield from _rejected(settings, cluster, published)
    if published:
        yield from _slot_conflicts(settings, answers.cluster_id, names, published)
    yield from kafka_progress.findings(settings, cluster, [*tables, *names.tableless] if published else None, facts)


def _slot_conflicts(
    settings: Settings, cluster_id: str, names: TopicNames, tables: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    """An error if another slot publishes the same to the same topics: `cdcd run` would refuse that."""
    source = settings.source
    try:
        with Session(source.login, source.application_name) as session:
            conflicts = SlotConflicts(session, cluster_id, names.example, names.chosen_topics(tables))
            conflicts.check(source.slot, tables, messages=source.messages)
    except CdcdError as failure:
        yield of_error("slot conflicts", failure)


def _rejected(settings: Settings, cluster: KafkaCluster, tables: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """An error if librdkafka rejects a property, or if the brokers reject the topics that the daemon would create."""
    try:
        for spec in validate_sink(settings, cluster, tables):
            message = f"The cluster does not allow {', '.join(sorted(spec.optional))} for {spec.name}"
            yield warning(
                "topics",
                message,
                "cdcd makes the topic without it: ask who runs the cluster to allow it",
                code="topic-settings-refused",
            )
    except CdcdError as failure:
        yield of_error("sink", failure)
