"""One Kafka transaction: the account of its contents while it is open, and the result of its commit.

Before: `publisher` opens it, and notes each batch that it puts into it.
After: `commit_schedule` sees how large and how old it is; its result goes to the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cdcd.errors import TopicLost
from cdcd.progress.records import ParkedTable, SlotRecord, SnapshotState, TableRecordForm, TopicState
from cdcd.progress.topic_evidence import describe, lost_topics
from cdcd.sink.batches import Batch, TableBatch

Table: TypeAlias = "tuple[str, str]"
"""PostgreSQL's schema and name."""


@dataclass(frozen=True)
class CommitResult:
    """The events and positions that a committed Kafka transaction made durable."""

    end_lsn: int
    """Everything before it is in Kafka: PostgreSQL may be acknowledged this LSN."""
    commit_lsn: int
    commit_ts: int
    """Commit LSN and time (microseconds since 1970 UTC) of the last PostgreSQL transaction with rows inside. If none is
    inside, both are as in the slot record before."""
    oldest_commit_ts: int
    """Earliest commit time of the PostgreSQL transactions inside; 0 if none is."""
    transactions: int
    rows: int
    bytes: int
    counts: Mapping[Table, Mapping[int, int]]
    """Events by table and op (ASCII code)."""
    parked_counts: Mapping[Table, int]
    """Events that went to the parked topic, by table."""
    parked: Mapping[Table, ParkedTable]
    """The tables that are parked from here on."""
    opened_at: float
    """When the Kafka transaction was opened: seconds, on the clock of the publisher's caller."""


SNAPSHOT_BYTES: Final = 1 << 20
"""A transaction with so much of a snapshot expects no more: rows that are committed now wait until Kafka has it all."""


class KafkaTopic:
    """A topic that the daemon writes to, as it is known to be."""

    def __init__(self, name: str, offsets: list[int], topic_id: str = "") -> None:
        self.name = name
        self.offsets = offsets
        """The offset after this slot's last written record, for each partition; at first, where the partition ends."""
        self.topic_id = topic_id
        """As in TopicState: of the topic that the daemon began to write to."""
        self.lacks_records = False
        """As in TopicState."""

    @property
    def state(self) -> TopicState:
        """The topic as the daemon knows it. For any thread."""
        return TopicState(self.topic_id, tuple(self.offsets), self.lacks_records)

    def advance(self, partition: int, end: int, written: int) -> None:
        """Note that `written` records of this daemon are the last ones before `end`, or lie among them.

        If they begin where the partition had records before, then these are lost.
        """
        self.lacks_records = self.lacks_records or end - written < self.offsets[partition]
        self.offsets[partition] = end

    @property
    def partitions(self) -> int:
        """How many the topic has."""
        return len(self.offsets)


class Topic:
    """The topic of one table. Several tables may share one."""

    def __init__(
        self,
        name: str,
        table: Table,
        kafka: KafkaTopic,
        snapshot: SnapshotState | None,
        key_columns: tuple[str, ...] | None = None,
        oid: int | None = None,
    ) -> None:
        self.name = name
        """As TopicNames has it."""
        self.table = table
        self.kafka = kafka
        """The topic on the broker."""
        self.snapshot = snapshot
        self.key_columns = key_columns
        """As in TableRecord, at the start."""
        self.oid = oid
        """As in TableRecord, at the start."""
        self.record_form: tuple[object, TableRecordForm] | None = None
        """The form of its last table record, after the facts that this was made of."""


class KafkaTransaction:
    """The open Kafka transaction."""

    def __init__(self, opened_at: float, *, is_first: bool = False) -> None:
        """`opened_at`: seconds, on the caller's clock. `is_first`: nothing was committed since the start."""
        self.opened_at = opened_at
        self.is_first = is_first
        self.is_inside = False
        """It ends, so far, inside a PostgreSQL transaction."""
        self.more_expected = False
        """The next batch follows within milliseconds."""
        self.end_lsn = 0
        """End LSN of the last complete PostgreSQL transaction inside; 0 if there is none."""
        self.commit_lsn = 0
        self.commit_ts = 0
        self.oldest_commit_ts = 0
        self.transactions = 0
        self.rows = 0
        self.bytes = 0
        self.touched: dict[str, Topic] = {}
        """The tables' topics that it has records for, by name. Tables that share a topic have an entry each."""
        self.written: dict[tuple[str, int], int] = {}
        """Records by topic and partition."""
        self.counts: dict[Table, dict[int, int]] = {}
        self.parked_counts: dict[Table, int] = {}

    def add(self, batch: Batch) -> None:
        """Note a batch that was published."""
        if batch.snapshot_records is None:
            self.is_inside = batch.ends_inside_transaction
        self.rows += batch.rows
        self.bytes += batch.bytes
        self.transactions += batch.transactions
        if batch.end_lsn:
            self.end_lsn = batch.end_lsn
        self.more_expected = batch.more_expected
        if batch.snapshot_records is not None and (self.end_lsn > 0 or self.bytes >= SNAPSHOT_BYTES):
            self.more_expected = False  # what was committed does not wait for a snapshot, of which there is always more
        if batch.commit_lsn:
            self.commit_lsn = batch.commit_lsn
            self.commit_ts = batch.commit_ts
        if batch.transactions:
            self.oldest_commit_ts = min(self.oldest_commit_ts or batch.oldest_commit_ts, batch.oldest_commit_ts)

    def kafka_topics(self) -> dict[str, KafkaTopic]:
        """The topics on the broker that it has records of tables for, by name."""
        return {topic.kafka.name: topic.kafka for topic in self.touched.values()}

    def raise_if_lost(self, topics: Iterable[KafkaTopic]) -> None:
        """Raise TopicLost if topics lacked records when this transaction was written to them."""
        lost = {topic.name: topic.state for topic in topics if topic.lacks_records}
        if lost:
            raise TopicLost(describe(lost_topics(lost, lost)), code="topic-lost")

    def count(self, table: TableBatch) -> None:
        """Note events that went to the topics of their tables."""
        for name, counted in table.counts.items():
            counts = self.counts.setdefault(name, {})
            for op, events in counted.items():
                counts[op] = counts.get(op, 0) + events

    def count_parked(self, table: TableBatch) -> None:
        """Note the events of a refused table that went to the parked topic."""
        for name, counted in table.counts.items():
            self.parked_counts[name] = self.parked_counts.get(name, 0) + sum(counted.values())

    def result(self, record: SlotRecord, parked: Mapping[Table, ParkedTable]) -> CommitResult:
        """Return what its commit has made durable.

        `record` is its slot record; `parked` are the tables that are parked from then on.
        """
        return CommitResult(
            end_lsn=record.lsn,
            commit_lsn=record.commit_lsn,
            commit_ts=record.commit_ts,
            oldest_commit_ts=self.oldest_commit_ts,
            transactions=self.transactions,
            rows=self.rows,
            bytes=self.bytes,
            counts=self.counts,
            parked_counts=self.parked_counts,
            parked=parked,
            opened_at=self.opened_at,
        )
