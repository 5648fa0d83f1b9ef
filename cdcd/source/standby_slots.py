"""The physical slots that `synchronized_standby_slots` names: a failover slot gets only what their standbys have.

Before: a session asks the primary.
After: `preflight.server` says which of them hold the stream up.
Source: PostgreSQL, "Logical Replication Failover"; StandbySlotsHaveCaughtup in slot.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdcd.lsn import parse_lsn
from cdcd.source.query_runner import QueryRunner

# PostgreSQL accepts only names of slots here, which need no quotes.
_NAMED: Final = """
    SELECT n.name, s.slot_type, coalesce(s.active, false), s.restart_lsn::text,
           pg_catalog.pg_current_wal_flush_lsn()::text, s.wal_status
    FROM pg_catalog.unnest(pg_catalog.regexp_split_to_array(
             pg_catalog.current_setting('synchronized_standby_slots'), '[\\s",]+')) n (name)
    LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = n.name
    WHERE n.name <> ''
    ORDER BY 1
"""
FAILOVER_SINCE: Final = 170_000
"""The first version with failover slots."""


@dataclass(frozen=True)
class StandbySlot:
    """A slot that the setting names, and the standby that uses it."""

    name: str
    problem: str
    """Why the server waits for it until a person acts, as the rest of a sentence; empty if it need not."""
    lag_bytes: int
    """WAL that the primary has and the standby has not confirmed."""


def standby_slots(runner: QueryRunner) -> list[StandbySlot]:
    """The slots that the setting of a primary names. The server must have the setting."""
    return [_standby_slot(*row) for row in runner.rows(_NAMED)]


def _standby_slot(
    name: str, slot_type: str | None, active: bool, restart: str | None, flushed: str, wal_status: str | None
) -> StandbySlot:
    problem = ""
    if slot_type is None:
        problem = "does not exist"
    elif slot_type != "physical":
        problem = "is not a physical slot"
    elif wal_status == "lost":
        problem = "has lost WAL"
    elif not active:
        problem = "is not used by its standby now"
    return StandbySlot(name, problem, 0 if restart is None else max(0, parse_lsn(flushed) - parse_lsn(restart)))
