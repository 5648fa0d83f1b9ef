"""Looks at a start whether Kafka still holds what the progress says was published: ends, ids, the cluster.

Before: `kafka_takeover` has read the last slot record.
After: `kafka_takeover` lets the stream start, refuses it, or asks for new snapshots.

Tables that share a topic have a record each. What one of these shows counts for all of them: a loss, and how far the
topic reaches.

It looks twice: before it fences another daemon, and after that, because the other one may have published meanwhile. The
second time it reads only the table records that it has not seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import chain, repeat
from typing import Final

from cdcd.progress.records import SlotRecord, TableRecord, TopicState, by_kafka_topic, kafka_topic
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.progress.topic_evidence import check_cluster, check_topics, describe, lost_topics
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.committed_rows import has_event
from cdcd.sink.kafka.progress_store import ProgressStore
from cdcd.sink.kafka_transaction import KafkaTopic, Table, Topic
from cdcd.sink.table_records import TableRecordPlaces

log = logging.getLogger(__name__)

ASKED: Final = 6
"""How often the brokers are asked before a topic counts as lost: one that has just started may know less."""
PAUSE_S: Final = 0.5
BEYOND_S: Final = 5.0
"""How long to look for rows behind the progress. They are evidence, and aborted records may take minutes to read."""


class TopicCheck:
    """One start's view of the topics. All methods raise as Kafka's readers do."""

    def __init__(
        self,
        kafka: KafkaCluster,
        progress: ProgressStore,
        published: Collection[str] | None,
        pause: Callable[[float], None],
        noticed: Mapping[str, str],
        *,
        resnapshot: bool,
    ) -> None:
        """Ask for the cluster's id. `published` are the topics of the publication's tables; None: they are not known.

        `pause` waits. `noticed`: topics that a stream of this process found to lack
        records, each with what shows it. With `resnapshot` a loss is no error: `tables_to_snapshot` names the tables.
        """
        self._kafka = kafka
        self._admin = kafka.admin
        self.cluster_id = self._admin.cluster_id()
        self._progress = progress
        self._published = published
        self._pause = pause
        self._resnapshot = resnapshot
        self._records: dict[str, tuple[TableRecord, int]] = {}
        self._shared: set[str] = set()
        """Topics that other slots have written to, too: a table may go from one slot to another."""
        self._read_from = 0
        self._recorded: Mapping[str, TopicState] = {}
        self._found: Mapping[str, TopicState] = {}
        """The topics that have what the progress says."""
        self.lost = noticed
        """Topics that lack records which they had, each with what shows it."""
        self._given_up: frozenset[str] = frozenset()
        """Topics that lack records, too, but are of tables that are not published any more."""

    def check(self, last: SlotRecord | None) -> None:
        """Raise GapError, with the hint, if a topic lost records, or if the progress is of another cluster."""
        if last is None:
            return
        check_cluster(last, self.cluster_id)
        found = self._progress.table_records(max(self._read_from, last.tables_offset))
        self._records |= found.own
        self._shared |= {kafka_topic(topic) for topic in found.of_others}
        self._read_from = max([found.read_from, *(offset + 1 for _, offset in self._records.values())])
        recorded = {topic: record.state for topic, (record, _) in self._records.items()} | dict(last.own_topics)
        noticed = {topic: self.lost.get(topic) or self.lost.get(kafka_topic(topic), "") for topic in recorded}
        # The end of an open transaction has been written since to a topic that was cut: its end may hide the loss.
        known = {
            topic: what
            for topic, what in noticed.items()
            if what and recorded[topic] == self._recorded.get(topic, recorded[topic])
        }
        self._recorded = recorded
        changed: Mapping[str, str] = {}
        lost: Mapping[str, str] = {}
        for asked in range(ASKED):
            there = self._admin.states({kafka_topic(topic) for topic in recorded})
            self._found = {topic: there[kafka_topic(topic)] for topic in recorded if kafka_topic(topic) in there}
            changed = _with_sharers(lost_topics(recorded, self._found) | known, recorded)
            lost = {topic: what for topic, what in changed.items() if not self._is_abandoned(topic)}
            if not lost.keys() - known.keys():
                break
            if asked < ASKED - 1:
                self._pause(PAUSE_S)
        self.lost = lost
        self._given_up = frozenset(changed.keys() - lost.keys())
        self._found = {topic: state for topic, state in self._found.items() if topic not in changed}
        if not self._resnapshot:
            check_topics(self.lost)

    def _is_abandoned(self, topic: str) -> bool:
        """Whether the topic is of a table that is not published any more: a person may delete it.

        The topics of logical messages and of the outbox are of no table.
        """
        if self._published is None or topic not in self._records or topic in self._published:
            return False
        return bool(self._records[topic][0].schema)

    def topic_beyond(self, last: SlotRecord, stopping: Callable[[], bool]) -> str:
        """Return a table's topic with a committed event behind `last` and behind its table record; empty without one.

        The marker of its own transaction follows the record. Aborted records may follow, too, and take time to read:
        `stopping` ends that.
        """
        tables = (record for topic, (record, _) in self._records.items() if topic in self._found)
        for topic, record in by_kafka_topic(tables).items():
            if topic in self._shared or not record.schema:  # any slot may write messages
                continue
            for partition, end in enumerate(self._found[record.topic].ends):
                recorded = record.offsets[partition] if partition < len(record.offsets) else 0
                if end > recorded + 1 and has_event(self._kafka, topic, partition, recorded, last, stopping):
                    return topic
        return ""

    def tables_to_snapshot(self) -> list[Table]:
        """Return the tables whose topics have lost records; all of them if a topic of cdcd's own has."""
        if self.lost:
            log.warning("taking new snapshots: %s", describe(self.lost))
        is_own = any(topic not in self._records for topic in self.lost)
        return [
            (record.schema, record.table)
            for topic, (record, _) in self._records.items()
            if topic in self.lost or (is_own and not self._is_abandoned(topic))
        ]

    @property
    def recorded(self) -> Collection[str]:
        """The topics of tables that the progress names."""
        return self._records.keys()

    def given_up(self) -> dict[str, Topic]:
        """Return the topics that lost records after their tables had left the publication, by name, as empty topics.

        A person may have deleted them. The progress does not hold for them any more.
        """
        records = {topic: self._records[topic][0] for topic in sorted(self._given_up)}
        empty = {topic: KafkaTopic(kafka_topic(topic), [0] * len(record.offsets)) for topic, record in records.items()}
        return {
            topic: Topic(topic, (record.schema, record.table), empty[topic], None) for topic, record in records.items()
        }

    def known(self, snapshots: Mapping[str, TableSnapshot]) -> dict[str, Topic]:
        """The topics that are as the progress says, by name. `snapshots`: how far the snapshot of each is."""
        found = {topic: record for topic, (record, _) in self._records.items() if topic in self._found}
        on_broker = {
            # A partition without a leader reaches at least as far as the record says. An empty topic may have been made
            # again with fewer partitions.
            name: KafkaTopic(
                name,
                [max(e) for e in zip(self._found[record.topic].ends, chain(record.offsets, repeat(0)), strict=False)],
                self._found[record.topic].topic_id,
            )
            for name, record in by_kafka_topic(found.values()).items()
        }
        return {
            topic: Topic(
                topic,
                (record.schema, record.table),
                on_broker[kafka_topic(topic)],
                snapshots[topic].snapshot if topic in snapshots else None,
                record.key_columns,
                record.oid,
            )
            for topic, record in found.items()
        }

    def places(self, known: Mapping[str, Topic], window: int) -> TableRecordPlaces:
        """Return where the table records of the `known` topics lie."""
        placed = ((topic, self._records[name][1]) for name, topic in known.items())
        return TableRecordPlaces(placed, self._read_from, window)


def _with_sharers(lost: Mapping[str, str], recorded: Collection[str]) -> dict[str, str]:
    """Return the lost topics, with those of all tables that share one of them."""
    on_broker = {kafka_topic(topic): what for topic, what in lost.items()}
    return {topic: on_broker[kafka_topic(topic)] for topic in recorded if kafka_topic(topic) in on_broker}
