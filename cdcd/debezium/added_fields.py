"""The fields that flat rows have behind their columns, by the names of Debezium's ExtractNewRecordState.

Before: `modes` says which ones; `event_form` knows the transaction.
After: `row_encoder` writes them behind each row, `relation_schemas` describes them.
Source: Debezium 3.7, `ExtractNewRecordState` (add.fields, add.fields.prefix, delete.tombstone.handling.mode).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.debezium.connect_schema import INT64, STRING, Schema
from cdcd.debezium.event_form import EventForm
from cdcd.debezium.event_schema import SOURCE_SCHEMA
from cdcd.debezium.modes import RowModes
from cdcd.errors import Unpublishable
from cdcd.source.table_selection import qualified_name

DELETED: Final = "__deleted"
"""The name of the flag of a deleted row, whatever the prefix of the other fields."""

_DELETE: Final = 0x64
_LSN: Final = 1
_SEQUENCE: Final = 2
_OF_CHANGE: Final = {"source.lsn": _LSN, "source.sequence": _SEQUENCE}
"""Fields that each change has its own value of."""
_EVENT_FIELDS: Final = {"op": STRING, "ts_ms": INT64, "ts_us": INT64, "ts_ns": INT64}
_SOURCE_FIELDS: Final = dict(SOURCE_SCHEMA.fields)


def names_of(fields: Sequence[str], prefix: str) -> list[tuple[str, str]]:
    """The names in the row and those in the event of `fields`, each such as "op", "source.ts_ms" or "lsn:position".

    A field of the source comes with its struct: "source.lsn". Raises ValueError with what is wrong.
    """
    found: list[tuple[str, str]] = []
    for text in fields:
        field, _, name = text.partition(":")
        struct, _, bare = field.rpartition(".")
        if struct == "" and bare in _EVENT_FIELDS:
            place = bare
        elif struct in ("", "source") and bare in _SOURCE_FIELDS:
            place = f"source.{bare}"
        else:
            known = ", ".join([*_EVENT_FIELDS, *(f"source.{each}" for each in _SOURCE_FIELDS)])
            raise ValueError(f"{field} is no field of an event. There are {known}")
        found.append((prefix + (name or field.replace(".", "_")), place))
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1 or name == DELETED:
            raise ValueError(f"two fields would have the name {name}")
    return found


@final
class AddedFields:
    """What every row gets."""

    def __init__(self, modes: RowModes, parked: Container[tuple[str, str]] = ()) -> None:
        """`parked`: tables (schema, name) whose rows go to the parked topic: these may have any columns."""
        self._parked = parked
        self.has_deleted_rows = modes.deletes in ("rewrite", "rewrite-with-tombstone")
        """A delete is the old row with a flag."""
        self.has_tombstones = modes.deletes == "tombstone"
        """A delete is a record without a value."""
        self.places = modes.fields
        """The name of each field, and its place in the event."""
        self.has_clock = any(place in ("ts_ms", "ts_us", "ts_ns") for _, place in modes.fields)
        """A field says when the row was made."""

    def schemas(self) -> list[tuple[str, Schema]]:
        """The names and schemas of the fields."""
        found = [(DELETED, STRING.optional)] if self.has_deleted_rows else []
        for name, place in self.places:
            _, _, field = place.rpartition(".")
            of = _EVENT_FIELDS[field] if place == field else _SOURCE_FIELDS[field]
            found.append((name, Schema(of.type, of.name, of.version, parameters=of.parameters, is_optional=True)))
        return found

    def check(self, columns: Collection[str], table: tuple[str, str]) -> None:
        """Raise Unpublishable if a column of the table (schema, name) has the name of a field.

        Readers would take one for the other.
        """
        for name, _ in self.schemas():
            if name in columns and table not in self._parked:
                raise Unpublishable(
                    f"{qualified_name(*table)} has a column {name}, and so is a field called that each row of "
                    'sink.format = "row" gets behind its columns',
                    "Set row.add_fields or row.add_fields_prefix so that the names differ, or rename the column",
                    table=table,
                    keyless=True,
                    code="row-field-taken",
                )


@final
class AddedToTable:
    """What the rows of one table get: the bytes of the fields, made once for each op of a transaction."""

    def __init__(self, fields: AddedFields, form: EventForm, table: tuple[str, str], *, is_empty: bool) -> None:
        """`table`: its schema and name. `is_empty`: its rows have no columns."""
        self.fields = fields
        self._form = form
        self._table = {"source.schema": table[0], "source.table": table[1]}
        self._is_empty = is_empty
        self._made: dict[int, list[tuple[bytes, int]]] = {}
        """By op, as long as `form` has this version: pieces, and what of the change follows each."""
        self._version: i64 = -1

    def write(self, out: BytesWriter, op: i64, lsn: i64, clock_ns: i64) -> None:
        """Append the fields to a row, before its end. `op`: its ASCII code. `lsn`: that of the change.

        `clock_ns`: nanoseconds since 1970-01-01 UTC.
        """
        form = self._form
        if self._version != form.version:
            self._version = form.version
            self._made = {}
        pieces = self._made.get(op)
        if pieces is None:
            pieces = self._made[op] = self._make(op, clock_ns)
        out.truncate(len(out) - len(form.row_end))
        for piece, following in pieces:
            out.write(piece)
            if following == _LSN:
                form.write_lsn(out, lsn)
            elif following == _SEQUENCE:
                form.write_sequence(out, lsn)

    def _make(self, op: i64, clock_ns: i64) -> list[tuple[bytes, int]]:
        form, pieces, piece = self._form, list[tuple[bytes, int]](), b""
        is_first = self._is_empty
        if self.fields.has_deleted_rows:
            piece = form.added_name(DELETED, is_first) + form.added_value("true" if op == _DELETE else "false")
            is_first = False
        for name, place in self.fields.places:
            piece += form.added_name(name, is_first)
            is_first = False
            if place in _OF_CHANGE:
                pieces.append((piece, _OF_CHANGE[place]))
                piece = b""
            elif place == "op":
                piece += form.added_value(chr(op))
            elif place in self._table:
                piece += form.added_value(self._table[place])
            elif place.startswith("source."):
                piece += form.added_value(form.value(place[7:]))
            else:
                piece += form.added_value(int(clock_ns) // {"ts_ms": 1_000_000, "ts_us": 1000, "ts_ns": 1}[place])
        return [*pieces, (piece + form.row_end, 0)]
