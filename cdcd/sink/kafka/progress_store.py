"""Reads the progress of one slot: the last slot record, the parked tables, and how far each table's snapshot is.

Before: `publisher` has committed the progress together with the rows.
After: the daemon continues from the progress at a start; `cdcd slot`, `snapshot`, `unpark` and `check` only show it.
Source: `progress.records` and `progress.snapshot_records` have the format.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from cdcd.progress.records import (
    ParkedTable,
    SlotRecord,
    TableRecord,
    parse_slot_record,
    parse_table_record,
    slot_key,
    table_key,
)
from cdcd.progress.snapshot_records import TableSnapshot, parse_snapshot_record
from cdcd.sink.interfaces import PartitionReader
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.topics import TopicNames
from cdcd.source.table_selection import qualified_name

SETTLE_S: Final = 10.0
_SETTLE_POLL_S: Final = 0.02


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

    def visible_record(self) -> SlotRecord | None:
        """The last slot record before the first open transaction: it does not wait, so there may be a later one."""
        return self._last(self._kafka.range_reader(self.names.progress, end="last_stable"))

    def last_record(self) -> SlotRecord | None:
        """The last slot record that can be read now, None if there is none.

        It is final only once the daemon's producer has started. It waits for open transactions.
        """
        return self._last(self._kafka.range_reader(self.names.progress))

    def _last(self, progress: PartitionReader) -> SlotRecord | None:
        key = slot_key(self._slot)
        value = KafkaProgressReader(progress, self._rank).last(frozenset({key}), self._stopping).get(key)
        return None if value is None else parse_slot_record(key, value)

    def table_records(self, offset: int) -> dict[str, tuple[TableRecord, int]]:
        """The newest table records from `offset` on, by topic, each with its own offset.

        An open transaction hides the records after it, so it does not wait for its end.
        """
        prefix = table_key(self._slot, "")
        reader = KafkaProgressReader(self._kafka.range_reader(self.names.progress, end="last_stable"))
        found = {}
        for at, key, value in reader.records_from(offset, self._stopping):
            if key.startswith(prefix):
                record = parse_table_record(key, value)
                found[record.topic] = record, at
        return found

    def parked(self) -> dict[str, ParkedTable]:
        """The tables that are parked because Kafka refused their events, as can be read now, by their names."""
        last = self.last_record()
        parked = last.parked if last is not None else ()
        return {qualified_name(each.schema, each.table): each for each in parked}

    def snapshots(self) -> dict[str, TableSnapshot]:
        """How far the snapshot of each table is, by topic, as can be read now."""
        found = self._reader(self.names.snapshots, None).every(self._stopping)
        snapshots = [parse_snapshot_record(key, value) for key, value in found.items()]
        return {each.topic: each for each in snapshots if each.slot == self._slot}

    def settle(self) -> None:
        """Wait until the snapshots that were committed a moment ago can be read, for SETTLE_S at most.

        Kafka says that a transaction is committed before its partitions show it.
        """
        deadline = time.monotonic() + SETTLE_S
        while self._kafka.admin.unstable(self.names.snapshots) and time.monotonic() < deadline:
            time.sleep(_SETTLE_POLL_S)

    def _reader(self, topic: str, rank: Callable[[bytes, bytes], int] | None) -> KafkaProgressReader:
        return KafkaProgressReader(self._kafka.range_reader(topic), rank)
