"""The rules by which a reader takes Debezium's events and flat rows apart, in JSON or in Avro with a registry.

Before: `reading` gives records, `draws` says which settings the daemon has. After: `topic_check`.

Neither has the commit LSN of its transaction, but the end of the one before: that orders transactions, too. With the
headers of CloudEvents both have it. A delete of flat rows that is a record without a value says by its key what was
deleted, and nothing says when: so it is judged only with headers. Flat rows never say which row of a table without a
key was changed, nor that a table was truncated.

In a topic that tables share, a key ends with a field that names the table.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection
from typing import Any

import fastavro
from chaos.events import Event, Position, payload, position_of, texts_of
from chaos.reading import Record
from chaos.writers import NOTES, Change

TABLE_FIELD = "__dbz__physicalTableIdentifier"

Decode = Callable[[bytes], dict[str, Any]]
"""Gives the document of a key or a value."""

_UNCHANGED = "__debezium_unavailable_value"


def json_decoder(*, with_schemas: bool) -> Decode:
    """Documents in JSON."""
    return lambda data: payload(data, with_schemas)


class RegistryDecoder:
    """Documents in Avro, by the schemas of a registry: a list that grows, in which the schema 1 comes first."""

    def __init__(self, schemas: list[str]) -> None:
        self._schemas = schemas
        self._parsed: dict[int, Any] = {}

    def __call__(self, data: bytes) -> dict[str, Any]:
        assert data[0] == 0, data[:10]
        number = int.from_bytes(data[1:5])
        if number not in self._parsed:
            self._parsed[number] = fastavro.parse_schema(json.loads(self._schemas[number - 1]))
        stream = io.BytesIO(data[5:])
        record = fastavro.schemaless_reader(stream, self._parsed[number], None)
        assert stream.tell() == len(data) - 5, "bytes after the end of the record"
        assert isinstance(record, dict)
        return record


class SharedTopics:
    """The topics that tables share, and the tables that keys and events name there."""

    def __init__(self, prefix: str, topics: Collection[str] = ()) -> None:
        self._prefix = prefix
        self._topics = topics

    def named(self, event: Event, table: tuple[str, str] | None) -> Event:
        """The event with its table, if others share its topic. `table`: schema and name by the event; None: by the key.

        The key then names the same table, behind the row's key.
        """
        if event.topic in self._topics:
            if event.key is not None:
                assert [*event.key][-1] == TABLE_FIELD, event.key
                identifier = event.key.pop(TABLE_FIELD)
                table = table or self._table(identifier)
                assert identifier == self._identifier(*table), (identifier, table)
            assert table is not None, f"nothing names the table of {event}"
            event.table = ".".join(table)
        return event

    def _identifier(self, schema: str, table: str) -> str:
        is_plain = all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in (schema, table))
        return f"{self._prefix}.{schema}.{table}" if is_plain else f'{self._prefix}."{schema}"."{table}"'

    def _table(self, identifier: str) -> tuple[str, str]:
        names = identifier.removeprefix(f"{self._prefix}.")
        schema, table = names[1:-1].split('"."') if names.startswith('"') else names.split(".")
        return schema, table


class _Connect:
    """What Debezium's events and flat rows have in common."""

    def __init__(self, decode: Decode, shared: SharedTopics, *, has_headers: bool, has_tombstones: bool) -> None:
        self._decode = decode
        self._shared = shared
        self._has_headers = self.has_commit_lsn = has_headers
        self.has_seq = False
        self.has_tombstones = has_tombstones

    def learn(self, record: Record) -> None:
        raise AssertionError(f"a schema on {record.place}")

    def knows(self, record: Record) -> bool:
        return True

    def is_event(self, record: Record) -> bool:
        return record.value is not None

    def _key(self, record: Record) -> dict[str, Any] | None:
        return None if record.key is None else self._decode(record.key)

    def _position(self, record: Record, sequence: str | None, lsn: int, op: str) -> Position:
        """`sequence`: the end of the transaction before, and the LSN of the change. A snapshot's row has none."""
        before_this, of_change = json.loads(sequence) if sequence is not None else (None, lsn)
        assert int(of_change) == lsn
        assert sequence is not None or op == "r"
        return position_of(record.headers) if self._has_headers else (int(before_this or 0), lsn, op == "c")


class Debezium(_Connect):
    """Debezium's events."""

    has_old_rows = True

    def __init__(self, decode: Decode, shared: SharedTopics, *, has_headers: bool) -> None:
        super().__init__(decode, shared, has_headers=has_headers, has_tombstones=True)
        self.has_seq = has_headers

    def event(self, record: Record) -> Event:
        assert record.value is not None
        value = self._decode(record.value)
        source, op, after = value["source"], value["op"], texts_of(value["after"])
        position = self._position(record, source["sequence"], source["lsn"], op)
        event = Event(
            record.place, record.offset, position, source["txId"] or 0, source["lsn"], op, self._key(record),
            texts_of(value["before"]), after, _unchanged(after),
        )  # fmt: skip
        return self._shared.named(event, (source["schema"], source["table"]))

    def shown(self, change: Change) -> Change | None:
        return change


class Rows(_Connect):
    """Flat rows with the fields that `draws` asks for. A delete is a flagged row (`has_flags`), or has no value."""

    has_old_rows = False

    def __init__(
        self, decode: Decode, shared: SharedTopics, *, has_headers: bool, has_tombstones: bool, has_flags: bool
    ) -> None:
        assert has_headers or has_flags, "nothing would say where a delete without a value stands"
        super().__init__(decode, shared, has_headers=has_headers, has_tombstones=has_tombstones)
        self._has_flags = has_flags

    def is_event(self, record: Record) -> bool:
        return record.value is not None or not self._has_flags

    def event(self, record: Record) -> Event:
        if record.value is None:
            headers = record.headers
            assert headers["__op"] == b"d"
            event = Event(
                record.place, record.offset, position_of(headers), int(headers["__txid"]), int(headers["__lsn"]), "d",
                self._key(record), None, None, [],
            )  # fmt: skip
            return self._shared.named(event, None)
        row = self._decode(record.value)
        op, sequence = row.pop("__op"), row.pop("__source_sequence")
        table = row.pop("__source_schema"), row.pop("__source_table")
        xid, lsn = row.pop("__source_txId"), row.pop("__source_lsn")
        deleted = row.pop("__deleted", "false")
        assert deleted == str(op == "d").lower()
        texts = texts_of(row)
        before, after = (texts, None) if op == "d" else (None, texts)
        event = Event(
            record.place, record.offset, self._position(record, sequence, lsn, op), xid or 0, lsn, op,
            self._key(record), before, after, _unchanged(after),
        )  # fmt: skip
        return self._shared.named(event, table)

    def shown(self, change: Change) -> Change | None:
        is_lost = change.op == "t" or (change.table == NOTES and change.op == "d" and not self._has_flags)
        if is_lost:
            return None
        return change._replace(identity=()) if change.table == NOTES and change.op == "u" else change


def _unchanged(after: dict[str, str | None] | None) -> list[str]:
    return [name for name, text in (after or {}).items() if text == _UNCHANGED]
