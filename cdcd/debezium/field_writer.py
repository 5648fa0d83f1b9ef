"""The columns of a relation: what stands before each value, and instead of a missing one.

Before: `values.lookup` has chosen the values of the columns, `transaction.relations` says which columns there are.
After: `event_encoder` and `key_encoder` walk along them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.debezium.connect_schema import Schema
from cdcd.debezium.default_values import default_json
from cdcd.debezium.json_text import quoted
from cdcd.debezium.values.base import Value
from cdcd.debezium.values.lookup import ValueLookup
from cdcd.pgoutput.tuples import BINARY
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

_NULL = b"null"


@final
class Field:
    """One column, in a linked list: elements of a Python list would cost a type check each."""

    def __init__(self, index: i64, column: ResolvedColumn, value: Value | None) -> None:
        self.index: i64 = index
        self.name = column.name
        self.value: Value = value or Value(Schema("string"))
        self.is_shown = value is not None
        self.in_key = column.in_key
        self.next_field: Field | None = None
        self.piece = b""
        """What stands before the value in a row: a brace or a comma, and the name."""
        self.null = _NULL
        """What stands for NULL, and for a value that did not come or that Connect's type cannot hold."""
        self.unchanged = _NULL
        """What stands for a value that PostgreSQL left out because it did not change."""
        self.schema = self.value.schema
        self.is_required = False
        """NOT NULL, as the catalog has it, which may be later than the row."""
        self.at: i64 = 0
        """Where the value is in the row of a snapshot."""
        self.size: i64 = 0
        """Its size there; -1: null."""

    def describe(self, default: bytes, is_required: bool, null_as_default: bool) -> None:
        """Take what the catalog says of the column."""
        is_optional = not is_required or self.value.schema.is_optional
        self.is_required = is_required
        self.schema = replace(self.schema, is_optional=is_optional, default=default)
        self.null = _NULL
        if is_required:
            self.null = default or self.value.fallback or _NULL
        elif null_as_default and default:
            self.null = default
        self.unchanged = self.value.placeholder or self.null

    def relax(self, null_as_default: bool) -> None:
        """The row has a NULL: the column was not NOT NULL yet."""
        self.describe(self.schema.default, False, null_as_default)

    def write(self, kind: i64, frame: bytes, at: i64, size: i64, out: BytesWriter) -> None:
        """Append the value, BINARY or TEXT, of `size` bytes at `at`."""
        mark = len(out)
        if kind == BINARY:
            is_held = self.value.binary(frame, at, size, out)
        else:
            is_held = self.value.text(frame, at, size, out)
        if not is_held:
            out.truncate(mark)
            out.write(self.null)


def fields_of(relation: ResolvedRelation, lookup: ValueLookup, null_as_default: bool) -> list[Field]:
    """The columns of the relation, in its order, each with the next one."""
    fields: list[Field] = []
    brace = b"{"
    for index, column in enumerate(relation.columns):
        field = Field(index, column, lookup.value(column.pgtype, column.typmod))
        if field.is_shown:
            field.piece = brace + quoted(column.name) + b":"
            brace = b","
            default = default_json(field.value, column.pgtype, column.typmod, column.default)
            field.describe(default, column.is_required, null_as_default)
        if fields:
            fields[-1].next_field = field
        fields.append(field)
    return fields
