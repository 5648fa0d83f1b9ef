"""The key of a table's events, a record of its own; and a column, whose value key and row encode the same way.

Before: `event_encoder` knows where a row's values lie. After: the record's key, in Kafka.
Source: Apache Avro specification, "Binary Encoding"; PostgreSQL, "Logical Replication Message Formats", TupleData.

Hot path, compiled: a key costs one Python object.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.text_encoding import shown
from cdcd.avro.codecs.varint import write_long, write_text
from cdcd.avro.schema import may_be_unrepresentable
from cdcd.errors import CdcdError, DecodeError
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, TOAST_UNCHANGED, column_at, column_size
from cdcd.transaction.relations import IDENTITY_FULL, IDENTITY_NOTHING, ResolvedRelation

_BUG: Final = "This is a bug of the server or of cdcd; restart the daemon, and report it if it comes back"
_LESSER: Final = (
    "A partition that is published as its root may keep less replica identity than the root: cdcd check names it, with "
    "the SQL that cures it from then on; for what the WAL lacks by now it takes a new slot and fresh copies. If "
    "there is none, this is a bug: report it"
)
"""Of what the server sends as the key, it checks that no part is null: but in the partition's own index."""


@final
class KeyField:
    """One column, as a link of a chain: following it costs no type check, as taking elements from a list would."""

    def __init__(self, index: i64, name: str, codec: Codec, in_key: bool, following: KeyField | None) -> None:
        self.index: i64 = index
        self.name = name
        self.codec = codec
        self.in_key = in_key
        self.nullable_in_key = may_be_unrepresentable(codec)
        self.following = following


@final
class KeyEncoder:
    """Encodes the keys of one relation in one version."""

    def __init__(self, out: BytesWriter, relation: ResolvedRelation, first: KeyField | None) -> None:
        """`first` begins the chain of all its columns."""
        self._out = out
        self._table = f"{relation.schema}.{relation.name}"
        self._first = first
        self._end: i64 = 0
        """Behind the last column of the key; 0: there is none."""
        self._fallible = False
        field = first
        while field is not None:
            if field.in_key:
                self._end = field.index + 1
                self._fallible = self._fallible or field.nullable_in_key
            field = field.following
        self.there = self._end != 0
        """The events have a key."""
        self.from_catalog = relation.identity in (IDENTITY_FULL, IDENTITY_NOTHING)
        """The server does not see to it that no part is null."""
        self.header = b""
        self._problems: list[tuple[str, str]] = []

    def begin(self) -> None:
        """A key begins, of which `value` adds the parts in the order of the columns."""
        self._out.truncate(0)
        self._out.write(self.header)
        if self._problems:
            self._problems = []

    def missing(self, field: KeyField) -> CdcdError:
        """A part of the key is not there."""
        return DecodeError(f"a row of {self._table} has no value for the key column {field.name}", _LESSER)

    def of(self, frame: bytes, at: i64, old: i64) -> bytes | None:
        """The key of the checked tuple at `at`, of which the tuple at `old` may have what was not sent.

        None if a part of it is null: the row is older than the primary key, which the catalog told of.
        """
        self.begin()
        field = self._first
        at += 2
        while field is not None and field.index < self._end:
            if field.in_key:
                kind: i64 = frame[at]
                if kind == NULL and self.from_catalog:
                    return None
                unsent = kind == TOAST_UNCHANGED and old != 0
                value = column_at(frame, old, field.index) if unsent else at
                if frame[value] != BINARY and frame[value] != TEXT:
                    raise self.missing(field)
                size = i64(read_i32_be(frame, value + 1))
                self.value(field, frame[value], frame, value + 5, size)
            at += column_size(frame, at)
            field = field.following
        return self.whole()

    def value(self, field: KeyField, kind: i64, frame: bytes, at: i64, size: i64) -> None:
        """Append a part: the value, BINARY or TEXT, of `size` bytes at `at`."""
        out = self._out
        mark = len(out)
        if field.nullable_in_key:
            out.append(2)
        if write_value(field, kind, frame, at, size, out):
            return
        if not field.nullable_in_key:
            raise DecodeError(f"a key of {self._table} has a value of {field.name} that Avro cannot hold", _BUG)
        out.truncate(mark)
        out.append(0)
        self._problems.append((field.name, text_of(field, kind, frame, at, size)))

    def whole(self) -> bytes:
        """The key, of which all values are written."""
        out = self._out
        if self._fallible:
            if self._problems:
                write_long(out, len(self._problems))
                for name, text in self._problems:
                    write_text(out, name)
                    write_text(out, text)
                self._problems = []
            out.append(0)
        return out.getvalue()

    def same(self, frame: bytes, old: i64, new: i64) -> bool:
        """The key's columns are the same in both checked tuples; one that was not sent again is."""
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
            field = field.following
        return True


def write_value(field: KeyField, kind: i64, frame: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
    """Append the value, BINARY or TEXT, of `size` bytes at `at`; False if Avro cannot hold it."""
    if kind == BINARY:
        return field.codec.binary(frame, at, size, out)
    return field.codec.text(frame, at, size, out)


def text_of(field: KeyField, kind: i64, frame: bytes, at: i64, size: i64) -> str:
    """PostgreSQL's text of the value, BINARY or TEXT, of `size` bytes at `at`."""
    if kind == BINARY:
        return field.codec.render(frame, at, size)
    return shown(frame[at : at + size])
