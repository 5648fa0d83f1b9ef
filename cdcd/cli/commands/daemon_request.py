"""Sends a request to the daemon, for `snapshot`, `unpark` and `verify --repair`. The daemon may run elsewhere.

Before: a command knows the request. After: the daemon that uses the slot finds the request in its stream.
Source: PostgreSQL, "INSERT"; "System Administration Functions", `pg_current_wal_insert_lsn`.

The request is a row of the table cdcd.requests. So it survives restarts of the daemon, it reaches the daemon that uses
the slot, and PostgreSQL checks that the sender may make requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.progress.records import SlotRecord
from cdcd.progress.repair_records import RepairKeys
from cdcd.source.requests_table import INSERT, INSERT_REPAIR, requests_problem
from cdcd.source.session import Session

_IS_STANDBY: Final = "SELECT pg_catalog.pg_is_in_recovery()"
_POSITION: Final = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text"


@dataclass(frozen=True)
class SentRequest:
    """The position of a request in the stream, as in Kafka. PostgreSQL does not tell it exactly."""

    lsn: int
    """The request was committed at this LSN or later. A snapshot of an earlier LSN does not serve it."""
    received_lsn: int
    """When the slot's progress is past this LSN, the daemon has received the request."""


def requests_session(settings: Settings) -> Session:
    """A session with the server that takes requests: of a standby, that is its primary."""
    source = settings.source
    return Session(source.primary_login or source.login, source.application_name)


def send_request(
    settings: Settings, session: Session, action: str, schema: str, table: str, last: SlotRecord | None
) -> SentRequest:
    """Send a request for a table (`action`: a constant of `progress.daemon_requests`).

    `last` is the last slot record, whose base the daemon adds to LSNs.

    Raises RequestRejected, with the SQL that helps, if the daemon would not receive it or the role may not make it.
    """
    return _send(settings, session, INSERT, [settings.source.slot, action, schema, table], last)


def send_repair(
    settings: Settings, session: Session, schema: str, table: str, keys: RepairKeys, last: SlotRecord | None
) -> SentRequest:
    """Ask for the repair of some rows of a table. `last`, and what is raised: as `send_request`."""
    return _send(settings, session, INSERT_REPAIR, [settings.source.slot, schema, table, keys.text()], last)


def _send(
    settings: Settings, session: Session, statement: str, values: Sequence[str], last: SlotRecord | None
) -> SentRequest:
    if session.rows(_IS_STANDBY) == [(True,)]:
        raise RequestRejected(
            "the server that source.dsn names takes no requests, because it is a standby",
            "Set source.primary_dsn, here with CDCD_SOURCE__PRIMARY_DSN=... cdcd ...",
            code="primary-needed",
        )
    problem = requests_problem(session, settings.source.publication, of_repair=statement == INSERT_REPAIR)
    if problem is not None:
        raise RequestRejected(problem.message, problem.hint, code="requests-not-taken")
    [(lsn,)] = session.rows(statement, values)
    [(received_lsn,)] = session.rows(_POSITION)
    base = 0 if last is None else last.lsn_base
    return SentRequest(parse_lsn(lsn) + base, parse_lsn(received_lsn) + base)
