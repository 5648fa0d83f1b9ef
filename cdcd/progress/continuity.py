"""Whether slot, server and progress belong together: if not, going on could skip rows, which is refused.

Before: `source` says who the server is and where the slot stands, `record` what Kafka holds.
After: `pipeline` starts the stream only where this raises nothing.
Source: PostgreSQL, "Replication Slots" (`confirmed_flush_lsn`), IDENTIFY_SYSTEM.
"""

from __future__ import annotations

from cdcd.errors import GapError
from cdcd.lsn import format_lsn
from cdcd.progress.record import SlotRecord


def check_continuity(
    last: SlotRecord | None, *, slot: str, system_id: str, timeline: int, server_lsn: int, confirmed_lsn: int
) -> None:
    """Raises GapError, with the cure, unless the stream of `slot` goes on exactly where `last` ends.

    `system_id`, `timeline` and `server_lsn` (the end of its WAL) are the server's own, `confirmed_lsn` is the slot's
    `confirmed_flush_lsn`, read while this daemon held the slot. `last` is None before the first commit.
    """
    if last is None:
        return
    start_over = (
        f"If this is meant, start over under another sink.prefix or with a new slot; the topics' rows up to "
        f"{format_lsn(last.lsn)} stay as they are"
    )
    if last.system_id != system_id:
        raise GapError(
            f"this is another PostgreSQL cluster (system id {system_id}) than the one whose changes Kafka holds "
            f"({last.system_id})",
            f"Check source.dsn. {start_over}",
        )
    if timeline < last.timeline:
        raise GapError(
            f"the server is on timeline {timeline}, but Kafka holds changes of timeline {last.timeline}: "
            "it is an older copy",
            f"Connect to the promoted server. {start_over}",
        )
    if server_lsn < last.lsn:
        raise GapError(
            f"the server's WAL ends at {format_lsn(server_lsn)}, but Kafka holds changes up to {format_lsn(last.lsn)}: "
            "the server was restored to an earlier state, or lost what it had committed",
            start_over,
        )
    if confirmed_lsn > last.lsn:
        raise GapError(
            f"slot {slot} is confirmed up to {format_lsn(confirmed_lsn)}, but Kafka holds changes only up to "
            f"{format_lsn(last.lsn)}: the slot was made again, moved, or read by someone else, and what lies between "
            "is gone",
            start_over,
        )
