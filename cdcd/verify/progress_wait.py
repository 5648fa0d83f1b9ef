"""Waits until the topics of some tables are whole, and have every change that was committed before an LSN.

Before: `comparison` knows the tables, and then the LSN of its snapshot.
After: `topic_replay` reads topics that are complete up to this LSN.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from cdcd.clock import monotonic_s
from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.records import DeferredTable, ParkedTable, SlotRecord, parse_record
from cdcd.progress.snapshot_records import DONE, RUNNING, STOPPED, WANTED, TableSnapshot
from cdcd.reading.consumer import TopicReader
from cdcd.reading.slot_progress import open_progress
from cdcd.source.table_selection import qualified_name, shell_word
from cdcd.terminal.progress_bar import ProgressBar

RECORDS_BACK: Final = 1_000
"""The wait starts to read the progress topic so many records before its end, where the newest slot record is."""

_BATCH_ROWS: Final = 2_000
_POLL_S: Final = 0.5


class SnapshotRecords(Protocol):
    """The progress of one slot, as `sink.kafka.progress_store` reads it."""

    def parked(self) -> Mapping[str, ParkedTable]:
        """Return the parked tables."""

    def snapshots(self) -> Mapping[str, TableSnapshot]:
        """Return how far the snapshot of each table is."""


def wait_until_whole(settings: Settings, tables: Collection[tuple[str, str]], wait_s: float, bar: ProgressBar) -> None:
    """Wait as `wait_for_snapshots`, for the slot of these settings."""
    with open_progress(settings) as records:
        wait_for_snapshots(records, tables, wait_s, bar)


def partial_tables(settings: Settings) -> set[tuple[str, str]]:
    """Schema and name of the tables whose snapshots have a condition: their topics are no copies of them."""
    with open_progress(settings) as records:
        return {(each.schema, each.table) for each in records.snapshots().values() if each.where}


def check_still_whole(settings: Settings, tables: Collection[tuple[str, str]]) -> None:
    """Check as `check_none_wanted`, for the slot of these settings."""
    with open_progress(settings) as records:
        check_none_wanted(records, tables)


def wait_for_snapshots(
    records: SnapshotRecords,
    tables: Collection[tuple[str, str]],
    wait_s: float,
    bar: ProgressBar,
    clock: Callable[[], float] = monotonic_s,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until Kafka has whole snapshots of `tables`: a comparison that begins then finds no row that is on its way.

    A gap, or the end of a parking, may want a new snapshot that no slot record tells of before it begins. Raises
    RequestRejected after `wait_s` seconds, or at once if a table is parked, or if its snapshot was stopped or has a
    condition.
    """
    deadline_s = clock() + wait_s
    try:
        while True:
            for table in records.parked().values():
                if (table.schema, table.table) in tables:
                    raise _incomplete(table)
            known = records.snapshots().values()
            unfinished = _unfinished_of(known, tables)
            if partial := [each for each in known if each.where and (each.schema, each.table) in tables]:
                raise _partial(partial[0])
            if not unfinished:
                return
            stopped = [each for each in unfinished if each.state == STOPPED]
            if stopped or clock() > deadline_s:
                raise _unfinished((stopped or unfinished)[0])
            bar.show(f"waiting for the snapshot of {qualified_name(unfinished[0].schema, unfinished[0].table)}")
            sleep(_POLL_S)
    finally:
        bar.clear()


def check_none_wanted(records: SnapshotRecords, tables: Collection[tuple[str, str]]) -> None:
    """Raise RequestRejected if the topic of one of `tables` lacks changes again, since a gap was declared meanwhile."""
    for each in unfinished_snapshots(records, tables):
        if each.state in (WANTED, STOPPED):
            raise _unfinished(each)


def unfinished_snapshots(records: SnapshotRecords, tables: Collection[tuple[str, str]]) -> list[TableSnapshot]:
    """The snapshots of `tables` (schema and name) that are not finished."""
    return _unfinished_of(records.snapshots().values(), tables)


def _unfinished_of(found: Iterable[TableSnapshot], tables: Collection[tuple[str, str]]) -> list[TableSnapshot]:
    return [each for each in found if (each.schema, each.table) in tables and each.state != DONE]


def wait_for_progress(
    config: Mapping[str, object],
    topic: str,
    slot: str,
    lsn: int,
    tables: Collection[tuple[str, str]],
    wait_s: float,
    bar: ProgressBar,
    clock: Callable[[], float] = monotonic_s,
) -> int:
    """Wait until a slot record on `topic`, the progress topic, is at `lsn`, and all of `tables` are complete.

    `lsn` is the server's own; returns the same position as it is in Kafka. `tables` are pairs of schema and name.
    Raises RequestRejected after `wait_s` seconds, or at once if a table is parked.
    """
    deadline_s = clock() + wait_s
    reached = base = 0
    incomplete: list[ParkedTable | DeferredTable] = []
    try:
        with TopicReader(config) as reader:
            first, end = reader.bounds(topic, 0)
            reader.assign([(topic, 0, max(first, end - RECORDS_BACK))])
            while reached < lsn or incomplete:
                is_late = clock() > deadline_s
                is_parked = any(isinstance(each, ParkedTable) for each in incomplete)
                if reached >= lsn and (is_late or is_parked):
                    raise _incomplete(incomplete[0])
                if is_late:
                    raise _too_late(topic, lsn, reached, wait_s)
                bar.show(f"waiting for Kafka to get from {format_lsn(reached)} to {format_lsn(lsn)}")
                for message in reader.read(_BATCH_ROWS):
                    key, value = message.key(), message.value()
                    if key is not None and value is not None:
                        record = parse_record(bytes(key), bytes(value))
                        if isinstance(record, SlotRecord) and record.slot == slot:
                            reached, base = record.server_lsn, record.lsn_base
                            incomplete = [each for each in record.incomplete if (each.schema, each.table) in tables]
    finally:
        bar.clear()
    return lsn + base


def _incomplete(table: ParkedTable | DeferredTable) -> RequestRejected:
    name = qualified_name(table.schema, table.table)
    why = f"it is parked; the reason then: {table.reason}" if isinstance(table, ParkedTable) else table.reason
    return RequestRejected(
        f"the topic of {name} is not complete since {format_lsn(table.lsn)}: {why}",
        f"Wait for its snapshot, or run cdcd unpark {shell_word(name)}; or leave the table out",
        code="cut-incomplete",
    )


def _partial(table: TableSnapshot) -> RequestRejected:
    name = qualified_name(table.schema, table.table)
    return RequestRejected(
        f"the snapshot of {name} has left out rows, so its topic is no copy of the table",
        "Leave the table out. To copy all rows, remove where from its [[table]], and run: "
        f"cdcd snapshot {shell_word(name)}",
        code="snapshot-partial",
    )


def _unfinished(table: TableSnapshot) -> RequestRejected:
    name = qualified_name(table.schema, table.table)
    if table.state == STOPPED:
        return RequestRejected(
            f"the topic of {name} is not complete: its snapshot was stopped, or [[table]] forbids a new one",
            f"Run: cdcd snapshot {shell_word(name)}; or leave the table out",
            code="snapshot-stopped",
        )
    why = "its new snapshot has not begun"
    if table.state == RUNNING:
        why = DeferredTable.reason
    elif table.repair:
        why = "changes are missing, and their repair is not done"
    return RequestRejected(
        f"the topic of {name} is not complete: {why}",
        "The daemon does it by itself, unless the snapshots are paused (cdcd snapshot --resume): give it more time "
        "with --wait; or leave the table out",
        code="cut-incomplete",
    )


def _too_late(topic: str, lsn: int, reached: int, wait_s: float) -> RequestRejected:
    at = f"got to {format_lsn(reached)}" if reached else "has no record of this slot"
    return RequestRejected(
        f"Kafka did not get to {format_lsn(lsn)} within {wait_s:.0f} s: {topic} {at}",
        "Check that the daemon runs, or give it more time with --wait",
        code="kafka-behind",
    )
