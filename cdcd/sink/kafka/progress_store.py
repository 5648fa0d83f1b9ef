"""Reads the progress of one slot: the last slot record, the parked tables, and how far each table's snapshot is.

Before: `publisher` has committed the progress together with the rows.
After: the daemon continues from the progress at a start, once `progress.continuity` has judged it; `cdcd slot`,
`snapshot`, `unpark` and `check` only show it.
Source: `progress.records` and `progress.snapshot_records` have the format.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from cdcd.progress.continuity import Remains
from cdcd.progress.records import (
    ParkedTable,
    SlotRecord,
    TableRecord,
    kafka_topic,
    parse_slot_record,
    parse_table_record,
    slot_key,
    table_key,
)
from cdcd.progress.repair_records import PendingRepair, TableRepairs, is_repair_record, parse_repair_record
from cdcd.progress.schema_ids import SchemaId, is_schema_id, parse_schema_id
from cdcd.progress.slot_beginnings import SlotBeginning, parse_beginning
from cdcd.progress.snapshot_records import TableSnapshot, parse_snapshot_record
from cdcd.sink.interfaces import PartitionReader
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.committed_rows import topic_with_rows
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.topics import TopicNames
from cdcd.source.table_selection import qualified_name

SETTLE_S: Final = 10.0
_SETTLE_POLL_S: Final = 0.02


@dataclass(frozen=True)
class SnapshotsTopic:
    """The content of the topic `{prefix}.snapshots`."""

    snapshots: dict[str, TableSnapshot]
    """How far the snapshot of each table of this slot is, by topic."""
    beginnings: dict[str, SlotBeginning]
    """Where the stream of each slot begins, by the slot's name."""
    is_empty: bool
    """It has no record of any slot."""
    repairs: tuple[PendingRepair | TableRepairs, ...] = ()
    """The repairs of this slot's tables."""
    schema_ids: tuple[SchemaId, ...] = ()
    """The ids that schema registries gave this slot's schemas."""

    def slots_of_other_databases(self, system_id: str, database_oid: int) -> list[str]:
        """The slots of other databases of this PostgreSQL cluster that have published under the prefix."""
        return [
            each.slot
            for each in self.beginnings.values()
            if each.system_id == system_id and database_oid and each.database_oid not in (0, database_oid)
        ]


@dataclass(frozen=True)
class TableRecords:
    """Table records on the topic `{prefix}.progress`, from some offset on."""

    own: Mapping[str, tuple[TableRecord, int]]
    """The newest of this slot by topic, each with its own offset."""
    of_others: AbstractSet[str]
    """The topics that other slots have records of."""
    read_from: int


class ProgressStore:
    """The progress of one slot, read only. All methods raise as Kafka's readers do."""

    def __init__(
        self,
        kafka: KafkaCluster,
        names: TopicNames,
        slot: str,
        rank: Callable[[bytes, bytes], int] | None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`rank` is that of the delivery mode: the highest slot record counts; None: the last one.

        `stopping` ends the reading early: the result is incomplete then.
        """
        self._kafka = kafka
        self.names = names
        self._slot = slot
        self._rank = rank
        self._stopping = stopping
        self._visible: tuple[tuple[int, int] | None, SlotRecord | None] | None = None
        """The result of `visible_record`, and between which offsets it lies."""

    def visible_record(self) -> SlotRecord | None:
        """The last slot record before the first open transaction: it does not wait, so there may be a later one."""
        reader = self._kafka.range_reader(self.names.progress, end="last_stable")
        bounds = reader.bounds()
        record = self._last(reader, bounds)
        if not self._stopping():
            self._visible = bounds, record
        return record

    def last_record(self) -> SlotRecord | None:
        """The last slot record that can be read now, None if there is none.

        It is final only once the daemon's producer has started. It waits for open transactions.
        """
        reader = self._kafka.range_reader(self.names.progress)
        bounds = reader.bounds()
        if self._visible is not None and bounds is not None and self._visible[0] == bounds:
            return self._visible[1]  # nothing was written since, and nothing was open
        return self._last(reader, bounds)

    def _last(self, reader: PartitionReader, bounds: tuple[int, int] | None) -> SlotRecord | None:
        key = slot_key(self._slot)
        value = KafkaProgressReader(reader, self._rank).last(frozenset({key}), self._stopping, bounds).get(key)
        return None if value is None else parse_slot_record(key, value)

    def table_records(self, offset: int) -> TableRecords:
        """The newest table records from `offset` on, which is as the last slot record says.

        An open transaction hides the records after it, so it does not wait for its end. If the topic ends before
        `offset`, then it was made again, and its records were brought back: all are read.
        """
        own = table_key(self._slot, "")
        reader = self._kafka.range_reader(self.names.progress, end="last_stable")
        start, stop = reader.bounds() or (0, 0)
        read_from = offset if offset <= stop else start
        found, others = dict[str, tuple[TableRecord, int]](), set[str]()
        for at, key, value in KafkaProgressReader(reader).records(max(start, read_from), stop, self._stopping):
            if key.startswith(own):
                record = parse_table_record(key, value)
                found[record.topic] = record, at
            else:
                others.add(key.partition(b"/")[2].decode())
        return TableRecords(found, others - {""}, read_from)

    def parked(self) -> dict[str, ParkedTable]:
        """The tables that are parked because Kafka refused their events, as can be read now, by their names."""
        last = self.last_record()
        parked = last.parked if last is not None else ()
        return {qualified_name(each.schema, each.table): each for each in parked}

    def snapshots(self) -> dict[str, TableSnapshot]:
        """How far the snapshot of each table is, by topic, as can be read now."""
        return self.snapshots_topic().snapshots

    def snapshots_topic(self) -> SnapshotsTopic:
        """All that the snapshots topic tells, as can be read now."""
        found = KafkaProgressReader(self._kafka.range_reader(self.names.snapshots)).every(self._stopping)
        repairs = [parse_repair_record(key, value) for key, value in found.items() if is_repair_record(key)]
        tables = [parse_snapshot_record(key, value) for key, value in found.items() if key.count(b"/") == 1]
        beginnings = [parse_beginning(key, value) for key, value in found.items() if b"/" not in key]
        ids = [parse_schema_id(value) for key, value in found.items() if is_schema_id(key)]
        return SnapshotsTopic(
            {each.topic: each for each in tables if each.slot == self._slot},
            {each.slot: each for each in beginnings},
            is_empty=not found,
            repairs=tuple(each for each in repairs if each.slot == self._slot),
            schema_ids=tuple(each for each in ids if each is not None and each.slot == self._slot),
        )

    def remains(self, found: SnapshotsTopic, topics: Collection[str]) -> Remains:
        """The traces of a slot without a slot record: on the snapshots topic, as `found`, and on the tables' topics.

        `topics` are those of the published tables. Without transactions, snapshots and rows can be read before the
        first slot record: so they are no traces.
        """
        beginning = found.beginnings.get(self._slot)
        begins_at = None if beginning is None else beginning.lsn
        if self._rank is not None:
            return Remains(begins_at)
        on_broker = {kafka_topic(topic) for topic in topics}
        unclaimed = topic_with_rows(self._kafka, self.names, on_broker, self._stopping) if found.is_empty else []
        if unclaimed and not self.snapshots_topic().is_empty:
            unclaimed = []  # another slot has published its first rows meanwhile, and its record with them
        return Remains(begins_at, found.snapshots, unclaimed)

    def settle(self) -> None:
        """Wait until the snapshots that were committed a moment ago can be read, for SETTLE_S at most.

        Kafka says that a transaction is committed before its partitions show it.
        """
        deadline = time.monotonic() + SETTLE_S
        while self._kafka.admin.unstable(lambda topic: topic == self.names.snapshots) and time.monotonic() < deadline:
            time.sleep(_SETTLE_POLL_S)
