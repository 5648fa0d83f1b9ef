"""Finds other slots of this server that publish a table, or the messages, of this daemon to the same topics.

Before: a start of the daemon is about to make the slot, or streams from it; `cdcd check` only looks.
After: the daemon does not start, because each row or message would be published twice.
Source: PostgreSQL, "pg_stat_activity": the `query` of a walsender is its START_REPLICATION command; "Streaming
Replication Protocol" for its options; "Advisory Locks"; "pg_locks" for how it shows their keys.

The problem: the server does not know which publication belongs to a slot, nor to which topics a daemon publishes. Only
the walsender's command names the publication, and only while a daemon streams. So each daemon announces its topics by
an advisory lock. The lock is shared, so it excludes no other daemon; the server releases it when the session ends. A
daemon checks only slots that are streamed at that moment. A slot that no daemon streams may be left over, or another
slot may have taken over its tables.

Two databases may have tables of the same name, and this role may not look into the other database. So a prefix is for
one database: a slot of another one that is streamed to the same topics is a conflict, whatever its tables.

The check does not see the publications of another role's walsenders, unless this role has `pg_read_all_stats`. It sees
tables that are added to a publication later only when one of the two daemons starts again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Final

from cdcd.errors import RequestRejected
from cdcd.source.identifiers import literal
from cdcd.source.published_tables import published_names
from cdcd.source.session import Session
from cdcd.source.slot import other_streams

_ANNOUNCE: Final = "SELECT pg_catalog.pg_try_advisory_lock_shared(%s::int4, %s::int4)"
_ANNOUNCED: Final = """
    SELECT l.objid::int8 FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::int8 = %s
      AND d.datname = pg_catalog.current_database()
"""
_ON_TOPICS: Final = """
    SELECT DISTINCT l.classid::int8, l.objid::int8 FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::int8 = ANY(%s) AND l.objid::int8 <> %s
"""
_ELSEWHERE: Final = """
    SELECT DISTINCT s.slot_name::text, s.database::text, l.objid::int8
    FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_replication_slots s ON s.datoid = l.database
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::int8 = %s
      AND s.slot_type = 'logical' AND s.active AND s.database <> pg_catalog.current_database()
"""
_OF_OTHER_DATABASES: Final = """
    SELECT slot_name::text, database::text FROM pg_catalog.pg_replication_slots
    WHERE slot_name = ANY(%s) AND database <> pg_catalog.current_database()
    ORDER BY 1
"""
TOPICS_MAX: Final = 256
"""A lock each: the server has some thousands for all its sessions."""
_NAMES: Final = re.compile(r"\bpublication_names\"? '((?:[^']|'')*)'")
_MESSAGES: Final = re.compile(r"\bmessages\"? '(?:true|on|yes|1)'", re.IGNORECASE)
_NAME: Final = re.compile(r'"((?:[^"]|"")*)"|([^\s,"]+)')


class SlotConflicts:
    """The slots that publish to the same topics of one Kafka cluster. Raises what `Session` raises."""

    def __init__(self, session: Session, cluster_id: str, example: str, topics: Collection[str] = ()) -> None:
        """`cluster_id` is Kafka's. `example` is the topic of a table `schema.table`: it shows how topics are named.

        `topics` are those that a setting names: no other slot may write to them. Of these, TOPICS_MAX are looked at.
        """
        self._session = session
        self._place = f"{cluster_id} {example}"
        self._topics = {_number(f"{cluster_id} topic {topic}"): topic for topic in sorted(topics)[:TOPICS_MAX]}

    def announce(self, slot: str) -> None:
        """Show other daemons that `slot` is published to these topics, as long as the session lasts."""
        for place in (_number(self._place), *self._topics):
            self._session.rows(_ANNOUNCE, [_signed(place), _signed(_number(slot))])

    def check(self, slot: str, tables: Collection[tuple[str, str]], *, messages: bool) -> None:
        """Raise RequestRejected if another slot publishes one of `tables` (schema, name) to these topics, too, or other
        tables to a topic that a setting names.

        A slot of another database is refused, whatever its tables. `messages`: this slot publishes logical messages, so
        no other slot may.
        """
        for other, database, number in self._session.rows(_ELSEWHERE, [_number(self._place)]):
            if number == _number(other):
                raise _of_another_database(other, database)
        streams = self._streams(slot)
        shared_topics = self._session.rows(_ON_TOPICS, [list(self._topics), _number(slot)]) if self._topics else []
        for topic, number in shared_topics:
            others = [other for other, _ in other_streams(self._session, slot) if _number(other) == number]
            if others:
                raise RequestRejected(
                    f"the slot {others[0]} writes to the topic {self._topics[topic]}, too",
                    "Give the tables of each slot topics of their own, by topic in [[table]]; or send all of this "
                    "topic through one slot. Let one slot of a prefix alone have debezium.provide_transaction_metadata"
                    ", and give a table another topic if its own is that of the metadata",
                    code="slots-share-topics",
                )
        for other, shared in self._conflicts(streams, tables).items():
            more = f" and {len(shared) - 1} more tables of this slot" if len(shared) > 1 else ""
            raise RequestRejected(
                f"the slot {other} publishes {'.'.join(shared[0])}{more} to the same topics: each row would be there "
                "twice",
                "Give each slot of a prefix a publication of tables of its own (ALTER PUBLICATION ... DROP TABLE ...); "
                "or take another sink.prefix",
                code="slots-share-topics",
            )
        if messages and (others := [other for other, query in streams.items() if streams_messages(query)]):
            raise RequestRejected(
                f"the slot {others[0]} publishes logical messages to the same topic: each message would be there twice",
                "Set source.messages = false for all slots of a prefix but one",
                code="slots-share-topics",
            )

    def _streams(self, slot: str) -> dict[str, str]:
        """The other slots that are streamed to these topics now, each with the command of its walsender."""
        announced = {number for (number,) in self._session.rows(_ANNOUNCED, [_number(self._place)])}
        return {other: query for other, query in other_streams(self._session, slot) if _number(other) in announced}

    def _conflicts(
        self, streams: Mapping[str, str], tables: Collection[tuple[str, str]]
    ) -> dict[str, list[tuple[str, str]]]:
        conflicts = {}
        for other, query in streams.items():
            names = publications(query)
            published = published_names(self._session, *names) if names else []
            if shared := [table for table in published if table in tables]:
                conflicts[other] = shared
        return conflicts


def check_databases(session: Session, slots: list[str]) -> None:
    """Raise RequestRejected if one of `slots`, which publish to the same topics, is of another database.

    A slot that is gone is none. Raises what `Session` raises.
    """
    for other, database in session.rows(_OF_OTHER_DATABASES, [slots]) if slots else ():
        raise _of_another_database(other, database)


def _of_another_database(slot: str, database: str) -> RequestRejected:
    return RequestRejected(
        f"the slot {slot} of the database {database} publishes to the same topics: two tables of one name would share "
        "one",
        "Give each database a sink.prefix of its own; or, if that slot is not needed any more, stop its daemon and "
        f"run: SELECT pg_drop_replication_slot({literal(slot)})",
        code="slots-share-topics",
    )


def publications(query: str) -> list[str]:
    """The publications that a START_REPLICATION command names; empty for another command or a hidden one."""
    match = _NAMES.search(query)
    if match is None or not query.startswith("START_REPLICATION"):
        return []
    return [
        quoted.replace('""', '"') if quoted else plain.lower()
        for quoted, plain in _NAME.findall(match[1].replace("''", "'"))
    ]


def streams_messages(query: str) -> bool:
    """Whether a START_REPLICATION command asks for logical messages; false for a hidden one."""
    return query.startswith("START_REPLICATION") and _MESSAGES.search(query) is not None


def _number(text: str) -> int:
    """A text as an unsigned 32-bit number: pg_locks shows the keys of advisory locks unsigned."""
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big")


def _signed(number: int) -> int:
    """The same 32 bits, signed: the lock functions take PostgreSQL's int4."""
    return number - (1 << 32) if number >> 31 else number
