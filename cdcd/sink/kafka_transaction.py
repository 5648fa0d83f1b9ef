"""What one Kafka transaction holds: while it is open, and when its commit has made it durable.

Before: `publisher` opens it, and notes what it publishes into it. After: `group_commit` sees how large and how old it
is; what is durable goes back to the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cdcd.progress.records import ParkedTable, SlotRecord, SnapshotState
from cdcd.sink.batches import Batch, TableBatch
from cdcd.sink.group_commit import KafkaTransactionStats

Table: TypeAlias = "tuple[str, str]"
"""PostgreSQL's schema and name."""


@dataclass(frozen=True)
class CommitResult:
    """What a committed Kafka transaction holds."""

    end_lsn: int
    """Everything before it is in Kafka: what may be acknowledged."""
    commit_lsn: int
    commit_ts: int
    """Of the last PostgreSQL transaction inside, microseconds since 1970 UTC; as in the record before if none is."""
    first_commit_ts: int
    """Of the first PostgreSQL transaction inside; 0 if none is."""
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
    """When the Kafka transaction was opened, as `publish` was told."""


class Topic:
    """A table's topic, once it was touched."""

    def __init__(self, name: str, table: Table, offsets: list[int], snapshot: SnapshotState | None) -> None:
        self.name = name
        self.table = table
        self.offsets = offsets
        """Of each partition, where our last flushed record ends; at first, where the partition does."""
        self.snapshot = snapshot

    @property
    def partitions(self) -> int:
        """How many it has."""
        return len(self.offsets)


class KafkaTransaction:
    """Of the open Kafka transaction, so far."""

    def __init__(self, opened_at: float, first: bool) -> None:
        self.opened_at = opened_at
        self.first = first
        self.inside = False
        self.end_lsn = 0
        self.commit_lsn = 0
        self.commit_ts = 0
        self.first_commit_ts = 0
        self.transactions = 0
        self.rows = 0
        self.bytes = 0
        self.gap_lsn = 0
        self.touched: dict[str, Topic] = {}
        self.opens_progress = False
        """The progress has its first record in it."""
        self.counts: dict[Table, dict[int, int]] = {}
        self.parked_counts: dict[Table, int] = {}

    def add(self, batch: Batch) -> None:
        """Note a batch that was published."""
        if batch.copies is None:
            self.inside = batch.open
        self.rows += batch.rows
        self.bytes += batch.bytes
        self.transactions += batch.transactions
        if batch.end_lsn:
            self.end_lsn = batch.end_lsn
        if batch.transactions:
            self.commit_lsn = batch.commit_lsn
            self.commit_ts = batch.commit_ts
            self.first_commit_ts = self.first_commit_ts or batch.first_commit_ts

    def count(self, table: TableBatch) -> None:
        """Note the events of a table that went to its own topic."""
        counts = self.counts.setdefault((table.schema, table.name), {})
        for op, events in table.counts.items():
            counts[op] = counts.get(op, 0) + events

    @property
    def seen(self) -> KafkaTransactionStats:
        """As the policy of commits sees it."""
        return KafkaTransactionStats(self.opened_at, self.rows, self.bytes, self.inside, self.end_lsn, self.first)

    def durable(self, record: SlotRecord, parked: Mapping[Table, ParkedTable]) -> CommitResult:
        """What its commit has made durable; `record` was its last, `parked` are the tables parked from here on."""
        return CommitResult(
            end_lsn=record.lsn,
            commit_lsn=record.commit_lsn,
            commit_ts=record.commit_ts,
            first_commit_ts=self.first_commit_ts,
            transactions=self.transactions,
            rows=self.rows,
            bytes=self.bytes,
            counts=self.counts,
            parked_counts=self.parked_counts,
            parked=parked,
            opened_at=self.opened_at,
        )
