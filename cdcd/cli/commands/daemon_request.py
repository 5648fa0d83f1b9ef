"""Sends a request to the daemon, for the commands `snapshot` and `unpark`. The daemon may run on another machine.

Before: a command knows the request. After: the daemon that uses the slot finds the request in its stream.
Source: PostgreSQL, "System Administration Functions", `pg_logical_emit_message`.

The request is a logical message in the WAL. So it survives restarts of the daemon, it reaches the daemon that uses the
slot, and the sender needs no privilege but to connect. When the slot's progress is past the LSN of the request, the
daemon has received it.
"""

from __future__ import annotations

from typing import Final

from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.progress.daemon_requests import request
from cdcd.source.session import Session

# A transaction with an id flushes its commit record, and the message with it.
_EMIT: Final = """
    SELECT pg_catalog.pg_logical_emit_message(false, 'cdcd', %s::text)::text, pg_catalog.pg_current_xact_id()
"""


def send_request(settings: Settings, session: Session, what: str, schema: str, table: str) -> int:
    """Send a request for a table (`what`: a constant of `progress.daemon_requests`); return the LSN of the request.

    Raises RequestRejected if `source.messages` is false: the daemon would not receive the request.
    """
    if not settings.source.messages:
        raise RequestRejected(
            "the request is a logical message, and source.messages is false", "Set it to true, and restart the daemon"
        )
    [(lsn, _)] = session.rows(_EMIT, [request(what, schema, table, settings.source.slot)])
    return parse_lsn(lsn)
