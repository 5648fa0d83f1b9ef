"""Makes the findings of `cdcd check`, in their order. It changes nothing.

Before: the command has loaded the settings.
After: the command prints each finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from cdcd.config.settings import Settings
from cdcd.config.transport_security import insecure_connections
from cdcd.errors import CdcdError
from cdcd.preflight import host, kafka, kafka_progress, postgres, registry
from cdcd.preflight.findings import Finding, error, of_error, warning
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.preflight.postgres_facts import gather_for_check as ask_postgres
from cdcd.reading.slot_progress import kafka_cluster, validate_sink
from cdcd.sink.kafka.cluster_facts import gather as ask_kafka
from cdcd.sink.topics import SHARED_TOPIC_HINT, TopicNames, shared_topics
from cdcd.source.session import Session, dsn_parameters
from cdcd.source.slot_conflicts import SlotConflicts


def findings(settings: Settings) -> Iterator[Finding]:
    """Check everything that the daemon needs. An error, such as a server that cannot be reached, is a finding, too."""
    source, sink, avro = settings.source, settings.sink, settings.avro
    names = TopicNames(sink.prefix, sink.topic)
    published: list[tuple[str, str]] = []
    is_slot_in_use = False
    facts: PostgresFacts | None = None
    try:
        facts = ask_postgres(source.dsn, source)
        is_slot_in_use = facts.slot is not None and facts.slot.active
        published = facts.tables
        yield from postgres.judge(facts, source, takes_snapshot=settings.snapshot.mode != "never")
    except CdcdError as failure:
        yield of_error("server", failure)
    for owner, table in shared_topics(names, published):
        message = f"The tables {'.'.join(owner)} and {'.'.join(table)} would share the topic {names.topic(*table)}"
        yield error("topics", message, SHARED_TOPIC_HINT)
    tables = [names.topic(*table) for table in published]
    try:
        wanted = [*tables, names.messages, *names.compacted]
        brokers = ask_kafka(sink.bootstrap_servers, sink.librdkafka, wanted, names.own)
        yield from kafka.judge(
            brokers, names, tables, partitions=sink.partitions, replication_factor=sink.replication_factor
        )
        if sink.replication_factor <= brokers.brokers:  # if it is larger, `kafka.judge` has said so
            yield from _rejected(settings, tables)
        if published:
            yield from _slot_conflicts(settings, brokers.cluster_id, names, published)
        yield from kafka_progress.findings(settings, [*tables, names.messages] if published else None, facts)
    except CdcdError as failure:
        yield of_error("brokers", failure)
    for what, hint in insecure_connections(
        dsn_parameters(source.dsn), sink.bootstrap_servers, sink.librdkafka, avro.registry_url
    ):
        yield warning("tls", what, hint)
    if avro.registry_url is not None:
        yield registry.judge(avro.registry_url, avro.registry_config)
    yield from host.judge(settings, is_slot_in_use=is_slot_in_use)


def _slot_conflicts(
    settings: Settings, cluster_id: str, names: TopicNames, tables: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    """An error if another slot publishes some of `tables` to the same topics: `cdcd run` would refuse that."""
    source = settings.source
    try:
        with Session(source.dsn, source.application_name) as session:
            SlotConflicts(session, cluster_id, names.topic("schema", "table")).check(source.slot, tables)
    except CdcdError as failure:
        yield of_error("slot conflicts", failure)


def _rejected(settings: Settings, topics: list[str]) -> Iterator[Finding]:
    """An error if librdkafka rejects a property, or if the brokers reject the topics that the daemon would create."""
    try:
        with closing(kafka_cluster(settings)) as clients:
            validate_sink(settings, clients, topics)
    except CdcdError as failure:
        yield of_error("sink", failure)
