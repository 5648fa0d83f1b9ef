"""Judges whether cdcd's own topics keep what they must keep: partitions, cleanup.policy, retention. Pure.

Before: `kafka.admin` has asked the brokers.
After: `kafka.cluster` refuses a start, `preflight.topics` reports the same findings.
Source: Apache Kafka, "Topic Configs".

cdcd makes these topics as they must be. They are different if a broker made them (auto.create.topics.enable), or a
person did, or changed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from cdcd.sink.acls import kafka_command
from cdcd.sink.topics import WEEK_MS, TopicNames


@dataclass(frozen=True)
class TopicFault:
    """What is wrong with one topic."""

    message: str
    hint: str
    is_fatal: bool = True
    """Kafka would lose what cdcd cannot do without: the daemon does not start."""


def faults(
    names: TopicNames, partitions: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]
) -> Iterator[TopicFault]:
    """Yield what is wrong with the topics that exist.

    `partitions`: how many each topic has; `configs`: the settings of topics, as far as the user may see them.
    """
    if (count := partitions.get(names.progress, 1)) != 1:
        yield TopicFault(
            f"{names.progress} has {count} partitions: its order would be lost",
            "Choose another sink.prefix, or delete the topic if nothing was published yet",
        )
    for topic in names.compacted:
        policy = configs.get(topic, {}).get("cleanup.policy", "compact")
        if policy != "compact":
            yield TopicFault(
                f"{topic} has cleanup.policy={policy}: Kafka would delete records that cdcd needs at each start",
                f"Run: {altering_command(topic, 'cleanup.policy=compact')}",
            )
    parked = configs.get(names.parked, {})
    if "compact" in parked.get("cleanup.policy", "delete"):
        yield TopicFault(
            f"{names.parked} has cleanup.policy={parked['cleanup.policy']}: Kafka would delete parked events",
            f"Run: {altering_command(names.parked, 'cleanup.policy=delete')}",
        )
    lag_ms = configs.get(names.progress, {}).get("min.compaction.lag.ms", "")
    if lag_ms.isdigit() and int(lag_ms) < WEEK_MS:
        yield TopicFault(
            f"{names.progress} has min.compaction.lag.ms={lag_ms}: readers find fewer cuts than those of a week",
            f"Run: {altering_command(names.progress, f'min.compaction.lag.ms={WEEK_MS}')}",
            is_fatal=False,
        )
    for name in ("retention.ms", "retention.bytes"):
        if (value := parked.get(name, "-1")) != "-1":
            yield TopicFault(
                f"{names.parked} has {name}={value}: Kafka deletes events that are parked for longer",
                f"Run: {altering_command(names.parked, f'{name}=-1')}",
                is_fatal=False,
            )


def altering_command(topic: str, config: str) -> str:
    """Return the command of Kafka's own tools that gives a topic a setting."""
    options = f"--alter --entity-type topics --entity-name {topic} --add-config {quote(config)}"
    return kafka_command("kafka-configs.sh", options)
