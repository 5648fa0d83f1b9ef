"""The rules by which a reader takes a table's records apart, one class for each format of events.

Before: `reading` gives records. After: `topic_check` compares the events with the ledger. `connect_events` has the
formats that are Debezium's.

No code of cdcd reads here: only fastavro, json, and the rules of the manual. A value longer than `SHORT` stays as its
digest.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

import fastavro
from chaos.reading import Place, Record
from chaos.writers import Change
from support import topics

SHORT = 60
"""Characters of a value that is kept as it is."""

Position = tuple[int, ...]
"""Where an event stands in the order of commits: first a number of its transaction, then its place in it."""
Texts = dict[str, "str | None"]
"""A row: the text that PostgreSQL gives of each column."""


@dataclass
class Event:
    """A row's record, taken apart."""

    place: Place
    offset: int
    position: Position
    xid: int
    lsn: int
    """That of the change."""
    op: str
    key: dict[str, Any] | None
    before: Texts | None
    after: Texts | None
    unchanged: list[str]
    """Columns of `after` that PostgreSQL did not send."""
    table: str = ""
    """The table that the event names, as schema.table; empty: its topic is of one table."""

    @property
    def topic(self) -> str:
        return self.place[0]

    @property
    def table_place(self) -> str:
        """What all events of its table have in common, and no others."""
        return table_place(self.topic, self.table)


def table_place(topic: str, table: str) -> str:
    """The name under which the check knows a table."""
    return f"{topic}#{table}" if table else topic


class Format(Protocol):
    """Takes the records of tables apart."""

    has_commit_lsn: bool
    """The first number of a position is the commit LSN of the transaction."""
    has_seq: bool
    """The second number of a position counts the changes of the transaction: none is missing."""
    has_tombstones: bool
    """After each delete comes a record with the same key and without a value."""
    has_old_rows: bool
    """Each change says which row it changes, also in a table without a key, and a truncate is an event."""

    def learn(self, record: Record) -> None:
        """Take a record of the topic of schemas."""

    def knows(self, record: Record) -> bool:
        """Whether the schemas of the record are there."""

    def is_event(self, record: Record) -> bool:
        """Whether the record is an event, and not the tombstone after one."""

    def event(self, record: Record) -> Event:
        """Take a record apart."""

    def shown(self, change: Change) -> Change | None:
        """Return what readers can tell of a change; None if no record says it."""


class _Own:
    """cdcd's own events, in any encoding."""

    has_commit_lsn = has_seq = has_old_rows = True
    has_tombstones = False

    def is_event(self, record: Record) -> bool:
        return record.value is not None

    def shown(self, change: Change) -> Change | None:
        return change

    @staticmethod
    def named(event: Event, source: dict[str, Any]) -> Event:
        """The event with the table that it names, if it does. Its key names the same table, before the row's key."""
        if "table" in source:
            event.table = f"{source['schema']}.{source['table']}"
            if event.key is not None:
                assert f"{event.key.pop('__schema')}.{event.key.pop('__table')}" == event.table
        return event


class Avro(_Own):
    """cdcd's own events, by the schemas on a topic."""

    def __init__(self) -> None:
        self._schemas: dict[str, Any] = {}
        self._texts: dict[str, Any] = {}

    def learn(self, record: Record) -> None:
        assert record.key is not None
        assert record.value is not None
        name = record.key.decode()
        self._texts[name] = json.loads(record.value)
        self._schemas[name] = fastavro.parse_schema(self._texts[name])

    def knows(self, record: Record) -> bool:
        return all(d is None or d[2:10].hex() in self._schemas for d in (record.key, record.value))

    def event(self, record: Record) -> Event:
        assert record.value is not None
        value = self._decoded(record.value)
        source = value["source"]
        fields = next(
            f["type"][1]["fields"] for f in self._texts[record.value[2:10].hex()]["fields"] if f["name"] == "before"
        )
        lost = {(u["image"], u["column"]): u["text"] for u in value["unrepresentable"]}

        def texts(image: str) -> Texts | None:
            row = value[image]
            if row is None:
                return None
            return {f["name"]: short(lost.get((image, f["name"]), topics.text_of(row[f["name"]], f))) for f in fields}

        event = Event(
            record.place, record.offset, (source["commit_lsn"], source["seq"]), source["xid"], source["lsn"],
            value["op"], None if record.key is None else self._decoded(record.key), texts("before"), texts("after"),
            value["unchanged"],
        )  # fmt: skip
        return self.named(event, source)

    def _decoded(self, data: bytes) -> dict[str, Any]:
        assert data[:2] == b"\xc3\x01"
        stream = io.BytesIO(data[10:])
        record = fastavro.schemaless_reader(stream, self._schemas[data[2:10].hex()], None)
        assert stream.tell() == len(data) - 10, "bytes after the end of the record"
        assert isinstance(record, dict)
        return record


class Json(_Own):
    """cdcd's own events in JSON, with or without their schemas: no topic has the schemas."""

    def __init__(self, *, with_schemas: bool) -> None:
        self._with_schemas = with_schemas

    def learn(self, record: Record) -> None:
        raise AssertionError(f"a schema on {record.place}")

    def knows(self, record: Record) -> bool:
        return True

    def event(self, record: Record) -> Event:
        assert record.value is not None
        value = payload(record.value, self._with_schemas)
        source = value["source"]
        lost = {(each["image"], each["column"]): each["text"] for each in value["unrepresentable"]}

        def texts(image: str) -> Texts | None:
            row = texts_of(value[image])
            return row and {name: short(lost.get((image, name), text)) for name, text in row.items()}

        event = Event(
            record.place, record.offset, (source["commit_lsn"], source["seq"]), source["xid"], source["lsn"],
            value["op"], None if record.key is None else payload(record.key, self._with_schemas), texts("before"),
            texts("after"), value["unchanged"],
        )  # fmt: skip
        return self.named(event, source)


def payload(data: bytes, with_schema: bool) -> dict[str, Any]:
    """Return the document in JSON; `with_schema`: it stands next to its schema."""
    document = json.loads(data)
    if with_schema:
        assert document.keys() == {"schema", "payload"}
        document = document["payload"]
    assert isinstance(document, dict)
    return document


def short(text: str | None) -> str | None:
    """Return the text, or the digest of a long one."""
    if text is None or len(text) <= SHORT:
        return text
    return "#" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def texts_of(row: dict[str, Any] | None) -> Texts | None:
    """Return PostgreSQL's text of each value of a row in JSON, or in Connect's Avro."""
    return None if row is None else {name: short(_text(name, value)) for name, value in row.items()}


def _text(name: str, value: Any) -> str | None:
    """PostgreSQL's text of a value in JSON, of those columns that `writers` have."""
    if value is None:
        return None
    if name == "day" and isinstance(value, int):
        return _day(value)
    if name == "amount":
        return "NaN" if value == "NAN" else str(value)
    if name == "at" and value.endswith("Z"):
        whole, _, fraction = value.removesuffix("Z").replace("T", " ").partition(".")
        fraction = fraction.rstrip("0")
        return f"{whole}.{fraction}+00" if fraction else f"{whole}+00"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _day(days: int) -> str:
    """The text of a date, from days since 1970-01-01; the calendar repeats after 400 years."""
    moved = date.fromordinal(days + date(1970, 1, 1).toordinal() + date(401, 1, 1).toordinal() - 1)
    year = moved.year - 400
    return f"{year if year > 0 else 1 - year:04}-{moved:%m-%d}" + ("" if year > 0 else " BC")


def position_of(headers: dict[str, bytes]) -> Position:
    """Return the position of the event that has these headers: `ce_id` is its transaction's commit LSN, and its number.

    A row of a snapshot has three numbers.
    """
    return tuple(map(int, headers["ce_id"].split(b"-")))


def wrong_header(event: Event, headers: dict[str, bytes]) -> str:
    """Return what the headers say of an event that is not so; empty: nothing. Those of `draws.HEADERS` are there."""
    said = headers["__op"].decode(), int(headers["__lsn"]), int(headers["__txid"]), position_of(headers)
    wanted = event.op, event.lsn, event.xid, event.position
    return "" if said == wanted else f"the headers say {said}, the event {wanted}"
