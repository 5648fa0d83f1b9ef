"""Checks that slot, server and progress belong together. If they do not, the stream could skip rows.

Before: `source` says who the server is and where the slot stands, `records` what Kafka holds.
After: `daemon.kafka_takeover` lets the stream start only where this raises nothing.
Source: PostgreSQL, "Replication Slots" (`confirmed_flush_lsn`), IDENTIFY_SYSTEM, TIMELINE_HISTORY, "Timelines".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdcd.errors import GapError, PostgresUnavailable
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.records import SlotRecord

RESNAPSHOT: Final = 'With source.on_slot_lost = "resnapshot" cdcd takes a new snapshot of all tables and goes on.'


@dataclass(frozen=True)
class Server:
    """The server and the slot, at a moment at which this daemon held the slot."""

    system_id: str
    timeline: int
    history: str
    """The timeline's history file: a line for each earlier timeline, with the LSN at which the server left it."""
    wal_lsn: int
    """The end of its WAL."""
    confirmed_lsn: int
    """The slot's `confirmed_flush_lsn`."""
    standby: bool = False
    """Whether it only replays the WAL of another server; `wal_lsn` is how far it has got."""


def check_continuity(last: SlotRecord | None, slot: str, server: Server, *, resnapshot: bool = False) -> bool:
    """Whether the stream of `slot` goes on exactly where `last` ends; `last` is None before the first commit.

    Returns False only with `resnapshot`, if the slot lacks what lies between: a new snapshot of the tables replaces it.
    Raises GapError, with the hint, if the stream does not go on there; PostgresUnavailable for a standby that has to
    replay more WAL first.
    """
    if last is None:
        return True
    start_over = (
        f"If this is meant, start over under another sink.prefix or with a new slot; the topics' rows up to "
        f"{format_lsn(last.lsn)} stay as they are"
    )
    if last.system_id != server.system_id:
        raise GapError(
            f"this is another PostgreSQL cluster (system id {server.system_id}): Kafka holds changes of the one with "
            f"system id {last.system_id}",
            f"Check source.dsn. {start_over}",
        )
    if server.timeline < last.timeline:
        raise GapError(
            f"the server is on timeline {server.timeline}, but Kafka holds changes of timeline {last.timeline}: "
            "it is an older copy",
            f"Connect to the promoted server. {start_over}",
        )
    if server.timeline > last.timeline:
        left_at = left_timeline(server.history, last.timeline)
        # A standby that was promoted while it streamed to the daemon has sent more, under the old timeline's number.
        # Then its slot stands exactly where the progress ends. A slot of another origin does not stand exactly there.
        if left_at is None or (last.lsn > left_at and last.lsn != server.confirmed_lsn):
            where = "did not come from it" if left_at is None else f"left it at {format_lsn(left_at)}"
            raise GapError(
                f"Kafka holds changes of timeline {last.timeline} up to {format_lsn(last.lsn)}, but the server's "
                f"timeline {server.timeline} {where}: it does not have all that was published",
                f"Some published rows are not in the database any more. {start_over}",
            )
    if server.wal_lsn < last.lsn and server.standby:
        raise PostgresUnavailable(
            f"the standby has replayed WAL up to {format_lsn(server.wal_lsn)}, but Kafka holds changes up to "
            f"{format_lsn(last.lsn)}",
            "The daemon goes on once the standby has got there; see pg_stat_wal_receiver",
        )
    if server.wal_lsn < last.lsn:
        raise GapError(
            f"the server's WAL ends at {format_lsn(server.wal_lsn)}, but Kafka holds changes up to "
            f"{format_lsn(last.lsn)}: the server was restored to an earlier state, or lost what it had committed",
            start_over,
        )
    if server.confirmed_lsn > last.lsn:
        if resnapshot:
            return False
        raise GapError(
            f"slot {slot} is confirmed up to {format_lsn(server.confirmed_lsn)}, but Kafka holds changes only up to "
            f"{format_lsn(last.lsn)}: the slot was recreated, moved, or read by another client, and the changes "
            "between the two are gone",
            f"{RESNAPSHOT} {start_over}",
        )
    return True


def left_timeline(history: str, timeline: int) -> int | None:
    """Return the LSN at which the server left `timeline`, by its history file; None if it never was on it.

    A line is: timeline, tab, LSN, tab, reason; `#` starts a comment.
    """
    for line in history.splitlines():
        fields = line.split("#")[0].split()
        if len(fields) >= 2 and fields[0] == str(timeline):
            return parse_lsn(fields[1])
    return None
