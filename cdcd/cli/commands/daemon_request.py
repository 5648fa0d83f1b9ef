"""Sends a request to the daemon, for the commands `snapshot` and `unpark`. The daemon may run on another machine.

Before: a command knows the request. After: the daemon that uses the slot finds the request in its stream.
Source: PostgreSQL, "INSERT"; "System Administration Functions", `pg_current_wal_insert_lsn`.

The request is a row of the table cdcd.requests. So it survives restarts of the daemon, it reaches the daemon that uses
the slot, and PostgreSQL checks that the sender may make requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.source.requests_table import INSERT, requests_problem
from cdcd.source.session import Session, StatementRejected

READ_ONLY: Final = "25006"
"""read_only_sql_transaction: the server is a standby."""

_POSITION: Final = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text"


@dataclass(frozen=True)
class SentRequest:
    """The position of a request in the stream, which PostgreSQL does not tell exactly."""

    lsn: int
    """The request was committed at this LSN or later. A snapshot of an earlier LSN does not serve it."""
    received_lsn: int
    """When the slot's progress is past this LSN, the daemon has received the request."""


def send_request(settings: Settings, session: Session, action: str, schema: str, table: str) -> SentRequest:
    """Send a request for a table (`action`: a constant of `progress.daemon_requests`).

    Raises RequestRejected, with the SQL that helps, if the daemon would not receive it or the role may not make it.
    """
    source = settings.source
    problem = requests_problem(session, source.publication)
    if problem is not None:
        raise RequestRejected(problem.message, problem.hint)
    try:
        [(lsn,)] = session.rows(INSERT, [source.slot, action, schema, table])
    except StatementRejected as error:
        if error.sqlstate != READ_ONLY:
            raise
        raise RequestRejected(
            "the server that source.dsn names takes no requests, because it is read-only",
            "Run the command with the dsn of the primary: CDCD_SOURCE__DSN=... cdcd ...",
        ) from error
    [(received_lsn,)] = session.rows(_POSITION)
    return SentRequest(parse_lsn(lsn), parse_lsn(received_lsn))
