"""Encodes changes as Avro records: PostgreSQL's tuples, read where they lie in the frame, become keys and events.

Before: `transaction.assembler` hands on changes in commit order.
After: a RecordConsumer (`sink.batches`) takes the records.
Source: Apache Avro specification, "Binary Encoding"; PostgreSQL, "Logical Replication Message Formats", TupleData.

Hot path. Budget for a row of 12 columns, compiled: 0.6 us, of which the codecs take two thirds. A row costs two Python
objects, the key and the value; unchanged and unrepresentable columns are rare and may cost more.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64, u8

from cdcd.avro.codec import Codec
from cdcd.avro.encodings import shown
from cdcd.avro.names import field_names
from cdcd.avro.records import RecordConsumer
from cdcd.avro.schema import envelope_schema, key_schema, may_be_unrepresentable
from cdcd.avro.stores import SchemaStore
from cdcd.avro.types import TypeOptions, codec_for
from cdcd.avro.varint import write_long, write_text
from cdcd.errors import CdcdError, DecodeError
from cdcd.lsn import format_lsn
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.messages import KEY, NEW, OLD
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, TOAST_UNCHANGED, Binary, tuple_end
from cdcd.source.pgtypes import PgType
from cdcd.transaction.changes import ChangeConsumer, RelationChanges
from cdcd.transaction.relations import IDENTITY_FULL, IDENTITY_NOTHING, Column, Relation

CREATE: Final = 0x63
UPDATE: Final = 0x75
DELETE: Final = 0x64
TRUNCATE: Final = 0x74
MESSAGE: Final = 0x6D

_IDENTITY_NONE: Final = b"\x08none"
_IDENTITY_KEY: Final = b"\x06key"
_IDENTITY_FULL: Final = b"\x08full"

_BUG: Final = "This is a bug of the server or of cdcd; restart the daemon, and report it if it comes back"


MESSAGES: Final = Relation(
    0,
    "",
    "messages",
    "n",
    [
        Column("transactional", PgType(16, "pg_catalog", "bool"), -1, False),
        Column("prefix", PgType(25, "pg_catalog", "text"), -1, False),
        Column("content", PgType(17, "pg_catalog", "bytea"), -1, False),
    ],
)
"""Logical decoding messages, as the rows of a relation of ours; no table has the schema ""."""


@final
class Encoder(ChangeConsumer):
    """The state that all relations share: the open transaction, and the buffers."""

    def __init__(self, records: RecordConsumer, schemas: SchemaStore, options: TypeOptions) -> None:
        self.records = records
        self.schemas = schemas
        self._options = options
        self.value = BytesWriter()
        self.key = BytesWriter()
        self.commit_lsn: i64 = 0
        self.seq: i64 = 0
        self.transaction_tail = b""
        """The envelope's source behind `lsn`: xid, commit_ts and origin are the same for the whole transaction."""
        self._xid: i64 = 0
        self._commit_ts: i64 = 0
        self._messages: RowEncoder | None = None

    def open_relation(self, relation: Relation) -> RelationChanges:
        return self._open(relation)

    def _open(self, relation: Relation) -> RowEncoder:
        return RowEncoder(self, relation, [codec_for(c.pgtype, c.typmod, self._options) for c in relation.columns])

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        self.commit_lsn = commit_lsn
        self.seq = 0
        self._xid = xid
        self._commit_ts = commit_ts
        self._set_tail("")
        self.records.begin(commit_lsn, commit_ts)

    def origin(self, name: str) -> None:
        self._set_tail(name)

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        if self._messages is None:
            self._messages = self._open(MESSAGES)
        row = encode_tuple([b"t" if transactional else b"f", prefix.encode(), Binary(content)])
        self._messages.message(b"N" + row, lsn)

    def commit(self, end_lsn: i64) -> None:
        self.records.commit(end_lsn)

    def _set_tail(self, origin: str) -> None:
        tail = BytesWriter()
        write_long(tail, self._xid)
        write_long(tail, self._commit_ts)
        if origin:
            tail.append(2)
            write_text(tail, origin)
        else:
            tail.append(0)
        self.transaction_tail = tail.getvalue()


@final
class Field:
    """One column, as a link of a chain: following it costs no type check, as taking elements from a list would."""

    def __init__(self, index: i64, name: str, codec: Codec, in_key: bool, following: Field | None) -> None:
        self.index: i64 = index
        self.name = name
        self.codec = codec
        self.in_key = in_key
        self.nullable_in_key = may_be_unrepresentable(codec)
        self.following = following


@final
class RowEncoder(RelationChanges):
    """Encodes the changes of one relation in one version."""

    def __init__(self, encoder: Encoder, relation: Relation, codecs: list[Codec]) -> None:
        self._encoder = encoder
        self._relation = relation
        self._codecs = codecs
        self._width: i64 = len(codecs)
        self._first: Field | None = None
        names = field_names([column.name for column in relation.columns])
        for index in range(len(codecs) - 1, -1, -1):
            in_key = relation.columns[index].in_key
            self._first = Field(index, names[index], codecs[index], in_key, self._first)
        keys = [index for index, column in enumerate(relation.columns) if column.in_key]
        self._key_end: i64 = max(keys, default=-1) + 1
        self._key_fallible = any(may_be_unrepresentable(codecs[index]) for index in keys)
        self._key_from_catalogue = relation.identity in (IDENTITY_FULL, IDENTITY_NOTHING)
        self._table: i64 = 0
        self._value_header = b""
        self._key_header = b""
        self._unchanged: list[str] = []
        self._unrepresentable: list[tuple[str, str, str]] = []
        self._key_problems: list[tuple[str, str]] = []

    def _announce(self) -> None:
        """Make topic and schemas known, with the first event: a partition may never have one, but its root all."""
        relation, schemas = self._relation, self._encoder.schemas
        schema, name = relation.schema, relation.name
        self._table = self._encoder.records.open_table(schema, name)
        self._value_header = schemas.header(schema, name, "value", envelope_schema(relation, self._codecs))
        if self._key_end:
            self._key_header = schemas.header(schema, name, "key", key_schema(relation, self._codecs))

    # Changes

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._check(frame, at, NEW, "Insert")
        new = at + 1
        self._whole(frame, tuple_end(frame, new, self._width, "Insert", "new tuple"), "Insert")
        self._event(CREATE, frame, lsn, 0, 0, new)

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        if at >= len(frame):
            raise self._wrong(frame, "Update", "is cut off before its tuples")
        kind: i64 = frame[at]
        old: i64 = 0
        if kind == KEY or kind == OLD:
            old = at + 1
            at = tuple_end(frame, old, self._width, "Update", "old tuple")
        self._check(frame, at, NEW, "Update")
        new = at + 1
        self._whole(frame, tuple_end(frame, new, self._width, "Update", "new tuple"), "Update")
        if old == 0:
            self._event(UPDATE, frame, lsn, 0, 0, new)
        elif self._key_end == 0 or self._same_key(frame, old, new):
            self._event(UPDATE, frame, lsn, kind, old, new)
        else:
            # Another key is another partition and another fate under compaction: the old key's row goes, a new one
            # comes.
            self._event(DELETE, frame, lsn, kind, old, 0)
            self._event(CREATE, frame, lsn, 0, old, new)

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        if at >= len(frame) or (frame[at] != KEY and frame[at] != OLD):
            raise self._wrong(frame, "Delete", "has neither a key nor an old tuple")
        old = at + 1
        self._whole(frame, tuple_end(frame, old, self._width, "Delete", "old tuple"), "Delete")
        self._event(DELETE, frame, lsn, frame[at], old, 0)

    def truncate(self, lsn: i64) -> None:
        encoder = self._encoder
        out = encoder.value
        self._head(TRUNCATE, lsn)
        out.write(_IDENTITY_NONE)
        for _ in range(4):  # before, after: null; unchanged, unrepresentable: empty
            out.append(0)
        encoder.records.add_to_every_partition(self._table, TRUNCATE, out.getvalue())

    def message(self, frame: bytes, lsn: i64) -> None:
        """A logical decoding message, as a row of the relation MESSAGES: `frame` is N and its tuple."""
        self._event(MESSAGE, frame, lsn, 0, 0, 1)

    # Events

    def _event(self, op: i64, frame: bytes, lsn: i64, old_kind: i64, old: i64, new: i64) -> None:
        """Encode and hand on one event.

        `old` and `new` are offsets of checked tuples, 0 where there is none; `old_kind` (KEY, OLD, or 0) says what of
        the old one the event shows. What `new` lacks of unchanged TOAST values is filled in from `old` in any case.
        """
        out = self._encoder.value
        self._head(op, lsn)
        if old_kind == 0:
            out.write(_IDENTITY_NONE)
            out.append(0)
        else:
            out.write(_IDENTITY_FULL if old_kind == OLD else _IDENTITY_KEY)
            out.append(2)
            self._row(frame, old, 0, "before")
        if new == 0:
            out.append(0)
        else:
            out.append(2)
            self._row(frame, new, old, "after")
        self._finish(op, frame, old, new)

    def _head(self, op: i64, lsn: i64) -> None:
        if not self._value_header:
            self._announce()
        encoder = self._encoder
        out = encoder.value
        out.truncate(0)
        out.write(self._value_header)
        out.append(2)
        out.append(u8(op & 0xFF))
        write_long(out, encoder.commit_lsn)
        write_long(out, encoder.seq)
        write_long(out, lsn)
        out.write(encoder.transaction_tail)
        encoder.seq += 1

    def _finish(self, op: i64, frame: bytes, old: i64, new: i64) -> None:
        encoder = self._encoder
        out = encoder.value
        if self._unchanged:
            _write_strings(out, self._unchanged)
            self._unchanged = []
        else:
            out.append(0)
        if self._unrepresentable:
            write_long(out, len(self._unrepresentable))
            for image, column, text in self._unrepresentable:
                write_text(out, image)
                write_text(out, column)
                write_text(out, text)
            self._unrepresentable = []
        out.append(0)
        key: bytes | None = None
        if self._key_end:
            key = self._key(frame, old, 0) if new == 0 else self._key(frame, new, old)
        encoder.records.add(self._table, op, key, out.getvalue())

    # Tuples

    def _row(self, frame: bytes, at: i64, old: i64, image: str) -> None:
        """Append the row whose checked tuple is at `at`; what was not sent is looked for in the tuple at `old`."""
        out = self._encoder.value
        field = self._first
        at += 2
        while field is not None:
            kind: i64 = frame[at]
            if kind == NULL:
                out.append(0)
                at += 1
            elif kind == BINARY:
                size = i64(read_i32_be(frame, at + 1))
                at += 5
                mark = len(out)
                out.append(2)
                if not field.codec.binary(frame, at, size, out):
                    self._cannot_hold(field, mark, image, field.codec.render(frame, at, size))
                at += size
            elif kind == TEXT:
                size = i64(read_i32_be(frame, at + 1))
                at += 5
                mark = len(out)
                out.append(2)
                if not field.codec.text(frame, at, size, out):
                    self._cannot_hold(field, mark, image, shown(frame[at : at + size]))
                at += size
            else:
                self._unsent(frame, field, old, image)
                at += 1
            field = field.following

    def _cannot_hold(self, field: Field, mark: i64, image: str, text: str) -> None:
        """Put null for the value that was begun at `mark`, and note its text."""
        out = self._encoder.value
        out.truncate(mark)
        out.append(0)
        self._unrepresentable.append((image, field.name, text))

    def _unsent(self, frame: bytes, field: Field, old: i64, image: str) -> None:
        """A TOAST value that the update left alone: take it from the old tuple if that has it, else name the column."""
        out = self._encoder.value
        at = _column_at(frame, old, field.index) if old != 0 else 0
        if at != 0 and (frame[at] == BINARY or frame[at] == TEXT):
            mark = len(out)
            out.append(2)
            if not _write_value(field, frame, at, out):
                self._cannot_hold(field, mark, image, _text(field, frame, at))
            return
        out.append(0)
        self._unchanged.append(field.name)

    def _key(self, frame: bytes, at: i64, old: i64) -> bytes | None:
        """The key of the checked tuple at `at`, of which the tuple at `old` may have what was not sent.

        None if a part of it is null: the row is older than the primary key, which the catalogue told of.
        """
        out = self._encoder.key
        out.truncate(0)
        out.write(self._key_header)
        field = self._first
        at += 2
        while field is not None and field.index < self._key_end:
            if field.in_key:
                kind: i64 = frame[at]
                if kind == NULL and self._key_from_catalogue:
                    return None
                unsent = kind == TOAST_UNCHANGED and old != 0
                self._key_value(frame, _column_at(frame, old, field.index) if unsent else at, field)
            at += _column_size(frame, at)
            field = field.following
        if self._key_fallible:
            if self._key_problems:
                write_long(out, len(self._key_problems))
                for name, text in self._key_problems:
                    write_text(out, name)
                    write_text(out, text)
                self._key_problems = []
            out.append(0)
        return out.getvalue()

    def _key_value(self, frame: bytes, at: i64, field: Field) -> None:
        out = self._encoder.key
        if frame[at] != BINARY and frame[at] != TEXT:
            raise self._wrong(frame, "Change", f"has no value for the key column {field.name}")
        mark = len(out)
        if field.nullable_in_key:
            out.append(2)
        if _write_value(field, frame, at, out):
            return
        if not field.nullable_in_key:
            raise self._wrong(frame, "Change", f"has a value for the key column {field.name} that Avro cannot hold")
        out.truncate(mark)
        out.append(0)
        self._key_problems.append((field.name, _text(field, frame, at)))

    def _same_key(self, frame: bytes, old: i64, new: i64) -> bool:
        """The key's columns are the same in both checked tuples; one that was not sent again is."""
        field = self._first
        old += 2
        new += 2
        while field is not None and field.index < self._key_end:
            old_size = _column_size(frame, old)
            new_size = _column_size(frame, new)
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

    # What is wrong with a frame

    def _check(self, frame: bytes, at: i64, kind: i64, message: str) -> None:
        if at >= len(frame) or frame[at] != kind:
            raise self._wrong(frame, message, f"lacks its {chr(kind)} tuple")

    def _whole(self, frame: bytes, end: i64, message: str) -> None:
        if end != len(frame):
            raise self._wrong(frame, message, f"has {len(frame) - end} bytes too many")

    def _wrong(self, frame: bytes, message: str, what: str) -> CdcdError:
        relation = f"{self._relation.schema}.{self._relation.name}"
        commit = format_lsn(self._encoder.commit_lsn)
        return DecodeError(
            f"{message} of {len(frame)} bytes for {relation}, in the transaction that commits at {commit}, {what}", _BUG
        )


def _write_value(field: Field, frame: bytes, at: i64, out: BytesWriter) -> bool:
    """Append the value whose kind byte, BINARY or TEXT, is at `at`; False if Avro cannot hold it."""
    size = i64(read_i32_be(frame, at + 1))
    if frame[at] == BINARY:
        return field.codec.binary(frame, at + 5, size, out)
    return field.codec.text(frame, at + 5, size, out)


def _text(field: Field, frame: bytes, at: i64) -> str:
    """PostgreSQL's text of the value whose kind byte, BINARY or TEXT, is at `at`."""
    size = i64(read_i32_be(frame, at + 1))
    if frame[at] == BINARY:
        return field.codec.render(frame, at + 5, size)
    return shown(frame[at + 5 : at + 5 + size])


def _column_size(frame: bytes, at: i64) -> i64:
    """The bytes that a column of a checked tuple takes, from its kind byte at `at` on."""
    kind: i64 = frame[at]
    if kind == BINARY or kind == TEXT:
        return i64(read_i32_be(frame, at + 1)) + 5
    return 1


def _column_at(frame: bytes, at: i64, column: i64) -> i64:
    """The offset of a column's kind byte in the checked tuple at `at`."""
    at += 2
    while column > 0:
        at += _column_size(frame, at)
        column -= 1
    return at


def _write_strings(out: BytesWriter, texts: list[str]) -> None:
    write_long(out, len(texts))
    for text in texts:
        write_text(out, text)
    out.append(0)
