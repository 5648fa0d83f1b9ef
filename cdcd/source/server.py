"""Facts of the server: its version, its parameters, and how many slots and walsenders it has.

Before: a session runs the queries.
After: `preflight.server` judges whether the server can stream.
Source: PostgreSQL, "pg_settings", "Logical Replication: Configuration Settings".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdcd.source.session import Session
from cdcd.source.slot import slots_in_use

_NAMES: Final = "SELECT pg_catalog.current_database(), current_user"
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


def server_facts(session: Session, *, is_whole: bool = True) -> ServerFacts:
    """Ask the server. If not `is_whole`, leave out its parameters and its use, which take most of the time."""
    [(database, role)] = session.rows(_NAMES)
    if not is_whole:
        return ServerFacts(session.server_version, database, role, {}, 0, 0)
    return ServerFacts(session.server_version, database, role, dict(session.rows(_PARAMETERS)), *slots_in_use(session))
