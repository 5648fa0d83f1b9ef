"""Judges whether progress, slot and server tell one story, and whether a table is parked. Pure.

Before: `check` has the last slot record, and knows the server and the slot.
After: `check` passes the findings on. `progress.continuity` has the rules: `cdcd run` starts by the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cdcd.config.settings import SourceSettings
from cdcd.errors import CdcdError
from cdcd.lsn import format_lsn
from cdcd.preflight.findings import Finding, of_error, ok, warning
from cdcd.progress.continuity import Remains, Server, check_lost_slot, check_start, gap_remedy
from cdcd.progress.records import SlotRecord
from cdcd.progress.snapshot_records import STOPPED, TableSnapshot
from cdcd.source.table_selection import qualified_name, shell_word


def judge(
    last: SlotRecord | None,
    remains: Remains,
    source: SourceSettings,
    server: Server | None,
    progress: str,
    *,
    slot_exists: bool,
    slot_lost: bool = False,
) -> Iterator[Finding]:
    """The findings about the last slot record on the topic `progress` (None: there is none).

    `server` None: PostgreSQL did not answer. `slot_lost`: the slot exists, and can never stream again.
    """
    is_lost = slot_lost
    try:
        is_contiguous = _is_contiguous(last, remains, source, server, progress, slot_exists=slot_exists)
    except CdcdError as failure:
        is_lost |= failure.code in ("slot-lost", "slot-moved")
        yield of_error("progress", failure)
    else:
        is_lost |= not is_contiguous
        if not is_contiguous:
            message = "Kafka lacks changes that the slot does not have any more"
            yield warning(
                "progress",
                message,
                f"cdcd run {gap_remedy('' if last is None else source.on_slot_lost)}, by source.on_slot_lost",
                code="slot-lost",
            )
        elif last is None:
            yield ok("progress", "Kafka holds no progress yet: the stream begins where the slot does")
        else:
            yield ok("progress", f"Kafka holds all changes up to {format_lsn(last.lsn)}")
    if last is None:
        return
    for deferred in last.deferred:
        name = qualified_name(deferred.schema, deferred.table)
        yield ok("deferred", f"A snapshot of the table {name} is in progress; its later changes follow")
    if last.snapshots_paused:
        yield warning(
            "paused",
            "The snapshots are paused, so no table is copied",
            "To let them go on, run: cdcd snapshot --resume",
            code="snapshots-paused",
        )
    for table in last.parked:
        name = qualified_name(table.schema, table.table)
        message = f"The table {name} is parked since {format_lsn(table.lsn)}; the reason then: {table.reason}"
        hint = f"Correct the cause, then run: cdcd unpark {shell_word(name)}"
        if is_lost:
            hint = (
                f"Correct the cause; once a daemon streams again, run: cdcd unpark {shell_word(name)}. It replays the "
                "parked events, which are kept, and a new snapshot of the table follows by itself"
            )
        yield warning("parked", message, hint, code="table-parked")


def snapshots(found: Iterable[TableSnapshot]) -> Iterator[Finding]:
    """The findings about the snapshots of tables."""
    for each in found:
        if each.state == STOPPED:
            name = qualified_name(each.schema, each.table)
            yield warning(
                "snapshots",
                f"The topic of {name} lacks rows: its snapshot was stopped, or [[table]] forbids a new one",
                f"To copy the table, run: cdcd snapshot {shell_word(name)}",
                code="snapshot-stopped",
            )


def _is_contiguous(
    last: SlotRecord | None,
    remains: Remains,
    source: SourceSettings,
    server: Server | None,
    progress: str,
    *,
    slot_exists: bool,
) -> bool:
    accepts_gap = source.accepts_gap
    if server is None:
        return True
    if not slot_exists:
        check_lost_slot(last, source.slot, server, accepts_gap=accepts_gap)
    is_contiguous = check_start(last, remains, source.slot, server, progress, accepts_gap=accepts_gap)
    return is_contiguous and (slot_exists or last is None)
