"""Asks the brokers for `cdcd check`: topics, settings, and the user's rights. Changes nothing.

Before: `preflight.kafka` has the names of the topics.
After: `preflight.brokers` judges the answers. A start asks by the same `KafkaAdmin`.

It makes no topic, and does not use the transactional.ids: a producer with one of them would fence a running daemon.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cdcd.clock import monotonic_s
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.broker_configs import BrokerConfigs
from cdcd.sink.kafka.unwritable_topics import why_unwritable


@dataclass(frozen=True)
class TopicSize:
    """How many partitions a topic has, and how many replicas the partition with the fewest."""

    partitions: int
    replicas: int


@dataclass(frozen=True)
class ClusterFacts:
    """The brokers' answers."""

    brokers: int
    topics: Mapping[str, TopicSize]
    """All topics that the user may see."""
    broker_configs: BrokerConfigs
    denied: Mapping[str, frozenset[str]]
    """Existing topics of cdcd, with the operations that this user may not do."""
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of the existing topics of cdcd, as far as the user may see them."""
    unwritable: str = ""
    """Why one of these topics takes no records now; empty if nothing speaks against it."""
    answer_s: float = 0.0
    """How long the brokers took for one answer."""
    cluster_id: str = ""


def gather(admin: KafkaAdmin, wanted: Collection[str]) -> ClusterFacts:
    """Ask the brokers; `wanted` are cdcd's own topics and those of its tables. Raises as `admin`."""
    admin.cluster_id()
    began_s = monotonic_s()  # the client is connected now
    cluster = admin.cluster()
    answer_s = monotonic_s() - began_s
    cluster_id: str | None = cluster.cluster_id
    existing = sorted({name for name in wanted if name in cluster.topics})
    sizes = {
        name: TopicSize(
            len(topic.partitions), min((len(each.replicas) for each in topic.partitions.values()), default=0)
        )
        for name, topic in cluster.topics.items()
    }
    return ClusterFacts(
        len(cluster.brokers),
        sizes,
        admin.broker_configs(),
        admin.denied(existing),
        admin.topic_configs(existing),
        why_unwritable(admin, existing),
        answer_s,
        cluster_id or "",
    )
