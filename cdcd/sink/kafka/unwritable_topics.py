"""Finds out why a cluster that answers takes no records: a partition has no leader, or too few replicas are in sync.

Before: `cluster_probe` and `stuck_client` know that nothing moves, and which topics are written to.
After: the log, health and errors name the topic.
Source: Kafka protocol guide, error codes LEADER_NOT_AVAILABLE and NOT_ENOUGH_REPLICAS; `min.insync.replicas`.

librdkafka repeats a refused request for as long as `message.timeout.ms`, and reports nothing meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from confluent_kafka.admin import TopicMetadata
from confluent_kafka.admin._metadata import PartitionMetadata

from cdcd.sink.kafka.admin import KafkaAdmin

TRANSACTION_STATE: Final = "__transaction_state"
"""Kafka's own topic: it must take records before a transaction can begin or end."""

TOPICS_MAX: Final = 200
"""The settings of so many topics are looked at."""


def why_unwritable(admin: KafkaAdmin, topics: Collection[str]) -> str:
    """Return why one of `topics` takes no records, as a sentence; empty if nothing speaks against it.

    Raises as `admin`.
    """

    def min_in_sync(names: list[str]) -> dict[str, int]:
        configs = admin.topic_configs(names)
        return {name: int(config["min.insync.replicas"]) for name, config in configs.items()}

    return judge(admin.cluster().topics, topics, min_in_sync)


def judge(
    known: Mapping[str, TopicMetadata],
    topics: Collection[str],
    min_in_sync: Callable[[list[str]], Mapping[str, int]],
) -> str:
    """Return why one of `topics` takes no records. Pure.

    `known`: what the cluster tells of its topics. `min_in_sync` gives the `min.insync.replicas` of topics, as far as
    the user may see them.
    """
    partitions = list(_partitions(known, (*sorted(topics), TRANSACTION_STATE)))
    for name, partition in partitions:
        if partition.leader < 0:
            return f"partition {partition.id} of the topic {name} has no leader (LEADER_NOT_AVAILABLE)"
    shrunken = [(name, partition) for name, partition in partitions if len(partition.isrs) < len(partition.replicas)]
    least = min_in_sync(list(dict.fromkeys(name for name, _ in shrunken))[:TOPICS_MAX])
    for name, partition in shrunken:
        in_sync, replicas = len(partition.isrs), len(partition.replicas)
        if in_sync < least.get(name, replicas):
            wanted = f"min.insync.replicas is {least[name]}" if name in least else "perhaps fewer than it needs"
            return (
                f"partition {partition.id} of the topic {name} has {in_sync} of {replicas} replicas in sync, {wanted} "
                "(NOT_ENOUGH_REPLICAS)"
            )
    return ""


def _partitions(known: Mapping[str, TopicMetadata], names: Collection[str]) -> Iterator[tuple[str, PartitionMetadata]]:
    for name in names:
        topic = known.get(name)
        if topic is not None:
            for _, partition in sorted(topic.partitions.items()):
                yield name, partition
