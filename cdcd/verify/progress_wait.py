"""Waits until the topics of some tables have every change that was committed before an LSN.

Before: `comparison` has the LSN of its snapshot. After: `topic_replay` reads topics that are complete up to this LSN.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from cdcd.clock import monotonic_s
from cdcd.errors import RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.records import DeferredTable, ParkedTable, SlotRecord, parse_record
from cdcd.reading.consumer import TopicReader
from cdcd.source.table_selection import qualified_name, shell_word
from cdcd.terminal.progress_bar import ProgressBar

RECORDS_BACK: Final = 1_000
"""The wait starts to read the progress topic so many records before its end, where the newest slot record is."""

_BATCH_ROWS: Final = 2_000


def wait_for_progress(
    config: Mapping[str, object],
    topic: str,
    slot: str,
    lsn: int,
    tables: Collection[tuple[str, str]],
    wait_s: float,
    bar: ProgressBar,
    clock: Callable[[], float] = monotonic_s,
) -> None:
    """Wait until a slot record on `topic`, the progress topic, is at `lsn`, and all of `tables` are complete.

    `tables` are pairs of schema and name. Raises RequestRejected after `wait_s` seconds, or at once if a table is
    parked.
    """
    deadline_s = clock() + wait_s
    reached = 0
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
                            reached = record.lsn
                            incomplete = [each for each in record.incomplete if (each.schema, each.table) in tables]
    finally:
        bar.clear()


def _incomplete(table: ParkedTable | DeferredTable) -> RequestRejected:
    name = qualified_name(table.schema, table.table)
    return RequestRejected(
        f"the topic of {name} is not complete since {format_lsn(table.lsn)}: {table.reason}",
        f"Wait for its snapshot, or run cdcd unpark {shell_word(name)}; or leave the table out",
    )


def _too_late(topic: str, lsn: int, reached: int, wait_s: float) -> RequestRejected:
    at = f"got to {format_lsn(reached)}" if reached else "has no record of this slot"
    return RequestRejected(
        f"Kafka did not get to {format_lsn(lsn)} within {wait_s:.0f} s: {topic} {at}",
        "Check that the daemon runs, or give it more time with --wait",
    )
