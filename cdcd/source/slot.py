"""A replication slot, as the server shows it. Only this module asks `pg_replication_slots`.

Before: `connection` makes slots.
After: the daemon's start, its metrics, `cdcd check` and `cdcd slot` read whether the slot exists and is in use, which
LSN is confirmed, and how much WAL the server keeps for it.
Source: PostgreSQL, "pg_replication_slots", versions 14 to 18.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from cdcd.errors import RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.source.identifiers import literal
from cdcd.source.query_runner import QueryRunner
from cdcd.source.server_errors import SlotActive, SlotFacts
from cdcd.source.session import Session, SessionClient
from cdcd.source.write_transactions import described_writers

# Columns by server version: `two_phase` since 14, `conflicting` since 16, `failover`, `synced` and
# `invalidation_reason` since 17.
_STATE: Final = sql.SQL("""
    SELECT slot_name, plugin, database, temporary, active, active_pid, confirmed_flush_lsn::text, restart_lsn::text,
           wal_status, safe_wal_size, two_phase, {failover}, {invalidation}, datoid::bigint,
           (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                 ELSE pg_catalog.pg_current_wal_lsn() END)::text,
           slot_type, database = pg_catalog.current_database(),
           (SELECT application_name FROM pg_catalog.pg_stat_activity WHERE pid = active_pid),
           coalesce((SELECT wait_event = 'WaitForStandbyConfirmation' FROM pg_catalog.pg_stat_activity
                     WHERE pid = active_pid), false),
           {synced} AND pg_catalog.pg_is_in_recovery(), {synced}
    FROM pg_catalog.pg_replication_slots
    WHERE slot_name = %s
""")
_INVALIDATION_16: Final = "CASE WHEN conflicting THEN 'conflict' WHEN wal_status = 'lost' THEN 'wal_removed' END"
_INVALIDATION_14: Final = "CASE WHEN wal_status = 'lost' THEN 'wal_removed' END"

_DATABASE_OID: Final = "SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()"
_DROP: Final = """
    SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""
_END_WALSENDER: Final = """
    SELECT pg_catalog.pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots
    WHERE slot_name = %s AND active_pid = %s
"""
_IN_USE: Final = """
    SELECT (SELECT count(*) FROM pg_catalog.pg_replication_slots),
           (SELECT count(*) FROM pg_catalog.pg_stat_replication)
"""
_STREAMED: Final = """
    SELECT s.slot_name::text, coalesce(a.query, '')
    FROM pg_catalog.pg_replication_slots s JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
    WHERE s.slot_type = 'logical' AND s.database = pg_catalog.current_database() AND s.slot_name <> %s
    ORDER BY 1
"""
_FACTS: Final = (
    "SELECT s.database, pg_catalog.current_database(), s.wal_status, pg_catalog.current_setting('wal_level'), "
    "s.active_pid, a.application_name, pg_catalog.current_setting('application_name'), "
    # Columns by server version, as in _STATE. On the replication connection the version is not at hand.
    "coalesce(pg_catalog.to_jsonb(s)->>'invalidation_reason', "
    "CASE WHEN (pg_catalog.to_jsonb(s)->>'conflicting')::bool THEN 'conflict' END) "
    "FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid "
    "WHERE s.slot_name = "
)


@dataclass(frozen=True)
class SlotState:
    """One row of `pg_replication_slots` at one moment. LSNs are end-exclusive; None where the server shows null."""

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
    """`safe_wal_size`: how much WAL may be written before the slot may lose some; None: no limit, or lost."""
    two_phase: bool
    failover: bool
    invalidation: str
    """Why it was invalidated: wal_removed, rows_removed, wal_level_insufficient, idle_timeout; empty if it was not."""
    wal_lsn: int
    """The end of the server's WAL when the row was read (on a standby: of the replayed WAL)."""
    slot_type: str = "logical"
    """logical or physical."""
    is_of_this_database: bool = True
    """The session that asked is connected to the slot's database."""
    used_by: str = ""
    """The application_name of the client that uses the slot."""
    database_oid: int = 0
    """The OID of `database`, which it keeps when it is renamed."""
    waits_for_standby: bool = False
    """The walsender waits for a standby of `synchronized_standby_slots`, and sends nothing meanwhile."""
    is_synced: bool = False
    """The server is a standby, and keeps the slot as its primary has it. Nobody can stream from it here."""
    was_synced: bool = False
    """The server kept the slot so as long as it was a standby: nobody has streamed from it here before."""

    @property
    def retained_bytes(self) -> int:
        """Bytes of WAL that the server keeps for this slot."""
        return 0 if self.restart_lsn is None else max(0, self.wal_lsn - self.restart_lsn)

    @property
    def lag_bytes(self) -> int:
        """Bytes of WAL between the confirmed position and the end of the server's WAL."""
        return 0 if self.confirmed_flush_lsn is None else max(0, self.wal_lsn - self.confirmed_flush_lsn)

    @property
    def lost(self) -> bool:
        """Whether the slot can never stream again."""
        return bool(self.invalidation) or self.wal_status == "lost"

    @property
    def use(self) -> str:
        """Who streams from it, as the rest of a sentence. The server shows its own process, not the client's."""
        if not self.active:
            return "not in use"
        named = f' with the application_name "{self.used_by}"' if self.used_by else ""
        return f"in use by PostgreSQL's process {self.active_pid}{named}"

    @property
    def misfit(self) -> str:
        """Why no daemon with these settings can stream from the slot, whatever its state; empty if one can."""
        if self.slot_type != "logical":
            return f"The slot {self.name} is {self.slot_type}, not logical"
        if self.plugin != "pgoutput":
            return f"The slot {self.name} is of plugin {self.plugin}, not pgoutput"
        if not self.is_of_this_database:
            return f"The slot {self.name} is of the database {self.database}, not of the one in source.dsn"
        if self.is_synced:
            return f"The slot {self.name} is one of the primary, which this standby keeps in sync for a failover"
        return ""

    @property
    def misfit_hint(self) -> str:
        """What to do about `misfit`."""
        if self.is_synced:
            return (
                "Name the primary in source.dsn (of several hosts, target_session_attrs=read-write chooses it), or set "
                "another source.slot"
            )
        return "Set another source.slot, or correct source.dsn"


class Slot(SessionClient):
    """A slot, by its name. Raises what `Session` raises."""

    def __init__(self, source: str | Session, name: str) -> None:
        """`source`: a DSN, or a session shared with others."""
        super().__init__(source)
        self.name = name

    def state(self) -> SlotState | None:
        """Read the slot, of whatever kind; None if there is no slot of that name."""
        version = self.session.server_version // 10_000
        query = _STATE.format(
            failover=sql.SQL("failover" if version >= 17 else "false"),
            synced=sql.SQL("synced" if version >= 17 else "false"),
            invalidation=sql.SQL(
                "invalidation_reason" if version >= 17 else _INVALIDATION_16 if version >= 16 else _INVALIDATION_14
            ),
        )
        rows = self.session.rows(query, [self.name])
        return _state(rows[0]) if rows else None

    def fitting_state(self) -> SlotState | None:
        """As `state`. Raises RequestRejected if another program must have made it, or a daemon of another database."""
        state = self.state()
        if state is not None and state.misfit:
            raise RequestRejected(state.misfit, state.misfit_hint, code="slot-of-others")
        return state

    def database_oid(self) -> int:
        """The OID of the database in which a slot that is made now would be."""
        [(oid,)] = self.session.rows(_DATABASE_OID)
        return int(oid)

    def drop(self) -> bool:
        """Drop the slot; returns False if it does not exist. Raises SlotActive while it is in use."""
        before = self.state()
        if before is None:
            return False
        if before.active:
            raise SlotActive(self.name, before.active_pid, before.used_by)
        return bool(self.session.rows(_DROP, [self.name]))

    def end_walsender(self, pid: int) -> bool:
        """End the server process `pid`, if it streams from the slot; return whether it did."""
        return bool(self.session.rows(_END_WALSENDER, [self.name, pid]))

    def writers(self) -> tuple[str, ...]:
        """Describe the open write transactions, in any database: `Connection.create_slot` waits for them."""
        return described_writers(self.session)


def slots_in_use(runner: QueryRunner) -> tuple[int, int]:
    """The number of replication slots, and of running walsenders."""
    [(slots, walsenders)] = runner.rows(_IN_USE)
    return slots, walsenders


def other_streams(runner: QueryRunner, slot: str) -> list[tuple[str, str]]:
    """The other logical slots of this database that are streamed now: name, and command of the walsender.

    The command is empty for walsenders of other roles, unless this role has pg_read_all_stats.
    """
    return [(other, query) for other, query in runner.rows(_STREAMED, [slot])]


def facts_of_refusal(query: Callable[[str], list[tuple[str | None, ...]]], slot: str) -> SlotFacts | None:
    """The facts that explain why the server refuses to stream from a slot; None if the slot is gone.

    `query` runs a statement on the replication connection, which has no placeholders.
    """
    rows = query(_FACTS + literal(slot))
    return SlotFacts(*(value or "" for value in rows[0])) if rows else None


def _state(row: tuple[Any, ...]) -> SlotState:
    name, plugin, database, temporary, active, active_pid, confirmed, restart, wal_status, safe, *switches = row
    two_phase, failover, invalidation, database_oid, wal_lsn, slot_type, is_of_this_database, *use = switches
    used_by, waits_for_standby, is_synced, was_synced = use
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
        slot_type=slot_type,
        is_of_this_database=bool(is_of_this_database),
        used_by=used_by or "",
        database_oid=database_oid or 0,
        waits_for_standby=waits_for_standby,
        is_synced=is_synced,
        was_synced=was_synced,
    )
