"""The result of a take-over of Kafka.

Before: `kafka_takeover` makes it.
After: `wiring` builds a stream on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdcd.progress.repair_records import PendingRepair, TableRepairs
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.sink.commit_schedule import CommitSchedule
from cdcd.sink.publisher import Publisher


@dataclass(frozen=True)
class KafkaSession:
    """The result of a take-over: this daemon alone publishes for the slot."""

    publisher: Publisher
    schedule: CommitSchedule
    snapshots: Mapping[str, TableSnapshot]
    """How far the snapshot of each table is, by topic."""
    is_contiguous: bool
    """The slot has every change that Kafka lacks. If not, the daemon must declare a gap."""
    begins_at: int
    """Where the slot's stream begins: the stream has every change that was committed from there on."""
    repairs: Sequence[PendingRepair | TableRepairs]
    """The repairs of single rows: those that are asked for, and those that are done."""
    slots_of_other_databases: list[str]
    """Slots of other databases of this server that have published under this prefix; they may be gone."""
    cluster_id: str
    """The cluster's id, the same from every broker."""
    lsn_base: int = 0
    """As in SlotRecord."""
