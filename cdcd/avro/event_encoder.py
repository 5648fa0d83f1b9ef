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

from cdcd.avro.avro_names import field_names
from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.codecs.text_encoding import shown
from cdcd.avro.codecs.varint import write_long, write_text
from cdcd.avro.key_encoder import KeyEncoder, KeyField, text_of, write_value
from cdcd.avro.record_consumer import RecordConsumer
from cdcd.avro.schema import envelope_schema, key_schema
from cdcd.avro.schema_store import SchemaStore
from cdcd.errors import CdcdError, DecodeError
from cdcd.lsn import format_lsn
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.messages import KEY, NEW, OLD
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, Binary, column_at, tuple_end
from cdcd.transaction.change_consumer import ChangeConsumer, RelationChanges
from cdcd.transaction.relations import MESSAGES, ResolvedRelation

CREATE: Final = 0x63
UPDATE: Final = 0x75
DELETE: Final = 0x64
TRUNCATE: Final = 0x74
MESSAGE: Final = 0x6D
READ: Final = 0x72

_IDENTITY_NONE: Final = b"\x08none"
_IDENTITY_KEY: Final = b"\x06key"
_IDENTITY_FULL: Final = b"\x08full"

_BUG: Final = "This is a bug of the server or of cdcd; restart the daemon, and report it if it comes back"


REQUEST_MESSAGE_PREFIX: Final = "cdcd"
"""The prefix of logical messages, not transactional ones, that ask the daemon itself for something."""


@final
class EventEncoder(ChangeConsumer):
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

    def open_relation(self, relation: ResolvedRelation) -> RelationChanges:
        return self.open(relation)

    def open(self, relation: ResolvedRelation) -> RowEncoder:
        return RowEncoder(self, relation, [codec_for(c.pgtype, c.typmod, self._options) for c in relation.columns])

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        self.commit_lsn = commit_lsn
        self.seq = 0
        self._xid = xid
        self._commit_ts = commit_ts
        self._set_tail("")
        self.records.begin(commit_lsn, commit_ts)

    def copy(self, commit_lsn: i64, commit_ts: i64) -> None:
        """What follows are rows of a snapshot, which belong to no transaction; their `seq` counts on."""
        self.commit_lsn = commit_lsn
        self._commit_ts = commit_ts
        self._set_tail("")

    def origin(self, name: str) -> None:
        self._set_tail(name)

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        if self._messages is None:
            self._messages = self.open(MESSAGES)
        row = encode_tuple([b"t" if transactional else b"f", prefix.encode(), Binary(content)])
        self._messages.message(b"N" + row, lsn)
        if prefix == REQUEST_MESSAGE_PREFIX and not transactional:
            self.records.request(content)

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
class RowEncoder(RelationChanges):
    """Encodes the changes of one relation in one version."""

    def __init__(self, encoder: EventEncoder, relation: ResolvedRelation, codecs: list[Codec]) -> None:
        self._encoder = encoder
        self._relation = relation
        self._codecs = codecs
        self._width: i64 = len(codecs)
        self._first: KeyField | None = None
        names = field_names([column.name for column in relation.columns])
        for index in range(len(codecs) - 1, -1, -1):
            in_key = relation.columns[index].in_key
            self._first = KeyField(index, names[index], codecs[index], in_key, self._first)
        self._key = KeyEncoder(encoder.key, relation, self._first)
        self._table: i64 = 0
        self._value_header = b""
        self._truncate_header = b""
        self._unchanged: list[str] = []
        self._unrepresentable: list[tuple[str, str, str]] = []

    def _announce(self) -> None:
        """Make topic and schemas known, with the first event: a partition may never have one, but its root all."""
        relation, schemas = self._relation, self._encoder.schemas
        schema, name = relation.schema, relation.name
        self._table = self._encoder.records.open_table(schema, name)
        self._value_header = schemas.header(schema, name, "value", envelope_schema(relation, self._codecs))
        if self._key.there:
            self._key.header = schemas.header(schema, name, "key", key_schema(relation, self._codecs))

    def _announce_truncate(self) -> None:
        """Truncates have a schema of their own, so that what they alone say costs the rows nothing."""
        if not self._value_header:
            self._announce()
        relation = self._relation
        text = envelope_schema(relation, self._codecs, of_truncate=True)
        self._truncate_header = self._encoder.schemas.header(relation.schema, relation.name, "value", text)

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
        elif not self._key.there or self._key.same(frame, old, new):
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

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        if not self._truncate_header:
            self._announce_truncate()
        encoder = self._encoder
        out = encoder.value
        self._head(self._truncate_header, TRUNCATE, lsn)
        out.write(_IDENTITY_NONE)
        for _ in range(4):  # before, after: null; unchanged, unrepresentable: empty
            out.append(0)
        out.append(2)
        out.append(1 if cascade else 0)
        out.append(1 if restart_identity else 0)
        encoder.records.add_to_every_partition(self._table, TRUNCATE, out.getvalue())

    def message(self, row: bytes, lsn: i64) -> None:
        """A message as a row of MESSAGES: N and its tuple."""
        self._event(MESSAGE, row, lsn, 0, 0, 1)

    def read(self, row: bytes, at: i64, kinds: bytes, lsn: i64) -> None:
        """A row of a snapshot as COPY has it from `at` on, lengths and values; `kinds`: BINARY or TEXT by column.

        Raises DecodeError if it is cut off, or goes on behind its last column.
        """
        if not self._value_header:
            self._announce()
        out = self._encoder.value
        self._head(self._value_header, READ, lsn)
        out.write(_IDENTITY_NONE)
        out.append(0)
        out.append(2)
        self._key.begin()
        whole_key = self._key.there
        size: i64 = len(row)
        field = self._first
        while field is not None:
            if size < at + 4:
                raise self._not_a_row(row, f"is cut off at {at}")
            length = i64(read_i32_be(row, at))
            at += 4
            if length < 0:
                out.append(0)
                if field.in_key:
                    if not self._key.from_catalog:
                        raise self._key.missing(field)
                    whole_key = False
            else:
                if size < at + length:
                    raise self._not_a_row(row, f"is cut off at {at}")
                kind: i64 = kinds[field.index]
                mark = len(out)
                out.append(2)
                if not write_value(field, kind, row, at, length, out):
                    self._cannot_hold(field, mark, "after", text_of(field, kind, row, at, length))
                if field.in_key and whole_key:
                    self._key.value(field, kind, row, at, length)
                at += length
            field = field.following
        if at != size:
            raise self._not_a_row(row, f"has {size - at} bytes behind its last column")
        self._finish(READ, self._key.whole() if whole_key else None)

    # Events

    def _event(self, op: i64, frame: bytes, lsn: i64, old_kind: i64, old: i64, new: i64) -> None:
        """Encode and hand on one event.

        `old` and `new` are offsets of checked tuples, 0 where there is none; `old_kind` (KEY, OLD, or 0) says what of
        the old one the event shows. What `new` lacks of unchanged TOAST values is filled in from `old` in any case.
        """
        if not self._value_header:
            self._announce()
        out = self._encoder.value
        self._head(self._value_header, op, lsn)
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
        key: bytes | None = None
        if self._key.there:
            key = self._key.of(frame, old, 0) if new == 0 else self._key.of(frame, new, old)
        self._finish(op, key)

    def _head(self, header: bytes, op: i64, lsn: i64) -> None:
        encoder = self._encoder
        out = encoder.value
        out.truncate(0)
        out.write(header)
        out.append(2)
        out.append(u8(op & 0xFF))
        write_long(out, encoder.commit_lsn)
        write_long(out, encoder.seq)
        write_long(out, lsn)
        out.write(encoder.transaction_tail)
        encoder.seq += 1

    def _finish(self, op: i64, key: bytes | None) -> None:
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

    def _cannot_hold(self, field: KeyField, mark: i64, image: str, text: str) -> None:
        """Put null for the value that was begun at `mark`, and note its text."""
        out = self._encoder.value
        out.truncate(mark)
        out.append(0)
        self._unrepresentable.append((image, field.name, text))

    def _unsent(self, frame: bytes, field: KeyField, old: i64, image: str) -> None:
        """A TOAST value that the update left alone: take it from the old tuple if that has it, else name the column."""
        out = self._encoder.value
        at = column_at(frame, old, field.index) if old != 0 else 0
        if at != 0 and (frame[at] == BINARY or frame[at] == TEXT):
            size = i64(read_i32_be(frame, at + 1))
            mark = len(out)
            out.append(2)
            if not write_value(field, frame[at], frame, at + 5, size, out):
                self._cannot_hold(field, mark, image, text_of(field, frame[at], frame, at + 5, size))
            return
        out.append(0)
        self._unchanged.append(field.name)

    # What is wrong with a frame

    def _check(self, frame: bytes, at: i64, kind: i64, message: str) -> None:
        if at >= len(frame) or frame[at] != kind:
            raise self._wrong(frame, message, f"lacks its {chr(kind)} tuple")

    def _whole(self, frame: bytes, end: i64, message: str) -> None:
        if end != len(frame):
            raise self._wrong(frame, message, f"has {len(frame) - end} bytes too many")

    def _not_a_row(self, row: bytes, what: str) -> CdcdError:
        relation = f"{self._relation.schema}.{self._relation.name}"
        return DecodeError(f"a row of COPY of {len(row)} bytes for {relation} {what}", _BUG)

    def _wrong(self, frame: bytes, message: str, what: str) -> CdcdError:
        relation = f"{self._relation.schema}.{self._relation.name}"
        commit = format_lsn(self._encoder.commit_lsn)
        return DecodeError(
            f"{message} of {len(frame)} bytes for {relation}, in the transaction that commits at {commit}, {what}", _BUG
        )


def _write_strings(out: BytesWriter, texts: list[str]) -> None:
    write_long(out, len(texts))
    for text in texts:
        write_text(out, text)
    out.append(0)
