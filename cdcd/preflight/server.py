"""Judges whether the server can stream: version, wal_level, slots, walsenders, timeouts, WAL retention. Pure.

Before: `postgres_facts` has asked the server.
After: `check` passes the findings on.
Source: PostgreSQL, "Logical Replication: Configuration Settings", "Replication" (max_slot_wal_keep_size).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from cdcd.config.settings import SourceSettings
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.source.replication_stream import status_interval_s
from cdcd.source.server import ServerFacts
from cdcd.source.slot import SlotState
from cdcd.terminal.text_format import duration, size

KEEP_SIZE_MB_MIN: Final = 1024
"""Below this max_slot_wal_keep_size, a short outage of Kafka can cost the slot: there is a warning."""


def judge(facts: ServerFacts, slot: SlotState | None, source: SourceSettings) -> Iterator[Finding]:
    """The findings about the server for these settings. `slot`: the daemon's slot, if it exists."""
    version = f"{facts.version // 10000}.{facts.version % 10000}"
    yield ok("server", f"PostgreSQL {version}, database {facts.database}, role {facts.role} may replicate")
    if source.origin == "none" and facts.version < 160000:
        yield error("origin", 'source.origin "none" needs PostgreSQL 16', 'Set source.origin to "any"')
    if source.streaming == "parallel" and facts.version < 160000:
        hint = 'Set source.streaming to "auto"'
        yield error("streaming", 'source.streaming "parallel" needs PostgreSQL 16', hint)
    level = facts.parameters["wal_level"]
    if level == "logical":
        yield ok("wal_level", "wal_level is logical")
    else:
        hint = "Run: ALTER SYSTEM SET wal_level = 'logical'; then restart the server"
        yield error("wal_level", f"wal_level is {level}, and must be logical", hint)
    in_use = slot is not None and slot.active
    yield _room(facts.slots, facts, "max_replication_slots", "replication slots", needed=slot is None)
    # Walsenders come and go: the daemon tries again.
    yield _room(facts.walsenders, facts, "max_wal_senders", "walsenders", needed=not in_use, finding=warning)
    timeout_s = int(facts.parameters["wal_sender_timeout"]) / 1000
    if not timeout_s:
        yield ok("wal_sender_timeout", "wal_sender_timeout is off")
    else:
        every_s = status_interval_s(source.status_interval_s, timeout_s)
        yield ok("wal_sender_timeout", f"wal_sender_timeout is {timeout_s:g} s, cdcd sends status every {every_s:g} s")
    for setting, wanted, major in (("two_phase", source.two_phase, 15), ("failover", source.failover, 17)):
        if wanted and facts.version < major * 10000:
            yield error(setting, f"source.{setting} needs PostgreSQL {major}", f"Set source.{setting} to false")
    yield from _retention(facts)


def _room(
    used: int,
    facts: ServerFacts,
    parameter: str,
    what: str,
    *,
    needed: bool,
    finding: Callable[[str, str, str], Finding] = error,
) -> Finding:
    bound = int(facts.parameters[parameter])
    if bound == 0:
        return error(parameter, f"{parameter} is 0", f"Run: ALTER SYSTEM SET {parameter} = 10; then restart the server")
    if used >= bound and needed:
        hint = f"Run: ALTER SYSTEM SET {parameter} = {bound + 5}; then restart the server. Or end one that is in use"
        return finding(parameter, f"All {bound} {what} are in use", hint)
    return ok(parameter, f"{used} of {bound} {what} are in use")


def _retention(facts: ServerFacts) -> Iterator[Finding]:
    """While no daemon streams, the server keeps WAL for the slot, until the disk is full or the slot is lost."""
    keep_mb = int(facts.parameters.get("max_slot_wal_keep_size", -1))
    if keep_mb < 0:
        yield ok("retention", "max_slot_wal_keep_size is off: no slot is lost, but watch the disk while cdcd is down")
    elif keep_mb < KEEP_SIZE_MB_MIN:
        message = f"max_slot_wal_keep_size is {size(keep_mb << 20)}: a slot is lost when its reader is that far behind"
        hint = "Run: ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf()"
        yield warning("retention", message, hint)
    else:
        yield ok(
            "retention",
            f"max_slot_wal_keep_size is {size(keep_mb << 20)}: a slot is lost when its reader is that far behind",
        )
    if timeout_s := int(facts.parameters.get("idle_replication_slot_timeout", 0)):
        message = f"idle_replication_slot_timeout invalidates a slot that no client uses for {duration(timeout_s)}"
        hint = (
            "Run: ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf(); "
            "or never stop cdcd for that long"
        )
        yield warning("retention", message, hint)
