"""Judges whether the server can stream: version, wal_level, slots, walsenders, timeouts, WAL retention. Pure.

Before: `postgres_facts` has asked the server.
After: `check` passes the findings on.
Source: PostgreSQL, "Logical Replication: Configuration Settings", "Replication" (max_slot_wal_keep_size).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from cdcd.config.settings import SourceSettings
from cdcd.error_codes import Code
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.source.replication_stream import status_interval_s
from cdcd.source.server import ServerFacts
from cdcd.source.server_errors import STANDBY_AWAY_HINT
from cdcd.source.session import version_text
from cdcd.source.slot import SlotState
from cdcd.source.standby_slots import FAILOVER_SINCE
from cdcd.terminal.text_format import duration, size

STANDBY_VERSION_MIN: Final = 160_000
"""The first version that decodes on a standby."""

KEEP_SIZE_MB_MIN: Final = 1024
"""Below this max_slot_wal_keep_size, a short outage of Kafka can cost the slot: there is a warning."""


def judge(facts: ServerFacts, slot: SlotState | None, source: SourceSettings) -> Iterator[Finding]:
    """The findings about the server for these settings. `slot`: the daemon's slot, if it exists."""
    server = version_text(facts.version)
    yield ok("server", f"{server}, database {facts.database}, role {facts.role} may replicate", seen=server)
    if source.origin == "none" and facts.version < 160000:
        yield error(
            "origin", 'source.origin "none" needs PostgreSQL 16', 'Set source.origin to "any"', code="server-too-old"
        )
    if source.streaming == "parallel" and facts.version < 160000:
        hint = 'Set source.streaming to "auto"'
        yield error("streaming", 'source.streaming "parallel" needs PostgreSQL 16', hint, code="server-too-old")
    level = facts.parameters["wal_level"]
    if level == "logical":
        yield ok("wal_level", "wal_level is logical")
    else:
        hint = "Run: ALTER SYSTEM SET wal_level = 'logical'; then restart the server"
        yield error("wal_level", f"wal_level is {level}, and must be logical", hint, code="wal-level-insufficient")
    in_use = slot is not None and slot.active
    yield _room(facts.slots, facts, "max_replication_slots", "slots-exhausted", needed=slot is None)
    # Walsenders come and go: the daemon tries again.
    yield _room(facts.walsenders, facts, "max_wal_senders", "walsenders-exhausted", needed=not in_use, finding=warning)
    timeout_s = int(facts.parameters["wal_sender_timeout"]) / 1000
    if not timeout_s:
        message = "wal_sender_timeout is off: if this daemon's connection is lost, no other daemon gets the slot"
        hint = "Run: ALTER SYSTEM SET wal_sender_timeout = '60s'; SELECT pg_reload_conf()"
        yield warning("wal_sender_timeout", message, hint, code="walsender-timeout-off")
    else:
        every_s = status_interval_s(source.status_interval_s, timeout_s)
        yield ok("wal_sender_timeout", f"wal_sender_timeout is {timeout_s:g} s, cdcd sends status every {every_s:g} s")
    for setting, wanted, major in (("two_phase", source.two_phase, 15), ("failover", source.failover, 17)):
        if wanted and facts.version < major * 10000:
            yield error(
                setting,
                f"source.{setting} needs PostgreSQL {major}",
                f"Set source.{setting} to false",
                code="server-too-old",
            )
    if facts.is_standby:
        yield from _standby(facts, source)
    elif facts.version >= FAILOVER_SINCE and (source.failover if slot is None else slot.failover):
        yield from _synchronized_standbys(facts)
    yield from _retention(facts)


def _standby(facts: ServerFacts, source: SourceSettings) -> Iterator[Finding]:
    """A standby decodes what its primary writes, and can change nothing."""
    of = f" of {facts.sender}" if facts.sender else ""
    if facts.version < STANDBY_VERSION_MIN:
        hint = "Name the primary in source.dsn"
        yield error(
            "standby",
            f"This is a standby{of}, and logical decoding on a standby needs PostgreSQL 16",
            hint,
            code="server-too-old",
        )
        return
    yield ok("standby", f"This is a standby{of}: what has to be made or changed is made there")
    if source.failover:
        message = "A standby cannot make a failover slot"
        yield error(
            "failover",
            message,
            "Set source.failover to false, or name the primary in source.dsn",
            code="primary-needed",
        )
    if facts.parameters["hot_standby_feedback"] != "on":
        message = "hot_standby_feedback is off: a VACUUM on the primary can invalidate the slot, and ends snapshots"
        hint = "Run on the standby: ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf()"
        yield warning("hot_standby_feedback", message, hint, code="recovery-conflict")
    elif not facts.parameters["primary_slot_name"]:
        message = (
            "The standby has no slot on its primary: hot_standby_feedback ends with each break of their connection"
        )
        hint = (
            "Run on the primary: SELECT pg_create_physical_replication_slot('standby'); and on the standby: "
            "ALTER SYSTEM SET primary_slot_name = 'standby'; SELECT pg_reload_conf()"
        )
        yield warning("hot_standby_feedback", message, hint, code="recovery-conflict")


def _synchronized_standbys(facts: ServerFacts) -> Iterator[Finding]:
    """The standbys that must have a change before a failover slot gets it."""
    about = "synchronized_standby_slots"
    if not facts.standby_slots:
        message = f"{about} is empty: cdcd may publish what no standby has, and refuses a standby that is promoted then"
        hint = (
            "Name the physical slots of the standbys, which pg_replication_slots has: "
            f"ALTER SYSTEM SET {about} = '...'; SELECT pg_reload_conf()"
        )
        yield warning(about, message, hint, code="standby-not-synchronized")
    for standby in facts.standby_slots:
        if standby.problem:
            message = f"The slot {standby.name} of {about} {standby.problem}, so PostgreSQL sends cdcd nothing"
            yield warning(about, message, STANDBY_AWAY_HINT, code="standby-away")
        else:
            yield ok(about, f"The standby of the slot {standby.name} is {size(standby.lag_bytes)} behind")


def _room(
    used: int,
    facts: ServerFacts,
    parameter: str,
    code: Code,
    *,
    needed: bool,
    finding: Callable[..., Finding] = error,
) -> Finding:
    what = "replication slots" if code == "slots-exhausted" else "walsenders"
    bound = int(facts.parameters[parameter])
    if bound == 0:
        return error(
            parameter,
            f"{parameter} is 0",
            f"Run: ALTER SYSTEM SET {parameter} = 10; then restart the server",
            code=code,
        )
    if used >= bound and needed:
        hint = f"Run: ALTER SYSTEM SET {parameter} = {bound + 5}; then restart the server. Or end one that is in use"
        return finding(parameter, f"All {bound} {what} are in use", hint, code=code)
    return ok(parameter, f"{used} of {bound} {what} are in use")


def _retention(facts: ServerFacts) -> Iterator[Finding]:
    """While no daemon streams, the server keeps WAL for the slot, until the disk is full or the slot is lost."""
    keep_mb = int(facts.parameters.get("max_slot_wal_keep_size", -1))
    if keep_mb < 0:
        yield ok("retention", "max_slot_wal_keep_size is off: no slot is lost, but watch the disk while cdcd is down")
    elif keep_mb < KEEP_SIZE_MB_MIN:
        message = f"max_slot_wal_keep_size is {size(keep_mb << 20)}: a slot is lost when its reader is that far behind"
        hint = "Run: ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf()"
        yield warning("retention", message, hint, code="slot-given-up-early")
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
        yield warning("retention", message, hint, code="slot-given-up-early")
