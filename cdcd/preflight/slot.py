"""Whether the slot can be made, or be streamed from; and how much WAL it holds back. Pure.

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
from cdcd.source.identifiers import identifier, literal
from cdcd.source.slot import SlotState
from cdcd.source.write_transactions import WriteTransaction
from cdcd.terminal.text_format import duration, size

LONG_TRANSACTION_S: Final = 5.0
"""An open write transaction of this age deserves a warning before the slot is made: making it waits."""

OLD_TRANSACTION_S: Final = 600.0
"""And one of this age where there is a slot: the server keeps all WAL since it began."""

RETAINED_BYTES_SHOWN: Final = 1 << 30
"""WAL that the slot may keep before it deserves a warning."""

WRITERS_SHOWN: Final = 20
"""Open write transactions that are looked at, the oldest first."""


def judge(facts: PostgresFacts, source: SourceSettings) -> Iterator[Finding]:
    """What the facts mean for the slot of these settings."""
    writers = facts.writers[:WRITERS_SHOWN]
    if facts.slot is not None:
        yield from _existing(facts.slot, facts.server.database, writers)
        if source.failover and not facts.slot.failover and facts.server.version >= 170000:
            alter = f"ALTER_REPLICATION_SLOT {identifier(source.slot)} (FAILOVER true)"
            message = f"The slot {source.slot} was made without source.failover: no standby has it"
            yield warning("failover", message, f"Stop the daemon, and in a replication connection: {alter}")
    elif facts.slot_is_physical:
        yield error("slot", f"The slot {source.slot} is a physical one, not of pgoutput", "Choose another source.slot")
    else:
        yield from _missing(source, writers)


def _missing(source: SourceSettings, writers: Sequence[WriteTransaction]) -> Iterator[Finding]:
    if not source.create:
        hint = "Run cdcd slot create, which makes it as these settings want it; or set source.create to true"
        yield error("slot", f"There is no slot {source.slot}, and source.create is false", hint)
        return
    yield ok("slot", f"There is no slot {source.slot} yet: cdcd run makes it")
    for writer in writers:
        if writer.age_s is None or writer.age_s >= LONG_TRANSACTION_S:
            message = f"Making the slot waits for a transaction that writes{_since(writer)}: {writer.name}"
            yield warning("slot", message, f"Let it end before cdcd run, or end it: {writer.ending_statement}")


def _existing(slot: SlotState, database: str, writers: Sequence[WriteTransaction]) -> Iterator[Finding]:
    for writer in writers:
        if writer.age_s is not None and writer.age_s >= OLD_TRANSACTION_S:
            message = f"A transaction that writes{_since(writer)} holds back all WAL since: {writer.name}"
            yield warning("slot", message, f"Let it end, or end it: {writer.ending_statement}")
    name = slot.name
    if slot.plugin != "pgoutput":
        yield error("slot", f"The slot {name} is of plugin {slot.plugin}, not pgoutput", "Choose another source.slot")
    elif slot.database != database:
        hint = "Choose another source.slot, or the slot's database in source.dsn"
        yield error("slot", f"The slot {name} is of database {slot.database}, not {database}", hint)
    elif slot.lost:
        reason = slot.invalidation or "the WAL that it needs is gone"
        drop = f"SELECT pg_drop_replication_slot({literal(name)})"
        hint = f"Run: {drop}; the daemon then starts with a new slot, and a gap in the rows is likely"
        yield error("slot", f"The slot {name} is invalid: {reason}", hint)
    else:
        yield _usable(slot)


def _usable(slot: SlotState) -> Finding:
    used = f"in use by pid {slot.active_pid}" if slot.active else "not in use"
    confirmed = "nowhere yet" if slot.confirmed_flush_lsn is None else f"up to {format_lsn(slot.confirmed_flush_lsn)}"
    message = f"The slot {slot.name} is {used}, confirmed {confirmed} ({size(slot.lag_bytes)} behind)"
    if slot.wal_status == "unreserved":
        hint = "Start cdcd run now, or raise max_slot_wal_keep_size"
        return warning("slot", f"{message}; the WAL that it needs may go at the next checkpoint", hint)
    if slot.retained_bytes > RETAINED_BYTES_SHOWN:
        hint = "Start cdcd run, and see that it keeps up"
        return warning("slot", f"{message}; the server keeps {size(slot.retained_bytes)} of WAL for it", hint)
    return ok("slot", f"{message}; the server keeps {size(slot.retained_bytes)} of WAL for it")


def _since(writer: WriteTransaction) -> str:
    return f" for {duration(writer.age_s)}" if writer.age_s is not None else ""
