"""Encodes the key of a table's events: the columns of its key, in the order of the index.

Before: `event_encoder` knows where a row's values are.
After: `event_encoder` passes the bytes on as the key of the Kafka record.
Source: Debezium's `TableSchemaBuilder` (keys); PostgreSQL, "Logical Replication Message Formats", TupleData.

Hot path, compiled: a key costs one Python object.
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from cdcd.avro.codecs.text_encoding import shown
from cdcd.avro.key_encoder import PARTITION_HINT
from cdcd.debezium.field_writer import Field
from cdcd.debezium.json_text import quoted
from cdcd.errors import CdcdError, DecodeError
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, TOAST_UNCHANGED, column_at
from cdcd.transaction.relations import IDENTITY_FULL, IDENTITY_NOTHING, ResolvedRelation

_BRACE = 125


@final
class KeyEncoder:
    """Encodes the keys of one relation in one version."""

    def __init__(self, out: BytesWriter, relation: ResolvedRelation, fields: list[Field]) -> None:
        """`fields`: the relation's columns."""
        self._out = out
        self._table = f"{relation.schema}.{relation.name}"
        by_name = {field.name: field for field in fields}
        names = [name for name in relation.key_order if name in by_name and by_name[name].in_key]
        self.fields = [by_name[name] for name in names]
        """The key's columns, in its order. A column that Debezium does not know has no value."""
        self._pieces: list[bytes] = []
        for field in self.fields:
            self._pieces.append((b"," if self._pieces else b"{") + quoted(field.name) + b":")
        self.has_key = bool(self.fields)
        """Whether the events have a key."""
        self.from_catalog = relation.identity in (IDENTITY_FULL, IDENTITY_NOTHING)
        """The key's columns come from the catalog, not from the stream. So the server may send nulls in them."""
        self.head = b""
        """What stands before the key: its schema."""
        self.close = False
        """A brace ends what `head` begins."""

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
            out.write(self._pieces[i])
            self._write(field, kind, frame, value + 5, i64(read_i32_be(frame, value + 1)))
        return self._finish()

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
            out.write(self._pieces[i])
            self._write(field, kinds[field.index], row, field.at, field.size)
        return self._finish()

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

    def _write(self, field: Field, kind: i64, frame: bytes, at: i64, size: i64) -> None:
        """Append a value. One that Connect's type cannot hold is PostgreSQL's text, so that two keys always differ."""
        out = self._out
        mark = len(out)
        if kind == BINARY:
            is_held = field.is_shown and field.value.binary(frame, at, size, out)
        else:
            is_held = field.is_shown and field.value.text(frame, at, size, out)
        if not is_held:
            out.truncate(mark)
            out.write(quoted(shown(frame[at : at + size])))

    def _finish(self) -> bytes:
        self._out.append(_BRACE)
        if self.close:
            self._out.append(_BRACE)
        return self._out.getvalue()
