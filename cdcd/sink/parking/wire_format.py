"""The records of the parked topic: how a parked event is kept, and how it becomes an event again.

Before: `publisher` has a table's batch and knows that the table is parked or deferred.
After: `kafka.parked_reader` reads the records back, and `publisher` publishes the events.

The format, stable since version 1, is one JSON object a record under the key `{slot}/{schema}.{table}`, with names
encoded as in a topic's name. It holds the table, the op, the reason, and the event's key and value in base64, as they
would stand on the table's own topic. A value that is too large for the table's topic would be too large for this one.
So a value comes in parts: one record for each part, one after the other. In version 2 so do the key and the headers,
because whoever may write a row chooses how large they are; an event that needs no parts of these is of version 1. In
version 3 the `hash` of the event decides its partition, and not its key.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from mypy_extensions import u8

from cdcd.errors import GapError
from cdcd.sink.batches import Message, TableBatch

IN_PARTS: Final = 2
VERSION: Final = 3

PART_BYTES: Final = 600_000
"""Bytes of an event in one record: 800,000 in base64, which every topic takes."""

PIECE_BYTES: Final = 4_000_000
PIECE_RECORDS: Final = 500
"""So much goes to the producer at once. Its own queue is the bound of what waits."""

REASON_MAX: Final = 1_000


@dataclass(frozen=True)
class ParkedEvent:
    """One message of a table, as TableBatch has it. `value` is None for a tombstone."""

    op: int
    key: bytes | None
    value: bytes | None
    everywhere: bool
    """The message goes to every partition (truncate)."""
    headers: Mapping[str, bytes] = field(default_factory=dict)
    """The headers of the message, by name, in their order."""
    hash: int | None = None
    """As in Message; None: it has none."""


def records(key: bytes, reason: str, batch: TableBatch, part_bytes: int = PART_BYTES) -> Iterator[Message]:
    """Yield the records of the parked topic, all under `key`, that hold a table's batch in its order.

    A record holds at most `part_bytes` of a key, headers and a value.
    """
    everywhere = set(batch.everywhere)
    head = {"schema": batch.schema, "table": batch.name, "reason": reason[:REASON_MAX]}
    for index, (message, op) in enumerate(zip(batch.messages, batch.ops.getvalue(), strict=True)):
        of_head = len(message.get("key") or b"") + sum(len(header) for _, header in message.get("headers", ()))
        size = of_head + len(message["value"] or b"")
        starts = [0, *range(part_bytes, size, part_bytes)]
        for number, (start, end) in enumerate(pairwise([*starts, None])):
            document = {
                "version": VERSION if "hash" in message else 1 if of_head < part_bytes else IN_PARTS,
                **head,
                "op": op,
                "everywhere": index in everywhere,
                "part": number + 1,
                "parts": len(starts),
                **({"hash": message["hash"]} if "hash" in message else {}),
                **_part(message, start, end),
            }
            yield {"key": key, "value": json.dumps(document, ensure_ascii=False).encode()}


def _part(message: Message, start: int, end: int | None) -> dict[str, Any]:
    """What lies between two bytes of the key, the headers and the value, one behind the other; None: up to the last."""
    begin = 0

    def piece(data: bytes | None) -> str | None:
        nonlocal begin
        if data is None:
            return None
        of_field, begin = begin, begin + len(data)
        is_inside = (end is None or of_field < end) and (of_field >= start or begin > start)
        return _text(data[max(start - of_field, 0) : None if end is None else end - of_field]) if is_inside else None

    part: dict[str, Any] = {"key": piece(message.get("key"))}
    headers = {name: piece(header) for name, header in message.get("headers", ())}
    part["value"] = piece(message["value"])
    if headers := {name: header for name, header in headers.items() if header is not None}:
        part["headers"] = headers
    return part


def pieces(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Yield the records in lists for one call of the producer each, so that one value is never there as a whole."""
    piece: list[Message] = []
    size = 0
    for message in messages:
        piece.append(message)
        size += len(message["value"] or b"")
        if size >= PIECE_BYTES or len(piece) >= PIECE_RECORDS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


@dataclass(frozen=True)
class ParkedChunk:
    """Some of a table's parked events, in order."""

    events: list[ParkedEvent]
    offset: int
    """The offset of the next record to read."""
    is_last: bool
    """The topic has no more of them."""


class PartAssembler:
    """Puts the parts of events together, record by record."""

    def __init__(self) -> None:
        self._key: bytes | None = None
        self._headers: dict[str, bytes] = {}
        self._parts: list[bytes] = []

    @property
    def is_between_events(self) -> bool:
        """Every event that has begun has its last part."""
        return not self._parts

    def add(self, offset: int, data: bytes) -> ParkedEvent | None:
        """Add the next record of the table, at `offset`; returns the event that it completes, else None.

        Raises GapError if the record cannot be understood: to leave it out would lose an event.
        """
        try:
            document = json.loads(data)
            if document["version"] not in (1, IN_PARTS, VERSION):
                raise ValueError(f"version {document['version']}; this cdcd reads versions up to {VERSION}")
            return self._add(document)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise GapError(
                f"the parked record at offset {offset} cannot be read: {error}",
                "Run the cdcd version that wrote it, and keep other producers off the parked topic",
                code="record-unreadable",
            ) from None

    def _add(self, document: dict[str, Any]) -> ParkedEvent | None:
        if document["part"] != len(self._parts) + 1:
            raise ValueError(f"part {document['part']} comes after {len(self._parts)} parts of an event")
        if document["part"] == 1:
            self._key, self._headers = None, {}
        key = _data(document["key"])
        if key is not None:
            self._key = (self._key or b"") + key
        for name, header in document.get("headers", {}).items():
            self._headers[name] = self._headers.get(name, b"") + (_data(header) or b"")
        value = _data(document["value"])
        self._parts.append(value or b"")
        if document["part"] < document["parts"]:
            return None
        whole = None if value is None else b"".join(self._parts)
        self._parts = []
        return ParkedEvent(
            document["op"], self._key, whole, document["everywhere"], self._headers, _hash(document.get("hash"))
        )


def batch_of(schema: str, table: str, events: Sequence[ParkedEvent]) -> TableBatch:
    """Return the events as a batch of their table, as they were before they were parked."""
    batch = TableBatch(schema, table)
    for index, event in enumerate(events):
        message: Message = {"value": event.value} if event.key is None else {"key": event.key, "value": event.value}
        if event.headers:
            message["headers"] = list(event.headers.items())
            batch.has_headers = True
        if event.hash is not None:
            message["hash"] = event.hash
            batch.has_hashes = True
        batch.messages.append(message)
        batch.ops.append(u8(event.op))
        if event.everywhere:
            batch.everywhere.append(index)
    return batch


def _hash(number: Any) -> int | None:
    if number is not None and not (isinstance(number, int) and 0 <= number < 2**32):
        raise ValueError(f"the hash {number!r} is no number of 32 bits")
    return number


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _data(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
