"""Asks the brokers for `cdcd check`: topics, settings, and the user's rights. Changes nothing.

Before: `preflight.check` has the settings, and the names of the topics.
After: `preflight.kafka` judges the answers.
Source: Kafka protocol guide, Metadata, DescribeConfigs and DescribeTopicPartitions; KIP-430 (authorized operations).

It makes no topic, and does not use the transactional.ids: a producer with one of them would fence a running daemon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource

from cdcd.clock import monotonic_s
from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, Property, client_config
from cdcd.sink.kafka.errors import TRY_AGAIN, Reports, kafka_error, to_cdcd_error
from cdcd.sink.kafka.refusals import Refusal, refusal
from cdcd.sink.kafka.token_endpoint import no_answer
from cdcd.sink.kafka.unwritable_topics import why_unwritable

REQUEST_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True)
class ClusterFacts:
    """The brokers' answers."""

    brokers: int
    topics: Mapping[str, int]
    """Name to number of partitions."""
    config: Mapping[str, str]
    """The settings of one broker; empty if the user may not see them."""
    denied: Mapping[str, frozenset[str]]
    """Existing topics that cdcd would write, with the operations that this user may not do."""
    cluster_id: str = ""
    """The cluster's id."""
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of the topics that exist, as far as the user may see them: cdcd's own and its tables'."""
    unwritable: str = ""
    """Why one of these topics takes no records now; empty if nothing speaks against it."""
    answer_s: float = 0.0
    """How long the brokers took for one answer."""


def gather(
    bootstrap: str, properties: Mapping[str, Property], wanted: Sequence[str], own: Sequence[str] = ()
) -> ClusterFacts:
    """Ask the brokers; `wanted` are the topics that cdcd would write, `own` those that are cdcd's.

    Raises SettingsError for properties that librdkafka does not know, KafkaUnavailable or RequestRejected as
    `sink.kafka.errors.to_cdcd_error`.
    """
    doing, reports = "answering `cdcd check`", Reports()
    client: Any = {**client_config(bootstrap, "cdcd-check", properties), "error_cb": reports}
    try:
        admin = AdminClient(client, logger=LIBRDKAFKA_LOG)
    except KafkaException as failure:
        raise to_cdcd_error(kafka_error(failure), doing, bootstrap) from failure
    try:
        return _ask(admin, wanted, own)
    except KafkaException as failure:
        found = kafka_error(failure)
        if found.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            admin.poll(0)  # serves the report that tells why
            raise no_answer(properties, doing, bootstrap, reports.last(REQUEST_TIMEOUT_S)) from None
        raise to_cdcd_error(found, doing, bootstrap) from failure


def _ask(admin: AdminClient, wanted: Sequence[str], own: Sequence[str]) -> ClusterFacts:
    admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    began_s = monotonic_s()  # the client is connected now
    metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    answer_s = monotonic_s() - began_s
    if not metadata.brokers:  # one that has just started knows of no topic either
        raise KafkaUnavailable("Kafka names no broker: it has just started, or stops", TRY_AGAIN)
    topics = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
    existing = [name for name in wanted if name in topics]
    broker = ConfigResource(ConfigResource.Type.BROKER, str(min(metadata.brokers)))
    kept = sorted({*existing, *(name for name in own if name in topics)})
    cluster_id: str | None = metadata.cluster_id
    return ClusterFacts(
        len(metadata.brokers),
        topics,
        _configs(admin, [broker]).get(broker.name, {}),
        _denied_operations(admin, existing),
        cluster_id or "",
        _configs(admin, [ConfigResource(ConfigResource.Type.TOPIC, name) for name in kept]),
        why_unwritable(admin, kept, REQUEST_TIMEOUT_S),
        answer_s,
    )


def _configs(admin: AdminClient, resources: list[ConfigResource]) -> dict[str, dict[str, str]]:
    """Return the settings of brokers or topics, as far as the user may see them: users rarely have that right."""
    answers = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S) if resources else {}
    found = {}
    for resource, answer in answers.items():
        try:
            entries = answer.result(REQUEST_TIMEOUT_S)
        except KafkaException as failure:
            if refusal(kafka_error(failure).code()) is not Refusal.OF_ACCESS:
                raise
        else:
            found[resource.name] = {name: each.value for name, each in entries.items() if each.value is not None}
    return found


def _denied_operations(admin: AdminClient, topics: Sequence[str]) -> dict[str, frozenset[str]]:
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
