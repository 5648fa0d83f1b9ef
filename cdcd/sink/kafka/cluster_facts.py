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

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource

from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, Property, client_config
from cdcd.sink.kafka.errors import TRY_AGAIN, kafka_error, to_cdcd_error

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
    own_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of cdcd's own topics that exist, as far as the user may see them."""


def gather(
    bootstrap: str, properties: Mapping[str, Property], wanted: Sequence[str], own: Sequence[str] = ()
) -> ClusterFacts:
    """Ask the brokers; `wanted` are the topics that cdcd would write, `own` those whose settings are asked for.

    Raises SettingsError for properties that librdkafka does not know, KafkaUnavailable or RequestRejected as
    `sink.kafka.errors.to_cdcd_error`.
    """
    client: Any = client_config(bootstrap, "cdcd-check", properties)
    try:
        admin = AdminClient(client, logger=LIBRDKAFKA_LOG)
        metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        if not metadata.brokers:  # librdkafka 2.16 would abort the process at the next question: see `kafka.admin`
            raise KafkaUnavailable(f"Kafka ({bootstrap}) names no broker, answering `cdcd check`", TRY_AGAIN)
        topics = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        existing = [name for name in wanted if name in topics]
        broker = ConfigResource(ConfigResource.Type.BROKER, str(min(metadata.brokers)))
        config, denied = _config(admin, broker), _denied_operations(admin, existing)
        own_configs = {
            name: _config(admin, ConfigResource(ConfigResource.Type.TOPIC, name)) for name in own if name in topics
        }
        return ClusterFacts(len(metadata.brokers), topics, config, denied, str(metadata.cluster_id), own_configs)
    except KafkaException as failure:
        raise to_cdcd_error(kafka_error(failure), "answering `cdcd check`", bootstrap) from failure


def _config(admin: AdminClient, resource: ConfigResource) -> dict[str, str]:
    try:
        answers = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        return {name: entry.value for name, entry in answers[resource].result().items() if entry.value is not None}
    except KafkaException:
        return {}  # users rarely have this right: `preflight.kafka` says that it is missing


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
