"""Sends a request to the daemon, wherever it runs. The commands `snapshot` and `unpark` do so.

Before: a command knows the request. After: the daemon that uses the slot finds the request in its stream.
Source: PostgreSQL, "System Administration Functions", `pg_logical_emit_message`.

The request is a logical message in the WAL. So it survives every restart, reaches the daemon that uses the slot, and
needs no privilege beyond a connection. When the slot's progress has passed its LSN, the daemon has taken it.
"""

from __future__ import annotations

from typing import Final

from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.progress.daemon_requests import request
from cdcd.source.session import Session

# The transaction id makes PostgreSQL flush the commit, and with it the message.
_EMIT: Final = """
    SELECT pg_catalog.pg_logical_emit_message(false, 'cdcd', %s::text)::text, pg_catalog.pg_current_xact_id()
"""


def send_request(settings: Settings, session: Session, what: str, schema: str, table: str) -> int:
    """Send a request (`what` is one of `daemon_requests`) for a table; returns the LSN of the request.

    Raises RequestRejected if the daemon would not receive it.
    """
    if not settings.source.messages:
        raise RequestRejected(
            "the request is a logical message, and source.messages is false", "Set it to true, and restart the daemon"
        )
    [(lsn, _)] = session.rows(_EMIT, [request(what, schema, table, settings.source.slot)])
    return parse_lsn(lsn)
