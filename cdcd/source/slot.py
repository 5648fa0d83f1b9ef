"""A replication slot as the server keeps it: is it there, in use, how far confirmed, how much WAL does it hold back.

Before: `walsender` makes slots. After: preflight, metrics and the check that slot and progress belong together.
Source: PostgreSQL, "pg_replication_slots", versions 14 to 18.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from cdcd.errors import ServerLost
from cdcd.lsn import parse_lsn
from cdcd.source.refusals import SlotActive
from cdcd.source.session import Asker, Session


@dataclass(frozen=True)
class SlotState:
    """One row of `pg_replication_slots`, as of one moment. LSNs are end-exclusive; None where the server has none."""

    name: str
    plugin: str
    database: str
    temporary: bool
    active: bool
    active_pid: int | None
    confirmed_flush_lsn: int | None
    """Where a stream would start; None until the slot has found its consistent point."""
    restart_lsn: int | None
    """The oldest WAL that the slot still needs; None if it was lost."""
    wal_status: str
    """reserved, extended, unreserved or lost; empty if the slot holds no WAL."""
    safe_wal_bytes: int | None
    """How much may still be written before the slot is in danger of losing WAL; None: no limit, or lost."""
    two_phase: bool
    failover: bool
    invalidation: str
    """Why it was invalidated: wal_removed, rows_removed, wal_level_insufficient, idle_timeout; empty if it was not."""
    wal_lsn: int
    """The server's WAL position when this was read (on a standby: what it has replayed)."""

    @property
    def retained_bytes(self) -> int:
        """How much WAL the server keeps for this slot."""
        return 0 if self.restart_lsn is None else max(0, self.wal_lsn - self.restart_lsn)

    @property
    def lag_bytes(self) -> int:
        """How far the confirmed position is behind the server's WAL."""
        return 0 if self.confirmed_flush_lsn is None else max(0, self.wal_lsn - self.confirmed_flush_lsn)

    @property
    def lost(self) -> bool:
        """Whether the slot can never stream again."""
        return bool(self.invalidation) or self.wal_status == "lost"


# What older servers do not have: two_phase is since 14, conflicting 16, failover and invalidation_reason 17.
_STATE: Final = sql.SQL("""
    SELECT slot_name, plugin, database, temporary, active, active_pid, confirmed_flush_lsn::text, restart_lsn::text,
           wal_status, safe_wal_size, two_phase, {failover}, {invalidation},
           (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                 ELSE pg_catalog.pg_current_wal_lsn() END)::text
    FROM pg_catalog.pg_replication_slots
    WHERE slot_name = %s AND slot_type = 'logical'
""")
_INVALIDATION_16: Final = "CASE WHEN conflicting THEN 'conflict' WHEN wal_status = 'lost' THEN 'wal_removed' END"
_INVALIDATION_14: Final = "CASE WHEN wal_status = 'lost' THEN 'wal_removed' END"

_DROP: Final = """
    SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""
_WRITERS: Final = """
    SELECT 'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '')
           || coalesce(' of ' || a.usename, '')
    FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
    WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid IS NOT NULL
    UNION ALL SELECT 'prepared transaction ' || gid FROM pg_catalog.pg_prepared_xacts
    ORDER BY 1
"""


class Slot(Asker):
    """A logical slot by name, seen through an ordinary connection. Errors as `Session` names them."""

    def __init__(self, source: str | Session, name: str) -> None:
        """`source`: a DSN, or a session shared with others."""
        super().__init__(source)
        self.name = name

    def state(self) -> SlotState | None:
        """Read the slot; None if there is none of that name."""
        version = self.session.server_version // 10_000
        query = _STATE.format(
            failover=sql.SQL("failover" if version >= 17 else "false"),
            invalidation=sql.SQL(
                "invalidation_reason" if version >= 17 else _INVALIDATION_16 if version >= 16 else _INVALIDATION_14
            ),
        )
        rows = self.session.rows(query, [self.name])
        return _state(rows[0]) if rows else None

    def drop(self) -> bool:
        """Drop the slot and let its WAL go; returns False if it was not there. Raises SlotActive while it is in use."""
        before = self.state()
        if before is None:
            return False
        if before.active:
            raise SlotActive(self.name, before.active_pid)
        return bool(self.session.rows(_DROP, [self.name]))

    def writers(self) -> tuple[str, ...]:
        """Describe who is writing just now, in any database: what `Walsender.create_slot` may wait for.

        From pg_locks, which every role may read; empty if the server cannot be asked.
        """
        try:
            return tuple(row[0] for row in self.session.rows(_WRITERS))
        except ServerLost:
            return ()


def _state(row: tuple[Any, ...]) -> SlotState:
    name, plugin, database, temporary, active, active_pid, confirmed, restart, wal_status, safe, *switches = row
    two_phase, failover, invalidation, wal_lsn = switches
    return SlotState(
        name=name,
        plugin=plugin or "",
        database=database or "",
        temporary=temporary,
        active=active,
        active_pid=active_pid,
        confirmed_flush_lsn=None if confirmed is None else parse_lsn(confirmed),
        restart_lsn=None if restart is None else parse_lsn(restart),
        wal_status=wal_status or "",
        safe_wal_bytes=safe,
        two_phase=two_phase,
        failover=failover,
        invalidation=invalidation or "",
        wal_lsn=parse_lsn(wal_lsn),
    )
