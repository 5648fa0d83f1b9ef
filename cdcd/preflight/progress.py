"""Whether the progress that Kafka holds fits the slot, and whether a table is parked. Pure.

Before: `check` has the last slot record, and knows whether there is a slot.
After: `check` passes the findings on.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcd.lsn import format_lsn
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.progress.records import SlotRecord


def judge(last: SlotRecord | None, *, slot_exists: bool | None) -> Iterator[Finding]:
    """What the last slot record means. `slot_exists` None: PostgreSQL could not be asked."""
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
        name = f"{deferred.schema}.{deferred.table}"
        yield ok("deferred", f"The snapshot of the table {name} runs; the changes made meanwhile follow")
    for table in last.parked:
        name = f"{table.schema}.{table.table}"
        said = f"The table {name} is parked since {format_lsn(table.lsn)}: {table.reason}"
        yield warning("parked", said, f"Mend that, then run: cdcd unpark {name}")
