"""Judges whether the slot can be created or streamed from, and how much WAL the server keeps for it. Pure.

Before: `postgres_facts` has asked the server.
After: `check` passes the findings on.
Source: PostgreSQL, "pg_replication_slots".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdcd.config.settings import SourceSettings
from cdcd.lsn import format_lsn
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.progress.continuity import gap_remedy
from cdcd.source.identifiers import identifier
from cdcd.source.server_errors import lost_slot
from cdcd.source.slot import SlotState
from cdcd.source.write_transactions import WriteTransaction
from cdcd.terminal.text_format import duration, size

LONG_TRANSACTION_S: Final = 5.0
"""If there is no slot yet, an open write transaction of this age is a warning: CREATE_REPLICATION_SLOT waits for it."""

OLD_TRANSACTION_S: Final = 600.0
"""If there is a slot, an open write transaction of this age is a warning: the server keeps all WAL since it began."""

RETAINED_BYTES_SHOWN: Final = 1 << 30
"""If the server keeps more WAL for the slot, that is a warning."""

WRITERS_SHOWN: Final = 20
"""At most so many open write transactions are judged, the oldest first."""


def judge(facts: PostgresFacts, source: SourceSettings) -> Iterator[Finding]:
    """The findings about the slot of these settings."""
    writers = facts.writers[:WRITERS_SHOWN]
    if facts.slot is not None:
        yield from _existing(facts.slot, writers, source.on_slot_lost)
        if source.failover and not facts.slot.misfit and not facts.slot.failover and facts.server.version >= 170000:
            alter = f"ALTER_REPLICATION_SLOT {identifier(source.slot)} (FAILOVER true)"
            message = f"The slot {source.slot} was made without source.failover: no standby has it"
            yield warning(
                "failover",
                message,
                f"Stop the daemon, and in a replication connection: {alter}",
                code="slot-lacks-failover",
            )
    else:
        yield from _missing(source, writers)


def _missing(source: SourceSettings, writers: Sequence[WriteTransaction]) -> Iterator[Finding]:
    if not source.create:
        hint = "Run cdcd slot create, which makes it as these settings want it; or set source.create to true"
        yield error("slot", f"There is no slot {source.slot}, and source.create is false", hint, code="slot-missing")
        return
    yield ok("slot", f"There is no slot {source.slot} yet: cdcd run makes it")
    for writer in writers:
        if writer.age_s is None or writer.age_s >= LONG_TRANSACTION_S:
            message = f"To create the slot, the server waits for the write transaction {writer.name}{_age(writer)}"
            yield warning(
                "slot",
                message,
                f"Let it end before cdcd run, or end it: {writer.ending_statement}",
                code="transaction-open-long",
            )


def _existing(slot: SlotState, writers: Sequence[WriteTransaction], on_slot_lost: str) -> Iterator[Finding]:
    for writer in writers:
        if writer.age_s is not None and writer.age_s >= OLD_TRANSACTION_S:
            message = f"The server keeps all WAL since the start of the write transaction {writer.name}{_age(writer)}"
            yield warning(
                "slot", message, f"Let it end, or end it: {writer.ending_statement}", code="transaction-open-long"
            )
    if slot.misfit:
        yield error("slot", slot.misfit, slot.misfit_hint, code="slot-of-others")
    elif slot.lost:
        what, hint = lost_slot(slot.invalidation)
        message = f"The slot {slot.name} {what}"
        if on_slot_lost == "stop":
            yield error("slot", message, hint, code="slot-lost")
        else:
            yield warning("slot", message, f"cdcd run makes it again, and {gap_remedy(on_slot_lost)}", code="slot-lost")
    else:
        yield _usable(slot)


def _usable(slot: SlotState) -> Finding:
    confirmed = "nowhere yet" if slot.confirmed_flush_lsn is None else f"up to {format_lsn(slot.confirmed_flush_lsn)}"
    message = f"The slot {slot.name} is {slot.use}, confirmed {confirmed} ({size(slot.lag_bytes)} behind)"
    if slot.wal_status == "unreserved":
        hint = "Start cdcd run now, or raise max_slot_wal_keep_size"
        return warning(
            "slot", f"{message}; the WAL that it needs may go at the next checkpoint", hint, code="slot-behind"
        )
    if slot.retained_bytes > RETAINED_BYTES_SHOWN:
        hint = "Start cdcd run, and check that its lag shrinks"
        return warning(
            "slot", f"{message}; the server keeps {size(slot.retained_bytes)} of WAL for it", hint, code="slot-behind"
        )
    return ok("slot", f"{message}; the server keeps {size(slot.retained_bytes)} of WAL for it")


def _age(writer: WriteTransaction) -> str:
    return f", open for {duration(writer.age_s)}" if writer.age_s is not None else ""
