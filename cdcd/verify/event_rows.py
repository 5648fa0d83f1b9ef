"""Turns events into changes of rows. Each value becomes a token, which can be compared with PostgreSQL's token.

Before: `topic_replay` has the bytes of an event. After: `row_store` keeps the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdcd.errors import DecodeError
from cdcd.reading.decoder import EventDecoder, SchemaId, not_an_event, schema_id
from cdcd.reading.postgres_text import Render, renderers, without_logical_types
from cdcd.verify.commit_order import Position
from cdcd.verify.row_store import ABSENT, RowStore, value_token


@dataclass(frozen=True, slots=True)
class RowChange:
    """The change of a row in an event. A row is a list of value tokens, in the order of the table's columns."""

    op: str
    lsn: int
    """The LSN of the change, not of its commit."""
    old: list[str] | None
    """The row that the change removes; None if it removes none, or if `new` replaces it by its key."""
    new: list[str | None] | None
    """The row after the change; None if it is gone. A None in the list is a value that did not change."""
    known: Mapping[int, str] = field(default_factory=dict, compare=False)
    """The columns that the event knows, as `RowStore.fill` takes them."""

    def apply(self, store: RowStore, partition: int, position: Position) -> None:
        """Make this change in the store."""
        store.fill(self.known)
        if self.op == "t":
            store.truncate(partition)
        if self.old is not None:
            store.remove(partition, *position, self.old, change_lsn=self.lsn)
        if self.new is not None:
            store.put(partition, *position, self.new, is_new=self.op != "u", change_lsn=self.lsn)


class EventReader:
    """Decodes events into changes of rows. It keeps the schemas that it has parsed."""

    def __init__(self, find: Callable[[SchemaId], str]) -> None:
        """`find` gives a schema's JSON text; it raises DecodeError if there is none."""
        self._find = find
        self._decoder = EventDecoder(find, prepare=without_logical_types)
        self._shapes: dict[SchemaId, _RowShape] = {}
        self._keys: dict[SchemaId, tuple[str, ...]] = {}
        self._namespaces: dict[SchemaId, str] = {}

    def key_columns(self, key: bytes | None) -> tuple[str, ...]:
        """PostgreSQL's names of the columns in an event's key, in the order of the table; empty without a key."""
        header = None if key is None else schema_id(key)
        if header is None:
            return ()
        identifier, _ = header
        if identifier not in self._keys:
            self._keys[identifier] = column_names(json.loads(self._find(identifier)))
        return self._keys[identifier]

    def is_of(self, data: bytes, table_namespace: str) -> bool:
        """Whether an event, or its first bytes, is one of the table with this Avro namespace."""
        header = schema_id(data)
        if header is None:
            raise not_an_event(data)
        identifier, _ = header
        if identifier not in self._namespaces:
            self._namespaces[identifier] = str(json.loads(self._find(identifier)).get("namespace"))
        return self._namespaces[identifier] == table_namespace

    def change(
        self, data: bytes, before_lsn: int, columns: Sequence[str], key: Collection[int]
    ) -> tuple[Position, RowChange] | None:
        """The position and the change of an event; None if the event was committed at `before_lsn` or later.

        `columns` are PostgreSQL's names; `key` are the indexes of those that are the key. Raises DecodeError if `data`
        is not an event.
        """
        decoded = self._decoder.decode_avro(data)
        if decoded is None:
            raise not_an_event(data)
        try:
            return self._change(*decoded, before_lsn, columns, key)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DecodeError(
                f"A record of {len(data)} bytes has a schema that is not that of an event of cdcd: {decoded[0]}",
                "Did another program write to the topic?",
                code="event-foreign",
            ) from error

    def _change(
        self, identifier: SchemaId, event: Any, before_lsn: int, columns: Sequence[str], key: Collection[int]
    ) -> tuple[Position, RowChange] | None:
        source, op = event["source"], event["op"]
        if source["commit_lsn"] >= before_lsn:
            return None
        if identifier not in self._shapes:
            self._shapes[identifier] = _RowShape(json.loads(self._find(identifier)))
        shape = self._shapes[identifier]
        old = new = None
        if event["before"] is not None and (op == "d" or not key):
            old = [token or "" for token in shape.tokens(event, "before", columns, key)]
        if event["after"] is not None:
            new = shape.tokens(event, "after", columns, key)
        return (source["commit_lsn"], source["seq"]), RowChange(op, source["lsn"], old, new, shape.known(columns))


def row_schema(envelope: dict[str, Any]) -> dict[str, Any]:
    """The schema of the record `Row` inside the schema of an event."""
    [before] = [each for each in envelope["fields"] if each["name"] == "before"]
    row: dict[str, Any] = before["type"][1]
    return row


def column_names(record: dict[str, Any]) -> tuple[str, ...]:
    """PostgreSQL's names of the columns in the schema of a key or a row."""
    return tuple(str(field.get("pg_name", field["name"])) for field in record["fields"] if "pg_type" in field)


def missing_tokens(row: Mapping[str, Any], columns: Sequence[str]) -> dict[int, str]:
    """By the index in `columns`, the token of what rows hold that are older than a column of the record `row`."""
    names = {str(field.get("pg_name", field["name"])): field.get("pg_missing_value") for field in row["fields"]}
    return {index: value_token(names[column]) for index, column in enumerate(columns) if column in names}


class _RowShape:
    """How the rows of one schema become tokens."""

    def __init__(self, envelope: dict[str, Any]) -> None:
        self._row = row_schema(envelope)
        self._known: tuple[Sequence[str], dict[int, str]] = ((), {})
        self._columns: dict[str, tuple[str, Render]] = {
            pg_name: (name, render) for name, pg_name, render in renderers(self._row, {})
        }

    def known(self, columns: Sequence[str]) -> dict[int, str]:
        """The columns that events of this schema know, as `RowStore.fill` takes them: the same object each time."""
        if self._known[0] is not columns:
            self._known = columns, missing_tokens(self._row, columns)
        return self._known[1]

    def tokens(
        self, event: dict[str, Any], image: str, columns: Sequence[str], key: Collection[int]
    ) -> list[str | None]:
        """The tokens of a row, in the order of `columns`. None: PostgreSQL did not send the value."""
        row = event[image]
        unchanged = event["unchanged"] if image == "after" else ()
        lost = {u["column"]: u["text"] for u in event["unrepresentable"] if u["image"] == image}
        tokens: list[str | None] = []
        for index, column in enumerate(columns):
            is_key = index in key
            if column not in self._columns:
                tokens.append(ABSENT)  # the column was added after this event
                continue
            name, render = self._columns[column]
            value = row[name]
            if name in unchanged:
                tokens.append(None)
            elif value is None:
                tokens.append(value_token(lost.get(name), is_key=is_key))
            else:
                tokens.append(value_token(render(value), is_key=is_key))
        return tokens
