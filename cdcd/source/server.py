"""Facts of the server: its version, its parameters, how many slots and walsenders it has, and whether it is a standby.

Before: a session runs the queries.
After: `preflight.server` judges whether the server can stream.
Source: PostgreSQL, "pg_settings", "Logical Replication: Configuration Settings".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.source.session import Session
from cdcd.source.slot import slots_in_use
from cdcd.source.standby_slots import FAILOVER_SINCE, StandbySlot, standby_slots

_NAMES: Final = "SELECT pg_catalog.current_database(), current_user, pg_catalog.pg_is_in_recovery()"
_SENDER: Final = "SELECT sender_host || ':' || sender_port FROM pg_catalog.pg_stat_wal_receiver"
_PARAMETERS: Final = "SELECT name, setting FROM pg_catalog.pg_settings WHERE context <> 'internal'"


@dataclass(frozen=True)
class ServerFacts:
    """The server's version, parameters and use, for one database and role."""

    version: int
    """As `PQserverVersion` has it: 180006 is 18.6."""
    database: str
    role: str
    parameters: Mapping[str, str]
    """Each parameter's value by its name, in the parameter's base unit (`pg_settings`)."""
    slots: int
    """Replication slots that exist."""
    walsenders: int
    """Walsenders that run."""
    is_standby: bool = False
    """It only replays the WAL of another server."""
    sender: str = ""
    """Host and port of that server; empty if the role may not see them (pg_read_all_stats), or it is not connected."""
    standby_slots: Sequence[StandbySlot] = ()
    """The slots in `synchronized_standby_slots` of a primary."""


def server_facts(session: Session, *, is_whole: bool = True) -> ServerFacts:
    """Ask the server. If not `is_whole`, leave out its parameters and its use, which take most of the time."""
    [(database, role, is_standby)] = session.rows(_NAMES)
    version = session.server_version
    if not is_whole:
        return ServerFacts(version, database, role, {}, 0, 0, is_standby)
    sender = session.rows(_SENDER) if is_standby else []
    named = standby_slots(session) if version >= FAILOVER_SINCE and not is_standby else []
    return ServerFacts(
        version,
        database,
        role,
        dict(session.rows(_PARAMETERS)),
        *slots_in_use(session),
        is_standby,
        sender[0][0] or "" if sender else "",
        named,
    )
