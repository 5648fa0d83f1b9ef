"""Asks the running daemon for something, wherever it runs: the commands that do so are `snapshot` and `unpark`.

Before: a command knows what is wanted. After: the daemon that has the slot finds the request in its stream.
Source: PostgreSQL, "System Administration Functions", `pg_logical_emit_message`.

The request is a logical message: it has its place in the WAL, so it survives whatever is restarted, reaches whichever
daemon has the slot, and needs no right but to connect. Once the slot's progress is beyond that place, it was taken.
"""

from __future__ import annotations

from typing import Final

from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.progress.daemon_requests import request
from cdcd.source.session import Session

# The transaction id makes this a transaction whose commit is flushed, and with it the message.
_ASK: Final = """
    SELECT pg_catalog.pg_logical_emit_message(false, 'cdcd', %s::text)::text, pg_catalog.pg_current_xact_id()
"""


def ask(settings: Settings, session: Session, what: str, schema: str, table: str) -> int:
    """Ask the daemon for `what` (see `daemon_requests`); return the LSN of the request.

    Raises RequestRejected if the daemon would not receive the request.
    """
    if not settings.source.messages:
        raise RequestRejected(
            "the daemon is asked by a logical message, and source.messages is false", "Set it to true, and restart"
        )
    [(lsn, _)] = session.rows(_ASK, [request(what, schema, table, settings.source.slot)])
    return parse_lsn(lsn)
