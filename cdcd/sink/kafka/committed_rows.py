"""Looks for committed rows that no progress tells of.

Before: a start has found neither progress nor snapshots; or a slot record, which may not be the last one written.
After: `progress.continuity` judges it: cdcd's own topics have lost records, or another program has written to a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from cdcd.avro.envelope_head import commit_lsn
from cdcd.debezium.event_head import last_commit, last_commit_in_avro, row_lsn
from cdcd.json_events import event_head
from cdcd.progress.records import SlotRecord
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.topics import TopicNames

WINDOW: Final = 1_000
"""Offsets that are looked at: what is committed lies there, unless it follows a large transaction that was aborted."""

POSITIONS: Final[Mapping[str, Callable[[bytes], int | None]]] = {
    "": commit_lsn,
    "cdcd/json": event_head.commit_lsn,
    "cdcd/json-schema": event_head.commit_lsn,
    "debezium/avro": last_commit_in_avro,
    "debezium/json": last_commit,
    "debezium/json-schema": last_commit,
    "row/avro": lambda _: None,
    "row/json": row_lsn,
    "row/json-schema": row_lsn,
}
"""By the slot record's format: an event's position, which is that of its commit, or of the end of the commit before.

A flat row has that of its change, which may lie before an earlier commit: then it tells nothing. In Avro none of them
does: only the schema says where the field is.
"""


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


def has_event(
    kafka: KafkaCluster, topic: str, partition: int, offset: int, last: SlotRecord, stopping: Callable[[], bool]
) -> bool:
    """Whether a committed event of a row, from `offset` on, is of a transaction that `last` does not tell of.

    It does not wait for open transactions. Raises as Kafka's readers do.
    """
    reader = kafka.range_reader(topic, partition=partition, end="last_stable")
    _, end = reader.bounds() or (0, 0)
    with reader.consumer() as consumer:
        found = reader.read(consumer, offset, min(end, offset + WINDOW), stopping)
        position = POSITIONS[last.event_format]
        positions = (position(message.value() or b"") for _, message in found)
        return any(position is not None and position >= last.lsn for position in positions)
