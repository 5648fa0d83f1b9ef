"""Other slots of this database that publish tables of ours to the same topics: found while they are streamed.

Before: `stream_startup` is about to make our slot, or holds it; `preflight` only looks.
After: `stream_startup` refuses to go on,
because each row would be there twice.
Source: PostgreSQL, "pg_stat_activity": the `query` of a walsender is its START_REPLICATION command; "Streaming
Replication Protocol" for its options; "Advisory Locks"; "pg_locks" for how their keys are shown.

The problem: the server does not know which publication belongs to a slot, let alone which topics its changes go to.
Whoever streams names the publication. So each daemon shows, by an advisory lock that excludes nobody and ends with its
session, where it publishes to. What is shown is looked at only of slots that are being streamed: one that nobody
streams may have been left behind or renamed, or have given a table to us, and is nobody's rival.

What this cannot see: walsenders of another role, unless ours has `pg_read_all_stats`; other databases; and tables that
join a publication later, until one of the two daemons is started again.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from hashlib import sha256
from typing import Final

from cdcd.errors import RequestRejected
from cdcd.source.session import Session

_SHOW: Final = "SELECT pg_catalog.pg_try_advisory_lock_shared(%s::int4, %s::int4)"
_SHOWN: Final = """
    SELECT l.objid::int8 FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::int8 = %s
      AND d.datname = pg_catalog.current_database()
"""
_STREAMED: Final = """
    SELECT s.slot_name::text, a.query
    FROM pg_catalog.pg_replication_slots s JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
    WHERE s.slot_type = 'logical' AND s.database = pg_catalog.current_database() AND s.slot_name <> %s
    ORDER BY 1
"""
_PUBLISHED: Final = """
    SELECT DISTINCT schemaname::text, tablename::text FROM pg_catalog.pg_publication_tables WHERE pubname = ANY(%s)
    ORDER BY 1, 2
"""
_NAMES: Final = re.compile(r"\bpublication_names\"? '((?:[^']|'')*)'")
_NAME: Final = re.compile(r'"((?:[^"]|"")*)"|([^\s,"]+)')


class SlotConflicts:
    """Whoever publishes to the same place. Errors as `Session` names them."""

    def __init__(self, session: Session, cluster_id: str, example: str) -> None:
        """`cluster_id` of Kafka, and an `example` of how topics are named there: the topic of `schema.table`."""
        self._session = session
        self._place = f"{cluster_id} {example}"

    def show(self, slot: str) -> None:
        """Let others see, as long as the session lasts, that `slot` is published to the place."""
        self._session.rows(_SHOW, [_signed(_number(self._place)), _signed(_number(slot))])

    def refuse(self, slot: str, tables: Collection[tuple[str, str]]) -> None:
        """Raise RequestRejected if another slot than `slot` publishes one of `tables` (schema, name) there, too."""
        for other, shared in self._of(slot, tables).items():
            more = f" and {len(shared) - 1} more of our tables" if len(shared) > 1 else ""
            raise RequestRejected(
                f"the slot {other} publishes {'.'.join(shared[0])}{more} to the same topics: each row would be there "
                "twice",
                "Give each slot of a prefix a publication of tables of its own (ALTER PUBLICATION ... DROP TABLE ...); "
                "or take another sink.prefix",
            )

    def _of(self, slot: str, tables: Collection[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
        shown = {number for (number,) in self._session.rows(_SHOWN, [_number(self._place)])}
        found = {}
        for other, query in self._session.rows(_STREAMED, [slot]):
            names = publications(query or "") if _number(other) in shown else []
            published = self._session.rows(_PUBLISHED, [names]) if names else []
            shared = [(str(schema), str(name)) for schema, name in published if (schema, name) in tables]
            if shared:
                found[str(other)] = shared
        return found


def publications(query: str) -> list[str]:
    """The publications that a START_REPLICATION command names; empty if it is another command, or hidden from us."""
    match = _NAMES.search(query)
    if match is None or not query.startswith("START_REPLICATION"):
        return []
    return [
        quoted.replace('""', '"') if quoted else plain.lower()
        for quoted, plain in _NAME.findall(match[1].replace("''", "'"))
    ]


def _number(text: str) -> int:
    """32 bits that stand for a text, as pg_locks shows the key of an advisory lock."""
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big")


def _signed(number: int) -> int:
    """The same 32 bits as PostgreSQL's integer."""
    return number - (1 << 32) if number >> 31 else number
