"""Keeps the key that the events of each table had last, which table they are from, and which columns were added.

Before: `batches` says which key a table's events have, and the table's OID; the records in Kafka say which they had
before this start.
After: `publisher` writes both in the Kafka transaction of these events: into the table's snapshot record, or, if it
has none, into its table record. At a start `transaction.relations` has the key where the stream does not name it, and
`daemon.recopies` finds out which keys have changed, and which tables were replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cdcd.progress.snapshot_records import STOPPED, WANTED, TableSnapshot
from cdcd.progress.topic_incarnations import TopicIncarnations
from cdcd.sink.batches import Batch
from cdcd.sink.kafka_transaction import Table, Topic
from cdcd.sink.topics import TopicNames
from cdcd.source.incarnations import Incarnation
from cdcd.source.pg_types import Attribute

AddedColumns: TypeAlias = "Mapping[str, Attribute]"
"""By name, columns that were added with a default which is known."""


class TableKeys:
    """The last keys of one slot's tables, and the tables themselves."""

    def __init__(self, snapshots: Mapping[str, TableSnapshot], topics: Iterable[Topic] = ()) -> None:
        """`snapshots`: the snapshot records in Kafka, by topic. `topics`: as the table records in Kafka have them."""
        self._records = dict(snapshots)
        oids = {topic.name: Incarnation(topic.oid) for topic in topics if topic.oid is not None}
        found = {topic: each.incarnation for topic, each in snapshots.items() if each.incarnation is not None}
        self.incarnations = TopicIncarnations(oids | found)
        self.last: dict[Table, tuple[str, ...]] = {
            topic.table: topic.key_columns for topic in topics if topic.key_columns is not None
        }
        """The key of each table's last events, where it is known. Any thread may look into it."""
        self.added: dict[Table, AddedColumns] = {}
        """The columns of each table's last events that were added with a default. Any thread may look into it."""
        self._begun = {topic: each.lsn for topic, each in snapshots.items() if each.state != WANTED}
        """By topic, the LSN of the last snapshot whose rows have come."""
        # A topic that its table has left may have another key, or other columns, than the one that it has now.
        for each in sorted(snapshots.values(), key=lambda each: each.incarnation is None or each.incarnation.oid > 0):
            self._note(each)

    def of_batch(self, batch: Batch, names: TopicNames) -> list[TableSnapshot]:
        """The snapshot records to write with a batch: its own, and those of tables that have another key now."""
        if batch.snapshot_records is not None:
            return [record for each in batch.snapshot_records for record in self._of_snapshot(each)]
        changed: dict[str, TableSnapshot] = {}
        for each in batch.announced:
            schema, name, key = each.schema, each.name, each.key
            topic = names.topic(schema, name)
            for other in self._replaced(self.incarnations.announce(topic, each.oid)):
                changed[other.topic] = other
            before = self.added.get((schema, name), {})
            added = before if each.added is None else each.added
            if self.last.get((schema, name)) == key and before == added:
                continue
            self.last[schema, name] = key
            self.added[schema, name] = added
            if topic in self._records:
                self._records[topic] = replace(self._records[topic], key_columns=key, added=added)
                changed[topic] = self._records[topic]
        return list(changed.values())

    def has_snapshot(self, topic: str) -> bool:
        """Whether Kafka has a snapshot record of the topic's table."""
        return topic in self._records

    def oid_of_table_record(self, topic: Topic) -> int | None:
        """The OID that the table record of a topic has to keep; None if there is a snapshot record."""
        known = None if topic.name in self._records else self.incarnations.get(topic.name)
        return None if known is None else known.oid

    def of_table_record(self, topic: Topic) -> tuple[str, ...] | None:
        """The key that the table record of a topic has to keep; None if there is a snapshot record."""
        return None if topic.name in self._records else self.last.get(topic.table)

    def stop(self, wanted: TableSnapshot) -> TableSnapshot:
        """The record of the snapshot of a table that a person stops; `wanted`: if Kafka has no record of it."""
        return self.kept(self._records.get(wanted.topic, wanted).stopped())

    def stopped(self, topic: str) -> TableSnapshot | None:
        """The record of a table whose snapshot a person has stopped; None for any other table."""
        known = self._records.get(topic)
        return known if known is not None and known.state == STOPPED else None

    def kept(self, wanted: TableSnapshot) -> TableSnapshot:
        """The record of a snapshot that is wanted, with the key and the table of the events that Kafka has."""
        known = replace(
            wanted,
            key_columns=self.last.get((wanted.schema, wanted.table)),
            incarnation=self.incarnations.get(wanted.topic),
            added=self.added.get((wanted.schema, wanted.table), {}),
        )
        self._records[wanted.topic] = known
        return known

    def repaired(self, record: TableSnapshot) -> TableSnapshot:
        """The record of a table that is compared and repaired: with the key and the table of the events in Kafka."""
        self._begun[record.topic] = record.lsn
        return self.kept(record)

    def learn(self, incarnations: Mapping[str, Incarnation]) -> list[TableSnapshot]:
        """Another server has the tables now, by topic. Return the snapshot records that say so.

        What the server before told of them is forgotten: an OID is nothing there.
        """
        self.incarnations = TopicIncarnations(incarnations)
        self._records = {
            topic: replace(each, incarnation=incarnations.get(topic)) for topic, each in self._records.items()
        }
        return list(self._records.values())

    def _replaced(self, topics: Iterable[str]) -> list[TableSnapshot]:
        """The snapshot records of topics whose table is another one now."""
        found = [
            replace(self._records[topic], incarnation=self.incarnations.get(topic))
            for topic in topics
            if topic in self._records
        ]
        self._records |= {each.topic: each for each in found}
        return found

    def _of_snapshot(self, record: TableSnapshot) -> list[TableSnapshot]:
        """The record of a snapshot; the stream may have brought another key since the snapshot began. With it comes
        that of the topic that the table has left.

        A snapshot that was only requested does not know the key.
        """
        if record.state == WANTED:
            return [self.kept(record)]
        if self._begun.get(record.topic) == record.lsn:
            record = replace(record, key_columns=self.last.get((record.schema, record.table)))
        before = self.incarnations.get(record.topic)
        if before is not None and record.incarnation is not None and before.oid != record.incarnation.oid:
            self.added.pop((record.schema, record.table), None)  # of another table
        record = replace(record, added=self.added.get((record.schema, record.table), {}))
        self._begun[record.topic] = record.lsn
        self._records[record.topic] = record
        left = {} if record.incarnation is None else self.incarnations.put(record.topic, record.incarnation)
        self._note(record)
        return [record, *self._replaced(left)]

    def _note(self, record: TableSnapshot) -> None:
        if record.key_columns is not None:
            self.last[record.schema, record.table] = record.key_columns
        self.added[record.schema, record.table] = record.added
