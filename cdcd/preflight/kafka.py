"""What `cdcd check` looks at in Kafka and the schema registry: `gather` asks, `judge` says what the answers mean.

Before: `preflight.postgres` has found the tables. After: `preflight` prints.

Nothing is changed: no topic is made, and the transactional.ids are left alone: asking for them would fence a daemon
that runs. Whether transactions work is told from the brokers' own settings. `judge` is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource

from cdcd.errors import SettingsError, without_password
from cdcd.preflight.findings import Finding, error, of_error, ok, warning
from cdcd.schema_registry_client import registry_client
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, Property, client_config
from cdcd.sink.kafka.errors import kafka_error, to_cdcd_error
from cdcd.sink.topics import TopicNames
from cdcd.terminal.text_format import plural, size

REQUEST_TIMEOUT_S: Final = 10.0

TRANSACTION_TIMEOUT_MS_MIN: Final = 60_000
"""Below this, the longest Kafka transaction that the brokers allow may be too short for a large PostgreSQL one."""


RECORD_BYTES_MIN: Final = 1_000_000
"""A broker that takes less than Kafka's own default is worth a word."""


@dataclass(frozen=True)
class KafkaFacts:
    """What the brokers said."""

    brokers: int
    topics: Mapping[str, int]
    """Name to number of partitions."""
    config: Mapping[str, str]
    """Of one broker; empty if the user may not see it."""
    denied: Mapping[str, frozenset[str]]
    """Topics that exist and that cdcd would use, and what this user may not do with them."""
    cluster_id: str = ""
    """What the cluster calls itself."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """`cleanup.policy` of topics that exist, as far as the user may see it."""


def gather(
    bootstrap: str, properties: Mapping[str, Property], wanted: Sequence[str], compacted: Sequence[str] = ()
) -> KafkaFacts:
    """Ask the brokers; `wanted` are the topics that cdcd would write, `compacted` those that must keep every key.

    Raises as `kafka_errors.named`.
    """
    client: Any = client_config(bootstrap, "cdcd-check", properties)
    try:
        admin = AdminClient(client, logger=LIBRDKAFKA_LOG)
        metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        topics = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        there = [name for name in wanted if name in topics]
        broker = ConfigResource(ConfigResource.Type.BROKER, str(min(metadata.brokers)))
        config, denied = _config(admin, broker), _denied(admin, there)
        policies = _policies(admin, [name for name in compacted if name in topics])
        return KafkaFacts(len(metadata.brokers), topics, config, denied, str(metadata.cluster_id), policies)
    except KafkaException as failure:
        raise to_cdcd_error(kafka_error(failure), "answering `cdcd check`", bootstrap) from failure


def judge(
    facts: KafkaFacts, names: TopicNames, tables: Sequence[str], *, partitions: int, replication_factor: int
) -> Iterator[Finding]:
    """What the facts mean for these settings; `tables` are the topics of the tables."""
    yield ok("brokers", f"Kafka answers, {plural(facts.brokers, 'broker')}")
    if replication_factor > facts.brokers:
        said = f"sink.replication_factor is {replication_factor}, more than the cluster has brokers ({facts.brokers})"
        yield error("replication", said, f"Set it to {facts.brokers} or less, or add brokers")
    elif replication_factor == 1 and facts.brokers > 1:
        hint = f"Set sink.replication_factor to {min(3, facts.brokers)}"
        yield warning("replication", "sink.replication_factor is 1: a lost broker takes topics with it", hint)
    yield from _transactions(facts)
    yield from _sizes(facts)
    yield from _topics(facts, names, tables, partitions)


def judge_registry(url: str, config: Mapping[str, Any]) -> Finding:
    """Ask the schema registry for its subjects, which every registry answers."""
    try:
        subjects = registry_client({"url": url, **config}).get_subjects()
    except SettingsError as failure:
        return of_error("registry", failure)
    except Exception as failure:  # noqa: BLE001  # the client raises whatever its HTTP library does
        hint = "Check avro.registry_url and avro.registry_config"
        return error("registry", f"The schema registry does not answer: {without_password(str(failure))}", hint)
    return ok("registry", f"The schema registry answers, {plural(len(subjects), 'subject')}")


def _transactions(facts: KafkaFacts) -> Iterator[Finding]:
    if not facts.config:
        hint = "Let the user describe the configs of the cluster, or ask who runs it for transaction.max.timeout.ms"
        yield warning("transactions", "This user may not see the brokers' settings: transactions not checked", hint)
        return
    replicas = int(facts.config.get("transaction.state.log.replication.factor", "1"))
    if "__transaction_state" not in facts.topics and replicas > facts.brokers:
        said = f"transaction.state.log.replication.factor is {replicas}, more than there are brokers ({facts.brokers})"
        hint = "Set transaction.state.log.replication.factor and transaction.state.log.min.isr to 1 on a single broker"
        yield error("transactions", said, hint)
        return
    longest_ms = int(facts.config.get("transaction.max.timeout.ms", "900000"))
    if longest_ms < TRANSACTION_TIMEOUT_MS_MIN:
        said = f"The brokers allow a transaction {longest_ms / 1000:g} s; a large one of PostgreSQL may take longer"
        yield warning("transactions", said, "Raise transaction.max.timeout.ms on the brokers, best to 900000")
    else:
        yield ok("transactions", f"Transactions may take up to {longest_ms / 1000:g} s")


def _sizes(facts: KafkaFacts) -> Iterator[Finding]:
    """PostgreSQL takes values of a gigabyte."""
    if "message.max.bytes" not in facts.config:
        return
    largest = int(facts.config["message.max.bytes"])
    said = f"Records may have up to {size(largest)} (message.max.bytes), where a topic says nothing else"
    if largest < RECORD_BYTES_MIN:
        hint = "Raise max.message.bytes in sink.topic_config above the largest row, or set sink.on_unpublishable = park"
        yield warning("sizes", said, hint)
    else:
        yield ok("sizes", said)


def _topics(facts: KafkaFacts, names: TopicNames, tables: Sequence[str], partitions: int) -> Iterator[Finding]:
    if facts.topics.get(names.progress, 1) != 1:
        said = f"{names.progress} has {facts.topics[names.progress]} partitions: its order would be lost"
        yield error("topics", said, "Choose another sink.prefix, or delete the topic if nothing was published yet")
    for topic in names.compacted:
        if (policy := facts.policies.get(topic, "compact")) != "compact":
            said = f"{topic} has cleanup.policy={policy}: Kafka would delete what cdcd must find there at each start"
            alter = "kafka-configs.sh --alter --entity-type topics --entity-name"
            yield error("topics", said, f"Run: {alter} {topic} --add-config cleanup.policy=compact")
    there = [topic for topic in tables if topic in facts.topics]
    missing = len(tables) - len(there)
    made = f", {plural(missing, 'topic')} will be made with {plural(partitions, 'partition')}" if missing else ""
    if tables:  # else their absence was told
        yield ok("topics", f"{plural(len(there), 'topic')} of {plural(len(tables), 'table')} there{made}")
    for topic, operations in facts.denied.items():
        wanted = " ".join(f"--operation {operation.title()}" for operation in sorted(operations))
        said = f"This user may not {' or '.join(sorted(operations)).lower()} the topic {topic}"
        yield error("rights", said, f"Run: kafka-acls.sh --add --allow-principal User:... {wanted} --topic {topic}")


def _policies(admin: AdminClient, topics: Sequence[str]) -> dict[str, str]:
    found = {}
    for topic in topics:
        config = _config(admin, ConfigResource(ConfigResource.Type.TOPIC, topic))
        if "cleanup.policy" in config:
            found[topic] = config["cleanup.policy"]
    return found


def _config(admin: AdminClient, resource: ConfigResource) -> dict[str, str]:
    try:
        answers = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        return {name: entry.value for name, entry in answers[resource].result().items() if entry.value is not None}
    except KafkaException:
        return {}  # the right is rarely given; `judge` says that it is missing


def _denied(admin: AdminClient, topics: Sequence[str]) -> dict[str, frozenset[str]]:
    if not topics:
        return {}
    answers = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
    )
    denied = {}
    for topic, answer in answers.items():
        allowed = {AclOperation(operation) for operation in answer.result().authorized_operations or ()}
        lacking = frozenset(op.name for op in (AclOperation.WRITE, AclOperation.DESCRIBE) if op not in allowed)
        if lacking and AclOperation.ALL not in allowed:
            denied[topic] = lacking
    return denied
