"""Compares what the progress says about Kafka's topics with what Kafka holds: records that are lost are named. Pure.

Before: `records` says where each topic ended, `sink.kafka.admin` where it ends now.
After: `sink.kafka.topic_check` lets a stream start only where nothing is lost; `daemon.topic_watch` ends a stream.
Source: Apache Kafka, "Design", "Log Compaction" (offsets stay); KIP-516 (topic ids).

An end never goes back while a topic lives: retention and compaction remove records and keep the offsets; an aborted
transaction takes offsets, too. A table record's end lies before the marker that commits it, so the real end is higher.
So an end that is lower than a recorded one means that records are lost: the topic was made again, or a broker lost its
disk. A daemon that goes on writing hides that soon. So it compares where its records came to lie, and the progress
keeps what it found (`sink.kafka_transaction`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdcd.errors import GapError
from cdcd.progress.records import SlotRecord, TopicState, kafka_topic

UNKNOWN_END: Final = -1
"""The end of a partition that has no leader now."""

_NAMED_MAX: Final = 3


def lost_topics(recorded: Mapping[str, TopicState], found: Mapping[str, TopicState]) -> dict[str, str]:
    """Return the topics that lack records that they had when they were recorded, each with what shows it.

    `found` are the topics that exist. A partition without a leader, and a topic that never had a record, lacks nothing.
    """
    lost = {}
    for topic, was in recorded.items():
        what = _loss(was, found.get(topic)) if any(was.ends) else ""
        if what:
            lost[topic] = what
    return lost


def _loss(was: TopicState, now: TopicState | None) -> str:
    if now is None:
        return "does not exist any more"
    if was.lacks_records:
        return "was written to after it had lost records"
    if was.topic_id and now.topic_id and was.topic_id != now.topic_id:
        return "was deleted and made again"
    ends = (*now.ends, *(0 for _ in was.ends[len(now.ends) :]))
    for partition, (end, recorded) in enumerate(zip(ends, was.ends, strict=False)):
        if UNKNOWN_END < end < recorded:
            return f"ends at offset {end} of partition {partition}, but the daemon has written up to offset {recorded}"
    return ""


def describe(lost: Mapping[str, str]) -> str:
    """Return one sentence about what is lost."""
    lost = {kafka_topic(topic): what for topic, what in lost.items()}
    some = [f"the topic {topic} {what}" for topic, what in list(lost.items())[:_NAMED_MAX]]
    more = f"; and so with {len(lost) - _NAMED_MAX} more topics" if len(lost) > _NAMED_MAX else ""
    return f"Kafka has lost records that cdcd had published: {'; '.join(some)}{more}"


def check_topics(lost: Mapping[str, str]) -> None:
    """Raise GapError, with the hint, if `lost_topics` has found something."""
    if lost:
        raise GapError(
            describe(lost),
            'With sink.on_topic_lost = "resnapshot" cdcd takes a new snapshot of the tables and goes on; the events '
            "before it stay lost, and readers start these topics again. Or start over under another sink.prefix",
            code="topic-lost",
        )


def check_cluster(last: SlotRecord, cluster_id: str) -> None:
    """Raise GapError if another Kafka cluster wrote the progress: a copy says nothing about the topics of this one."""
    if last.cluster_id and cluster_id and last.cluster_id != cluster_id:
        raise GapError(
            f"the progress of slot {last.slot} was written on another Kafka cluster ({last.cluster_id}), not on this "
            f"one ({cluster_id}): its offsets say nothing about the topics here",
            "Check sink.bootstrap_servers. If this is meant, start over under another sink.prefix",
            code="kafka-differs",
        )
