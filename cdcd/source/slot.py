"""A replication slot as the server keeps it: is it there, in use, how far confirmed, how much WAL does it hold back.

Before: `replication_stream` makes slots.
After: preflight, metrics and the check that slot and progress belong together.
Source: PostgreSQL, "pg_replication_slots", versions 14 to 18.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg import sql

from cdcd.errors import PostgresUnavailable
from cdcd.lsn import parse_lsn
from cdcd.source.server_errors import SlotActive
from cdcd.source.session import Session, SessionClient
from cdcd.source.slot_state import SlotState

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
           || coalesce(', for ' || pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() - a.xact_start), '')
           || coalesce(', ' || nullif(a.state, 'active'), '')
           || coalesce(': ' || pg_catalog.substr(pg_catalog.regexp_replace(
                  nullif(nullif(a.query, ''), '<insufficient privilege>'), '''[^'']*''', '''...''', 'g'), 1, 100), '')
    FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
    WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid IS NOT NULL
    UNION ALL SELECT 'prepared transaction ' || gid || ', for '
                     || pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() - prepared)
    FROM pg_catalog.pg_prepared_xacts
    ORDER BY 1
"""
"""With age, state and query, as far as the role may see them; what a query holds in quotes is left out."""


class Slot(SessionClient):
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
        except PostgresUnavailable:
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
