"""Checks that slot, server and progress tell one story. If they do not, the stream could skip rows or repeat them.

Before: `source` says who the server is and where the slot stands, `records` and `snapshot_records` what Kafka holds.
After: `daemon.slot_setup` and `daemon.kafka_takeover` go on only where this raises nothing; `preflight.progress` shows
it. `transaction.sent_again` checks what only the stream can tell.
Source: PostgreSQL, "Replication Slots" (`confirmed_flush_lsn`), IDENTIFY_SYSTEM, TIMELINE_HISTORY, "Timelines".

The checks are pure: values in, an error or nothing out. There are two moments for them:

- Before the daemon fences another one, the progress that it reads may be out of date: the other may still commit.
  `check_server` raises only what a later slot record cannot refute.
- After that the progress is final, and `check_start` judges the rest.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from cdcd.errors import GapError, PostgresUnavailable, SettingsError
from cdcd.lsn import base_for, format_lsn, parse_lsn
from cdcd.progress.records import SlotRecord
from cdcd.source.server_errors import LOST_CHANGES_HINT

RESNAPSHOT: Final = 'With source.on_slot_lost = "resnapshot" cdcd takes a new snapshot of all tables and goes on.'


def gap_remedy(on_slot_lost: str) -> str:
    """What a start with this setting does about a gap."""
    if on_slot_lost == "repair":
        return "publishes the rows in which tables and topics differ"
    return "takes a new snapshot of all tables"


@dataclass(frozen=True)
class Server:
    """The server and the slot, at a moment at which this daemon held the slot, or at which there was no slot."""

    system_id: str
    timeline: int
    history: str
    """The timeline's history file: a line for each earlier timeline, with the LSN at which the server left it."""
    wal_lsn: int
    """The end of its WAL."""
    confirmed_lsn: int
    """The slot's `confirmed_flush_lsn`; 0 if there is no slot."""
    standby: bool = False
    """Whether it only replays the WAL of another server; `wal_lsn` is how far it has got."""
    database_oid: int = 0
    """The OID of the slot's database: a database keeps it when it is renamed. 0: not known."""
    slot_was_synced: bool = False
    """As a standby the server kept the slot as its primary had it: nobody has streamed from it here before."""
    lsn_base: int = 0
    """It was added to `wal_lsn` and `confirmed_lsn`: see `cdcd.lsn`. Not to the LSNs of `history`."""

    def rebased(self, lsn_base: int) -> Server:
        """The same server, with the LSNs that it has in Kafka with this base."""
        moved = lsn_base - self.lsn_base
        return replace(self, wal_lsn=self.wal_lsn + moved, confirmed_lsn=self.confirmed_lsn + moved, lsn_base=lsn_base)


@dataclass(frozen=True)
class Remains:
    """The traces that a slot leaves in Kafka beside its slot records: each was committed together with one."""

    beginning_lsn: int | None = None
    """Where the slot's stream begins, by its record on the snapshots topic; None if there is no such record."""
    snapshots: Collection[str] = ()
    """The topics whose snapshots have a record of the slot."""
    unclaimed_topics: Collection[str] = ()
    """The tables' topics with committed rows, if no slot at all has left a record that would explain them."""


def check_format(last: SlotRecord | None, event_format: str) -> None:
    """Raise SettingsError if the topics have events of another format than the settings ask for.

    `event_format`: as SlotRecord has it. No consumer reads a topic of two formats.
    """
    if last is not None and last.event_format != event_format:
        before, after = (name or "cdcd/avro" for name in (last.event_format, event_format))
        raise SettingsError(
            f'the topics of the slot "{last.slot}" have events in the format {before}, and the settings say {after}',
            "Set sink.format and sink.encoding back; or take another sink.prefix and another source.slot, whose topics "
            "begin with a snapshot",
            code="format-changed",
        )


def check_server(last: SlotRecord | None, server: Server) -> None:
    """Raise GapError if the server cannot be the one that `last` tells of, however old `last` is.

    Raises PostgresUnavailable for a standby that has to replay more WAL first.
    """
    if last is None:
        return
    server = server.rebased(last.lsn_base)
    start_over = _start_over(last)
    if last.system_id != server.system_id:
        raise GapError(
            f"this is another PostgreSQL cluster (system id {server.system_id}): Kafka holds changes of the one with "
            f"system id {last.system_id}",
            f"Check source.dsn. {start_over}",
            code="server-differs",
        )
    if last.database_oid and server.database_oid and last.database_oid != server.database_oid:
        raise GapError(
            f"source.dsn leads to the database with the OID {server.database_oid}, but Kafka holds changes of the one "
            f"with the OID {last.database_oid} (see pg_database)",
            f"Check source.dsn. {start_over}",
            code="server-differs",
        )
    if server.timeline < last.timeline:
        raise GapError(
            f"the server is on timeline {server.timeline}, but Kafka holds changes of timeline {last.timeline}: "
            "it is an older copy",
            f"Connect to the promoted server. {start_over}",
            code="server-behind-kafka",
        )
    if server.timeline > last.timeline:
        # There may be later slot records: see `check_continuity`.
        may_be_later = server.confirmed_lsn > 0 and not server.slot_was_synced
        _check_timeline(last, server, lived_through=may_be_later or server.confirmed_lsn >= last.lsn)
    if server.wal_lsn < last.lsn and server.standby:
        raise PostgresUnavailable(
            f"the standby has replayed WAL up to {format_lsn(server.wal_lsn)}, but Kafka holds changes up to "
            f"{format_lsn(last.lsn)}",
            "The daemon goes on once the standby has got there; see pg_stat_wal_receiver",
            code="standby-behind",
        )
    if server.wal_lsn < last.lsn:
        raise GapError(
            f"the server's WAL ends at {format_lsn(server.wal_lsn)}, but Kafka holds changes up to "
            f"{format_lsn(last.lsn)}: the server was restored to an earlier state, or lost what it had committed",
            start_over,
            code="server-behind-kafka",
        )


def check_start(
    last: SlotRecord | None, remains: Remains, slot: str, server: Server, progress: str, *, accepts_gap: bool = False
) -> bool:
    """Whether the stream of `slot` can go on, with nothing missing and nothing twice. All of Kafka's evidence is final.

    Returns False only with `accepts_gap`, if a gap is to be declared: new snapshots, or repairs, mend it. Raises as
    `check_first_start`, if there is no slot record on the topic `progress`, or as `check_continuity`.
    """
    if last is None:
        return check_first_start(slot, remains, progress, accepts_gap=accepts_gap)
    return check_continuity(last, slot, server, remains.beginning_lsn or 0, accepts_gap=accepts_gap)


def check_continuity(
    last: SlotRecord, slot: str, server: Server, begins_at: int = 0, *, accepts_gap: bool = False
) -> bool:
    """Whether the stream of `slot` goes on exactly where `last` ends. `last` is final: no other daemon can commit.

    `begins_at`: where the stream begins, by the snapshots topic; 0: not known.
    Returns False only with `accepts_gap`, if the slot lacks what lies between: new snapshots, or repairs, replace it.
    Raises GapError, with the hint, if the stream does not go on there; else as `check_server`.
    """
    check_server(last, server)
    server = server.rebased(last.lsn_base)
    if server.timeline > last.timeline:
        comes_again = max(server.confirmed_lsn, begins_at) <= last.commit_lsn and not server.slot_was_synced
        _check_timeline(last, server, lived_through=server.confirmed_lsn == last.lsn, comes_again=comes_again)
    if server.confirmed_lsn > last.lsn:
        if accepts_gap:
            return False
        raise GapError(
            f"slot {slot} is confirmed up to {format_lsn(server.confirmed_lsn)}, but Kafka holds changes only up to "
            f"{format_lsn(last.lsn)}: the slot was recreated, moved, or read by another client, and the changes "
            "between the two are gone",
            f"{LOST_CHANGES_HINT}. {_start_over(last)}",
            code="slot-moved",
        )
    return True


def adopted_base(last: SlotRecord | None, server: Server) -> int:
    """The base with which no LSN of `server` from `server.wal_lsn` on is below what Kafka has.

    `server` has no base yet. Raises GapError if Kafka has nothing, or no room for higher LSNs.
    """
    if last is None:
        raise GapError(
            "Kafka has no progress of this slot, so there is nothing to adopt", "Run: cdcd run", code="nothing-to-adopt"
        )
    if server.system_id == last.system_id and server.wal_lsn + last.lsn_base >= last.lsn:
        return last.lsn_base
    try:
        return base_for(server.wal_lsn, last.lsn)
    except ValueError as error:
        raise GapError(str(error), "Take a new sink.prefix", code="server-differs") from None


def check_drained(last: SlotRecord | None, slot: str, server: Server) -> bool:
    """Whether a person may say that `server` has exactly what was published; False: the stream goes on there anyway.

    Raises GapError if the evidence says otherwise: the server is the one that Kafka knows, and lacks what it has.
    """
    if last is None or last.system_id != server.system_id:
        return True
    if last.database_oid and server.database_oid and last.database_oid != server.database_oid:
        return True
    check_continuity(last, slot, server)
    return False


def migrated_record(last: SlotRecord | None, slot: str, server: Server) -> SlotRecord:
    """The record that the stream of `slot` goes on from if another program's connector has streamed from it until now.

    `last`: the last slot record, if cdcd has had the slot before. Raises GapError if cdcd would go on by itself, or
    cannot go on in these topics.
    """
    if last is not None and last.server_lsn > server.confirmed_lsn:
        raise GapError(
            f"Kafka has cdcd's progress of the slot {slot} up to {format_lsn(last.lsn)}, and the slot stands before it",
            "Run: cdcd run",
            code="slot-moved",
        )
    if last is not None and (last.incomplete or last.lsn_base):
        raise GapError(
            "events of cdcd's earlier stream are on its parked topic, or have LSNs that are not those of the server",
            "Take a new sink.prefix",
            code="connector-differs",
        )
    return SlotRecord(slot, server.confirmed_lsn, 0, 0, server.system_id, server.timeline, transactions=0, rows=0)


def check_lost_slot(last: SlotRecord | None, slot: str, server: Server, *, accepts_gap: bool = False) -> None:
    """Raise GapError if there is no slot, and a new one would not go on where `last` ends.

    With `accepts_gap` new snapshots, or repairs, replace what lies between. Else as `check_server`.
    """
    check_server(last, server)
    if last is not None and not accepts_gap:
        raise GapError(
            f"the slot {slot} does not exist any more, but Kafka holds its changes up to {format_lsn(last.lsn)}: the "
            "changes since then are gone",
            LOST_CHANGES_HINT,
            code="slot-lost",
        )


def check_first_start(slot: str, remains: Remains, progress: str, *, accepts_gap: bool = False) -> bool:
    """Whether a slot without a slot record on the topic `progress` never had one.

    Returns False only with `accepts_gap`, if it had one: a new snapshot of the tables replaces all that Kafka holds.
    Raises GapError, with the hint, if it had one.
    """
    if remains.beginning_lsn is not None:
        trace = f"the snapshots topic says that its stream begins at {format_lsn(remains.beginning_lsn)}"
    elif remains.snapshots:
        trace = f"the snapshots topic has the snapshot of {_first(remains.snapshots)}"
    elif remains.unclaimed_topics:
        trace = f"there are rows on {_first(remains.unclaimed_topics)}"
    else:
        return True
    if accepts_gap:
        return False
    raise GapError(
        f"Kafka has no progress of the slot {slot}, but {trace}: the records of {progress} are lost, and the stream "
        "would publish rows a second time",
        f"{RESNAPSHOT} Or bring the records of {progress} back; or take a new sink.prefix",
        code="progress-lost",
    )


def check_recorded(last: SlotRecord, beyond: str, progress: str, *, accepts_gap: bool = False) -> bool:
    """Whether `last` is the last slot record that was written. `beyond`: a topic with later rows; empty: there is none.

    Returns False only with `accepts_gap`, if later records are lost: a new snapshot of the tables replaces all that
    Kafka holds. Raises GapError, with the hint, if they are lost.
    """
    if not beyond:
        return True
    if accepts_gap:
        return False
    raise GapError(
        f"{beyond} has committed rows behind {format_lsn(last.lsn)}, where the progress of the slot {last.slot} ends: "
        f"the last records of {progress} are lost, and the stream would publish rows a second time",
        f'{RESNAPSHOT} Or bring the records of {progress} back. If sink.delivery was "at_least_once" until now, start '
        "once more with it",
        code="progress-lost",
    )


def _check_timeline(last: SlotRecord, server: Server, *, lived_through: bool, comes_again: bool = False) -> None:
    """Raise GapError if the server left the timeline of `last` before the progress ends.

    A standby that is promoted while it streams to the daemon sends more, and the daemon does not notice at once: it
    gives what follows the old timeline's number. Two things prove that the server has it all the same:

    1. `lived_through`: its slot stands exactly where the progress ends. A slot of another origin does not.
    2. `comes_again`: the server must send the last published transaction again, with its time
       (`transaction.sent_again`). If that commits after the promotion, then no other server has it.
    """
    left_at = left_timeline(server.history, last.timeline)
    if left_at is not None:
        left_at += server.lsn_base
    is_proven = lived_through or (comes_again and left_at is not None and left_at <= last.commit_lsn)
    if left_at is None or (last.lsn > left_at and not is_proven):
        where = "did not come from it" if left_at is None else f"left it at {format_lsn(left_at)}"
        raise GapError(
            f"Kafka holds changes of timeline {last.timeline} up to {format_lsn(last.lsn)}, but the server's "
            f"timeline {server.timeline} {where}: it does not have all that was published",
            f"Some published rows are not in the database any more. {_start_over(last)}",
            code="server-behind-kafka",
        )


def _start_over(last: SlotRecord) -> str:
    return (
        f"If the stream is to go on here, run: cdcd adopt. Or start over under another sink.prefix; the topics' rows "
        f"up to {format_lsn(last.lsn)} stay as they are"
    )


def _first(topics: Collection[str]) -> str:
    more = f" and {len(topics) - 1} more" if len(topics) > 1 else ""
    return f"{min(topics)}{more}"


def left_timeline(history: str, timeline: int) -> int | None:
    """Return the LSN at which the server left `timeline`, by its history file; None if it never was on it.

    A line is: timeline, tab, LSN, tab, reason; `#` starts a comment.
    """
    for line in history.splitlines():
        fields = line.split("#")[0].split()
        if len(fields) >= 2 and fields[0] == str(timeline):
            return parse_lsn(fields[1])
    return None
