"""Encodes the key of a table's events: a record of the key columns, in Avro or JSON.

Before: `event_encoder` knows the offsets of a row's values.
After: `event_encoder` passes the bytes on as the key of the Kafka record.
Source: Apache Avro specification, "Binary Encoding"; PostgreSQL, "Logical Replication Message Formats", TupleData.

Hot path, compiled: a key costs one Python object. A column's value is encoded the same way in the key and in the row.
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from cdcd.avro.avro_names import field_names
from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.text_encoding import text_of_value
from cdcd.avro.envelope_form import EnvelopeForm
from cdcd.avro.schema import OtherFields
from cdcd.errors import BUG_HINT, CdcdError, DecodeError
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, TOAST_UNCHANGED, column_at, column_size
from cdcd.transaction.key_hash import murmur2
from cdcd.transaction.relations import IDENTITY_FULL, IDENTITY_NOTHING, ResolvedRelation
from cdcd.transaction.tuple_checks import PARTITION_HINT


@final
class KeyField:
    """One column of a relation, in a linked list: elements of a Python list would cost a type check each."""

    def __init__(
        self, index: i64, name: str, codec: Codec, form: EnvelopeForm, in_key: bool, next_field: KeyField | None
    ) -> None:
        self.index: i64 = index
        self.name = name
        """As the form has it."""
        self.codec = codec
        self.writer = form.writer(codec)
        self.piece = form.piece(name, index == 0)
        """What is before the value in the row; empty in Avro, as all of these."""
        self.null = self.piece + b"null"
        """What is instead of piece and value."""
        self.key_piece = b""
        """What is before the value in the key."""
        self.in_key = in_key
        self.nullable_in_key = codec.is_fallible
        self.decides_partition = False
        self.next_field = next_field


def first_field(relation: ResolvedRelation, codecs: list[Codec], form: EnvelopeForm) -> KeyField | None:
    """The first column of the relation; None if it has none. The others follow as `next_field`."""
    names = field_names([column.name for column in relation.columns])
    first: KeyField | None = None
    for index in range(len(codecs) - 1, -1, -1):
        column = relation.columns[index]
        name = form.name(column.name, names[index])
        first = KeyField(index, name, codecs[index], form, column.in_key, first)
    return first


@final
class KeyEncoder:
    """Encodes the keys of one relation in one version."""

    def __init__(
        self,
        out: BytesWriter,
        relation: ResolvedRelation,
        first: KeyField | None,
        form: EnvelopeForm,
        others: OtherFields,
    ) -> None:
        """`first`: the relation's first column, as `first_field` gives it. `others`: the fields that are no columns."""
        self._out = out
        self._form = form
        self._is_json = form.is_json
        self._table = f"{relation.schema}.{relation.name}"
        self._first = first
        self._end: i64 = 0
        """The index after the key's last column; 0 without a key."""
        field = first
        while field is not None:
            if field.in_key:
                field.decides_partition = relation.columns[field.index].name == relation.partition_by.column
                field.key_piece = form.piece(field.name, self._end == 0 and not others.table)
                self._end = field.index + 1
            field = field.next_field
        self.has_key = self._end != 0
        """Whether the events have a key."""
        self.hash: i64 = -1 if relation.partition_by.is_by_key else 0
        """The hash that decides the partition of the event; -1: that of the whole key does."""
        self.from_catalog = relation.identity in (IDENTITY_FULL, IDENTITY_NOTHING)
        """The key's columns come from the catalog, not from the stream. So the server may send nulls in them."""
        self.header = b""
        self.table_piece = b""
        """What is behind the header, where other tables share the topic."""
        if others.table:
            self.table_piece = form.table_in_key(others.table, relation.schema, relation.name)
        self._losses_field = others.losses
        self._no_losses = form.key_end(others.losses, [])
        self._has_end = bool(self._no_losses)
        self._problems: list[tuple[str, str]] = []

    def begin(self) -> None:
        """Start a key. Then call `add` for each key column, in the order of the table, and `finish`."""
        self._out.truncate(0)
        self._out.write(self.header)
        if self._problems:
            self._problems = []

    def missing(self, field: KeyField) -> CdcdError:
        """The error of a row without a value for a column of the key."""
        return DecodeError(
            f"a row of {self._table} has no value for the key column {field.name}",
            PARTITION_HINT,
            code="partition-identity-lesser",
        )

    def unknown(self) -> CdcdError:
        """The error of an old row of which only the key came, for a table without a key: no reader could find it."""
        return DecodeError(
            f"an old row of {self._table} came with its key only, and the table has no key",
            PARTITION_HINT,
            code="partition-identity-lesser",
        )

    def encode(self, frame: bytes, at: i64, old: i64) -> bytes | None:
        """The key of the checked tuple at `at`. Values that PostgreSQL left out are in the tuple at `old` (0: none).

        None if the key comes from the catalog and a key column is null: the row is older than the primary key.
        """
        self.begin()
        field = self._first
        at += 2
        while field is not None and field.index < self._end:
            if field.in_key:
                kind: i64 = frame[at]
                if kind == NULL and self.from_catalog:
                    return None
                in_old = kind == TOAST_UNCHANGED and old != 0
                value = column_at(frame, old, field.index) if in_old else at
                if frame[value] != BINARY and frame[value] != TEXT:
                    raise self.missing(field)
                size = i64(read_i32_be(frame, value + 1))
                self.add(field, frame[value], frame, value + 5, size)
            at += column_size(frame, at)
            field = field.next_field
        return self.finish()

    def add(self, field: KeyField, kind: i64, frame: bytes, at: i64, size: i64) -> None:
        """Append a column's value, BINARY or TEXT, of `size` bytes at `at`."""
        out = self._out
        mark = len(out)
        if self._is_json:
            out.write(field.key_piece)
        elif field.nullable_in_key:
            out.append(2)
        value = len(out)
        if write_value(field, kind, frame, at, size, out):
            if field.decides_partition:
                self.hash = murmur2(out.getvalue()[value:])
            return
        if field.decides_partition:
            self.hash = 0
        if not field.nullable_in_key:
            raise DecodeError(f"a key of {self._table} has a value of {field.name} that Avro cannot hold", BUG_HINT)
        out.truncate(mark)
        if self._is_json:
            out.write(field.key_piece + b"null")
        else:
            out.append(0)
        self._problems.append((field.name, text_of(field, kind, frame, at, size)))

    def finish(self) -> bytes:
        """End the key, and return its bytes."""
        out = self._out
        if self._problems:
            out.write(self._form.key_end(self._losses_field, self._problems))
            self._problems = []
        elif self._has_end:
            out.write(self._no_losses)
        return out.getvalue()

    def is_unchanged(self, frame: bytes, old: i64, new: i64) -> bool:
        """Whether both checked tuples have the same key. A value that the new tuple leaves out is unchanged."""
        field = self._first
        old += 2
        new += 2
        while field is not None and field.index < self._end:
            old_size = column_size(frame, old)
            new_size = column_size(frame, new)
            if (
                field.in_key
                and frame[new] != TOAST_UNCHANGED
                and (old_size != new_size or frame[old : old + old_size] != frame[new : new + new_size])
            ):
                return False
            old += old_size
            new += new_size
            field = field.next_field
        return True


def write_value(field: KeyField, kind: i64, frame: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
    """Append the value, BINARY or TEXT, of `size` bytes at `at`; False if Avro cannot hold it."""
    if kind == BINARY:
        return field.writer.binary(frame, at, size, out)
    return field.writer.text(frame, at, size, out)


def text_of(field: KeyField, kind: i64, frame: bytes, at: i64, size: i64) -> str:
    """PostgreSQL's text of the value, BINARY or TEXT, of `size` bytes at `at`."""
    return text_of_value(field.codec, kind == BINARY, frame, at, size)
