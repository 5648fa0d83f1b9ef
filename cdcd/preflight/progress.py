"""Judges whether the progress in Kafka belongs to the slot, and whether a table is parked. Pure.

Before: `check` has the last slot record, and knows whether the slot exists.
After: `check` passes the findings on.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcd.lsn import format_lsn
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.progress.records import SlotRecord
from cdcd.source.table_selection import qualified_name


def judge(last: SlotRecord | None, *, slot_exists: bool | None) -> Iterator[Finding]:
    """The findings about the last slot record (None: there is none). `slot_exists` None: PostgreSQL did not answer."""
    if last is None:
        yield ok("progress", "Kafka holds no progress yet: the stream begins where the slot does")
        return
    where = format_lsn(last.lsn)
    if slot_exists is False:
        hint = "Take a new slot name (source.slot) or a new sink.prefix, and a new snapshot of the tables"
        yield error("progress", f"Kafka holds changes up to {where}, but the slot {last.slot} is gone", hint)
    else:
        yield ok("progress", f"Kafka holds all changes up to {where}")
    for deferred in last.deferred:
        name = qualified_name(deferred.schema, deferred.table)
        yield ok("deferred", f"A snapshot of the table {name} is in progress; its later changes follow")
    for table in last.parked:
        name = qualified_name(table.schema, table.table)
        message = f"The table {name} is parked since {format_lsn(table.lsn)}: {table.reason}"
        yield warning("parked", message, f"Correct the cause, then run: cdcd unpark {name}")
