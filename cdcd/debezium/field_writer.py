"""The columns of a relation: what stands before each value, and instead of a missing one.

Before: `values.lookup` has chosen the values of the columns, `transaction.relations` says which columns there are.
After: `event_encoder` and `key_encoder` walk along them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.avro.codecs.base import Transcoder
from cdcd.debezium.avro_data import avro_or_null, branch_of_value
from cdcd.debezium.connect_schema import STRING
from cdcd.debezium.debezium_names import adjusted_field
from cdcd.debezium.default_values import default_json
from cdcd.debezium.json_text import quoted
from cdcd.debezium.modes import Modes
from cdcd.debezium.values.base import Value
from cdcd.debezium.values.lookup import ValueLookup
from cdcd.pgoutput.tuples import BINARY
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

_NULL: Final = b"null"


@final
class Field:
    """One column, in a linked list: elements of a Python list would cost a type check each."""

    def __init__(self, index: i64, column: ResolvedColumn, value: Value | None, piece: bytes) -> None:
        """`piece`: what stands before the value in JSON, a brace or a comma, and the name; empty: rows are Avro."""
        self.index: i64 = index
        self.name = column.name
        """PostgreSQL's name."""
        self.value: Value = value or Value(STRING)
        self.is_shown = value is not None
        self.in_key = column.in_key
        self.writer: Transcoder = self.value if piece else self.value.avro()
        self.next_field: Field | None = None
        self._piece = piece
        self.branch: i64 = -1
        """What stands before the value in Avro: the branch of the union with null; -1: there is no union."""
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
        null = _NULL
        if is_required:
            null = default or self.value.fallback or _NULL
        elif null_as_default and default:
            null = default
        is_optional = not is_required or self.value.schema.is_optional or null == _NULL
        self.is_required = is_required
        self.schema = replace(self.schema, is_optional=is_optional, default=default)
        self.null = self._constant(null)
        self.unchanged = self._constant(self.value.placeholder or null)

    def _constant(self, shown: bytes) -> bytes:
        """A value that is always the same, with what stands before it; `shown`: its JSON."""
        if self._piece:
            return self._piece + shown
        self.branch = branch_of_value(self.schema)
        return avro_or_null(self.schema, shown)

    def relax(self, null_as_default: bool) -> None:
        """The row has a NULL, or what is written so, although the column is NOT NULL."""
        self.describe(self.schema.default, False, null_as_default)

    def write(self, kind: i64, frame: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the value, BINARY or TEXT, of `size` bytes at `at`, with what stands before it.

        False: Connect's type cannot hold it, and what stands for NULL is written.
        """
        mark = len(out)
        if self._piece:
            out.write(self._piece)
        elif self.branch >= 0:
            out.append(u8(self.branch))
        if kind == BINARY:
            is_held = self.writer.binary(frame, at, size, out)
        else:
            is_held = self.writer.text(frame, at, size, out)
        if not is_held:
            out.truncate(mark)
            out.write(self.null)
        return is_held


def fields_of(relation: ResolvedRelation, lookup: ValueLookup, modes: Modes, *, is_avro: bool) -> list[Field]:
    """The columns of the relation, in its order, each with the next one."""
    fields: list[Field] = []
    brace = b"{"
    for index, column in enumerate(relation.columns):
        piece = b"" if is_avro else brace + quoted(adjusted_field(column.name, modes.field_names)) + b":"
        field = Field(index, column, lookup.value(column.pgtype, column.typmod), piece)
        if field.is_shown:
            brace = b","
            default = default_json(field.value, column.pgtype, column.typmod, column.default)
            field.describe(default, column.is_required, modes.null_as_default)
        if fields:
            fields[-1].next_field = field
        fields.append(field)
    return fields


def key_fields(relation: ResolvedRelation, fields: list[Field]) -> list[Field]:
    """The columns of the relation's key, in its order."""
    by_name = {field.name: field for field in fields}
    return [by_name[name] for name in relation.key_order if name in by_name and by_name[name].in_key]


def table_field(relation: ResolvedRelation, keys: list[Field], modes: Modes) -> str:
    """The name of the field behind the columns of the key (`keys`) that names the table; empty: there is none.

    No column of the key has it.
    """
    name = modes.table_in_key if relation.shared_topic and keys else ""
    taken = [adjusted_field(field.name, modes.field_names) for field in keys]
    while name in taken:
        name = f"_{name}"
    return name
