"""Keeps the key that the events of each table had last, and says when it changes.

Before: `batches` says which key a table's events have; the records in Kafka say which they had before this start.
After: `publisher` writes the key in the Kafka transaction of these events: into the table's snapshot record, or, if it
has none, into its table record. At a start `transaction.relations` has the key where the stream does not name it.

A change of the key leaves the rows that were not written since under the old key: only a new snapshot mends that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cdcd.progress.snapshot_records import RUNNING, WANTED, TableSnapshot
from cdcd.sink.batches import Batch
from cdcd.sink.kafka_transaction import Table, Topic
from cdcd.sink.topics import TopicNames
from cdcd.source.table_selection import qualified_name, shell_word

log = logging.getLogger(__name__)


class TableKeys:
    """The last keys of one slot's tables."""

    def __init__(self, snapshots: Mapping[str, TableSnapshot], topics: Iterable[Topic] = ()) -> None:
        """`snapshots`: the snapshot records in Kafka, by topic. `topics`: as the table records in Kafka have them."""
        self._records = dict(snapshots)
        self.last: dict[Table, tuple[str, ...]] = {
            topic.table: topic.key_columns for topic in topics if topic.key_columns is not None
        }
        """The key of each table's last events, where it is known. Any thread may look into it."""
        for each in snapshots.values():
            self._note(each)

    def of_batch(self, batch: Batch, names: TopicNames) -> list[TableSnapshot]:
        """The snapshot records to write with a batch: its own, and those of tables that have another key now."""
        if batch.snapshot_records is not None:
            return [self._of_snapshot(each) for each in batch.snapshot_records]
        changed: list[TableSnapshot] = []
        for (schema, name), key in batch.keys.items():
            topic = names.topic(schema, name)
            before = self.last.get((schema, name))
            if before == key:
                continue
            self.last[schema, name] = key
            if before is not None:
                _warn(qualified_name(schema, name), before, key)
            if topic in self._records:
                self._records[topic] = replace(self._records[topic], key_columns=key)
                changed.append(self._records[topic])
        return changed

    def has_snapshot(self, topic: str) -> bool:
        """Whether Kafka has a snapshot record of the topic's table."""
        return topic in self._records

    def of_table_record(self, topic: Topic) -> tuple[str, ...] | None:
        """The key that the table record of a topic has to keep; None if there is a snapshot record."""
        return None if topic.name in self._records else self.last.get(topic.table)

    def kept(self, wanted: TableSnapshot) -> TableSnapshot:
        """The record of a snapshot that is wanted, with the key of the events that Kafka has."""
        known = replace(wanted, key_columns=self.last.get((wanted.schema, wanted.table)))
        self._records[wanted.topic] = known
        return known

    def _of_snapshot(self, record: TableSnapshot) -> TableSnapshot:
        """The record of a snapshot; the stream may have brought another key since the snapshot began.

        A snapshot that was only requested does not know the key.
        """
        known = self._records.get(record.topic)
        if record.state == WANTED:
            return self.kept(record)
        if known is not None and known.state == RUNNING and known.lsn == record.lsn:
            record = replace(record, key_columns=known.key_columns)
        self._records[record.topic] = record
        self._note(record)
        return record

    def _note(self, record: TableSnapshot) -> None:
        if record.key_columns is not None:
            self.last[record.schema, record.table] = record.key_columns


def _warn(table: str, before: tuple[str, ...], now: tuple[str, ...]) -> None:
    log.warning(
        "the key of %s changed from %s to %s: the rows that were not written since are in Kafka under the old key. "
        "Run: cdcd snapshot %s",
        table,
        _words(before),
        _words(now),
        shell_word(table),
    )


def _words(key: tuple[str, ...]) -> str:
    return f"({', '.join(key)})" if key else "none"
