"""Looks for a topic of a table that has committed rows, although no slot has left a record in Kafka.

Before: a start has found neither progress nor snapshots.
After: `progress.continuity` judges it: cdcd's own topics are lost, or another program has written to the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.topics import TopicNames


def topic_with_rows(
    kafka: KafkaCluster, names: TopicNames, topics: Collection[str], stopping: Callable[[], bool]
) -> list[str]:
    """Return the first topic that has a committed row, among `topics` and all that a table of this daemon may have.

    It does not wait for open transactions. Raises as Kafka's readers do.
    """
    found = kafka.admin.partitions_of_all(lambda topic: topic in topics or names.may_be_table_topic(topic))
    ends = kafka.admin.end_offsets(found) if found else {}  # one question for all: most are empty
    written = [(topic, partition) for topic in sorted(ends) for partition, end in enumerate(ends[topic]) if end]
    for name, partition in written:
        if not stopping():
            reader = kafka.range_reader(name, partition=partition, end="last_stable")
            start, stop = reader.bounds() or (0, 0)
            if start < stop:
                with reader.consumer() as consumer:
                    if any(True for _ in reader.read(consumer, start, stop, stopping)):
                        return [name]
    return []
