"""Encodes the key of a table's events: the columns of its key, in the order of the index.

Before: `event_encoder` knows where a row's values are.
After: `event_encoder` passes the bytes on as the key of the Kafka record.
Source: Debezium's `TableSchemaBuilder` (keys); PostgreSQL, "Logical Replication Message Formats", TupleData.

Hot path, compiled: a key costs one Python object.
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64, u8

from cdcd.avro.codecs.text_encoding import shown
from cdcd.avro.single_object import MARKER
from cdcd.debezium.debezium_names import adjusted_field, table_identifier
from cdcd.debezium.event_writer import EventWriter
from cdcd.debezium.field_writer import Field, key_fields, table_field
from cdcd.debezium.header_text import struct_text
from cdcd.debezium.json_text import quoted
from cdcd.errors import CdcdError, DecodeError, Unpublishable
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, TOAST_UNCHANGED, column_at
from cdcd.transaction.key_hash import murmur2
from cdcd.transaction.relations import IDENTITY_FULL, IDENTITY_NOTHING, ResolvedRelation
from cdcd.transaction.tuple_checks import PARTITION_HINT


@final
class KeyEncoder:
    """Encodes the keys of one relation in one version."""

    def __init__(self, writer: EventWriter, relation: ResolvedRelation, fields: list[Field]) -> None:
        """`fields`: the relation's columns."""
        self._out = writer.key
        self._names = (relation.schema, relation.name)
        self._table = f"{relation.schema}.{relation.name}"
        self.fields = key_fields(relation, fields)
        """The key's columns, in its order. A column that Debezium does not know has no value."""
        self.names = [adjusted_field(field.name, writer.modes.field_names) for field in self.fields]
        """Their names in the schema."""
        self._pieces: list[bytes] = []
        for name in self.names:
            self._pieces.append((b"," if self._pieces else b"{") + quoted(name) + b":")
        self._is_avro = writer.is_avro
        self.has_key = bool(self.fields)
        """Whether the events have a key."""
        self.hash: i64 = -1 if relation.partition_by.is_by_key else 0
        """The hash that decides the partition of the last encoded key; -1: that of the whole key does."""
        self._column = relation.partition_by.column
        self.from_catalog = relation.identity in (IDENTITY_FULL, IDENTITY_NOTHING)
        """The key's columns come from the catalog, not from the stream. So the server may send nulls in them."""
        self.head = b""
        """What stands before the key: its schema."""
        self.header_head = b""
        """What stands before it in a header."""
        self._header_end = writer.form.row_end + writer.end
        self._end = self._header_end
        if named := table_field(relation, self.fields, writer.modes):
            identifier = table_identifier(writer.prefix, relation.schema, relation.name)
            self._end = writer.form.table_in_key(named, identifier) + self._header_end

    def encode(self, frame: bytes, at: i64, old: i64) -> bytes | None:
        """The key of the checked tuple at `at`. Values that PostgreSQL left out are in the tuple at `old` (0: none).

        None if the key comes from the catalog and a key column is null: the row is older than the primary key.
        """
        out = self._out
        out.truncate(0)
        out.write(self.head)
        for i, field in enumerate(self.fields):
            value = column_at(frame, at, field.index)
            if frame[value] == TOAST_UNCHANGED and old != 0:
                value = column_at(frame, old, field.index)
            kind: i64 = frame[value]
            if kind != BINARY and kind != TEXT:
                if kind == NULL and self.from_catalog:
                    return None
                raise self._missing(field)
            if not self._write(i, kind, frame, value + 5, i64(read_i32_be(frame, value + 1))):
                return None
        out.write(self._end)
        return out.getvalue()

    def encode_snapshot(self, row: bytes, kinds: bytes) -> bytes | None:
        """The key of a row of a snapshot, whose values the fields know the places of."""
        out = self._out
        out.truncate(0)
        out.write(self.head)
        for i, field in enumerate(self.fields):
            if field.size < 0:
                if self.from_catalog:
                    return None
                raise self._missing(field)
            if not self._write(i, kinds[field.index], row, field.at, field.size):
                return None
        out.write(self._end)
        return out.getvalue()

    def header(self, frame: bytes, at: i64, old: i64, key: bytes | None) -> bytes | None:
        """The key as a header; `key`: as `encode` has made it of the same arguments. It does not name the table."""
        if key is None:
            return None
        if not self._is_avro:
            return self.header_head + key[len(self.head) : len(key) - len(self._end)] + self._header_end
        shown_fields = []
        for i, field in enumerate(self.fields):
            value = column_at(frame, at, field.index)
            if frame[value] == TOAST_UNCHANGED:
                value = column_at(frame, old, field.index)
            out, size = BytesWriter(), i64(read_i32_be(frame, value + 1))
            if frame[value] == BINARY:
                field.value.binary(frame, value + 5, size, out)
            else:
                field.value.text(frame, value + 5, size, out)
            shown_fields.append((self.names[i], field.schema, out.getvalue()))
        return struct_text(shown_fields)

    def is_unchanged(self, frame: bytes, old: i64, new: i64) -> bool:
        """Whether both checked tuples have the same key. A value that the new tuple leaves out is unchanged."""
        for field in self.fields:
            before = column_at(frame, old, field.index)
            after = column_at(frame, new, field.index)
            if frame[after] == TOAST_UNCHANGED:
                continue
            if frame[before] != frame[after]:
                return False
            if frame[after] != NULL:
                size = i64(read_i32_be(frame, after + 1))
                if frame[before : before + 5 + size] != frame[after : after + 5 + size]:
                    return False
        return True

    def unknown(self) -> CdcdError:
        """The error of an old row of which only the key came, for a table without a key: no reader could find it."""
        return DecodeError(
            f"an old row of {self._table} came with its key only, and the table has no key",
            PARTITION_HINT,
            code="partition-identity-lesser",
        )

    def _missing(self, field: Field) -> CdcdError:
        return DecodeError(
            f"a row of {self._table} has no value for the key column {field.name}",
            PARTITION_HINT,
            code="partition-identity-lesser",
        )

    def _write(self, index: i64, kind: i64, frame: bytes, at: i64, size: i64) -> bool:
        """Append a value. In JSON one that Connect's type cannot hold is PostgreSQL's text: two keys always differ.

        False: the table is parked, because its keys cannot be written in Avro. Raises Unpublishable if it is not.
        """
        out = self._out
        field = self.fields[index]
        mark = len(out)
        if not self._is_avro:
            out.write(self._pieces[index])
            mark = len(out)
        elif field.branch >= 0:
            out.append(u8(field.branch))
        value = len(out)
        if kind == BINARY:
            is_held = field.is_shown and field.writer.binary(frame, at, size, out)
        else:
            is_held = field.is_shown and field.writer.text(frame, at, size, out)
        if not is_held:
            out.truncate(mark)
            if self._is_avro:
                return self._refuse(field)
            out.write(quoted(shown(frame[at : at + size])))
            value = mark
        if self._column and field.name == self._column:
            self.hash = murmur2(out.getvalue()[value:])
        return True

    def _refuse(self, field: Field) -> bool:
        if self.head.startswith(MARKER):  # so begin the events of parked tables
            return False
        raise Unpublishable(
            f"a row of {self._table} has a value in the key column {field.name} that Avro's type of it cannot hold, "
            "such as NaN or infinity",
            'Choose modes in [debezium] that hold it, such as decimal_handling_mode = "string"',
            table=self._names,
            keyless=True,
            code="key-unrepresentable",
        )
