"""Encodes changes as Avro or JSON: reads PostgreSQL's tuples in place in the frame, and writes keys and events.

Before: `transaction` gives changes in commit order, `snapshot.copy_format` the rows of a snapshot.
After: a RecordConsumer (`sink.batches`) takes the records.
Source: Apache Avro specification, "Binary Encoding"; PostgreSQL, "Logical Replication Message Formats", TupleData.

An event's fields are written in the order of `envelope_fields`. What is not a row, `envelope_form` has.

Hot path. The budget for a row of 12 columns, compiled, is 0.6 us in Avro; the codecs take two thirds of it. A row
costs two Python objects: the key and the value. Unchanged and unrepresentable columns are rare, and may cost more.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.lookup import TypeOptions, codecs_for
from cdcd.avro.codecs.varint import write_long
from cdcd.avro.envelope_form import EnvelopeForm
from cdcd.avro.envelope_writer import AvroEnvelope
from cdcd.avro.key_encoder import KeyEncoder, KeyField, first_field, text_of, write_value
from cdcd.avro.schema import envelope_schema, key_schema, other_fields
from cdcd.avro.schema_store import SchemaStore
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.messages import KEY, OLD
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, Binary, column_at
from cdcd.transaction.change_consumer import ChangeConsumer, RelationChanges
from cdcd.transaction.record_consumer import LargeValue, RecordConsumer
from cdcd.transaction.relations import MESSAGES, ResolvedRelation
from cdcd.transaction.tuple_checks import TupleChecks

CREATE: Final = 0x63
UPDATE: Final = 0x75
DELETE: Final = 0x64
TRUNCATE: Final = 0x74
MESSAGE: Final = 0x6D
READ: Final = 0x72

_KEPT_BYTES: Final = 1_048_576
"""The largest buffer that is kept for the next event: a BytesWriter never gives memory back."""
_JOINED_MIN_BYTES: Final = 131_072
"""A value of this size goes straight from the frame into the record, if it may, and not through the buffer."""


@final
class EventEncoder(ChangeConsumer):
    """Encodes the changes of all relations. They share the open transaction and the buffers."""

    def __init__(
        self, records: RecordConsumer, schemas: SchemaStore, options: TypeOptions, form: EnvelopeForm | None = None
    ) -> None:
        """`schemas` must send to the same `records`, so that a schema comes before its first event.

        `form`: the caller must not use it for another encoder. None: Avro.
        """
        self.records = records
        self.form = AvroEnvelope() if form is None else form
        self.schemas = schemas
        self._options = options
        self.value = BytesWriter()
        self.key = BytesWriter()
        self.joined: list[tuple[i64, memoryview]] = []
        """Large values of the event: where in `value` each belongs, and its bytes in the frame."""
        self.commit_lsn: i64 = 0
        self.seq: i64 = 0
        self._xid: i64 = 0
        self._commit_ts: i64 = 0
        self._messages: RowEncoder | None = None

    def open_relation(self, relation: ResolvedRelation) -> RowEncoder:
        return RowEncoder(self, relation, codecs_for(relation.types, self._options))

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        self.commit_lsn = commit_lsn
        self.seq = 0
        self._xid = xid
        self._commit_ts = commit_ts
        self.form.begin(commit_lsn, commit_ts, xid, "")
        self.records.begin(commit_lsn, commit_ts)

    def begin_snapshot(self, commit_lsn: i64, taken_us: i64) -> None:
        self.commit_lsn = commit_lsn
        self._commit_ts = taken_us
        self.form.begin(commit_lsn, taken_us, self._xid, "")

    def origin(self, name: str, lsn: i64 = 0) -> None:
        self.form.begin(self.commit_lsn, self._commit_ts, self._xid, name)

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        if self._messages is None:
            self._messages = self.open_relation(MESSAGES)
        row = encode_tuple([b"t" if transactional else b"f", prefix.encode(), Binary(content)])
        self._messages.message(b"N" + row, lsn)

    def request(self, values: dict[str, str]) -> None:
        self.records.request(values)

    def commit(self, end_lsn: i64) -> None:
        self.records.commit(end_lsn)

    def join(self) -> bytes:
        """Return the event with its large values, and let go of their frame."""
        written = self.value.getvalue()
        if len(written) > _KEPT_BYTES:
            self.value = BytesWriter()
        parts: list[bytes | memoryview] = []
        at: i64 = 0
        for mark, large in self.joined:
            parts.append(written[at:mark])
            parts.append(large)
            at = mark
        parts.append(written[at:])
        self.joined = []
        return b"".join(parts)


@final
class RowEncoder(RelationChanges):
    """Encodes the changes of one relation in one version."""

    def __init__(self, encoder: EventEncoder, relation: ResolvedRelation, codecs: list[Codec]) -> None:
        self._encoder = encoder
        self._relation = relation
        self._codecs = codecs
        self._checks = TupleChecks(relation)
        self._form = encoder.form
        self._is_json = encoder.form.is_json
        self._first = first_field(relation, codecs, encoder.form)
        others = other_fields(relation, codecs)
        self._key = KeyEncoder(encoder.key, relation, self._first, encoder.form, others)
        self._row_end = b"}" if codecs else b"{}"
        """What ends a row in JSON."""
        self._table: i64 = 0
        self._value_header = b""
        self._truncate_header = b""
        self._named = b""
        if relation.shared_topic:
            self._named = encoder.form.table_in_source(relation.schema, relation.name)
        """The table, where other tables share its topic; else nothing."""
        self._unchanged: list[str] = []
        self._unrepresentable: list[tuple[str, str, str]] = []

    def _announce(self) -> None:
        """Make topic and schemas known. This waits for the first event, because a relation may never have one."""
        relation, schemas = self._relation, self._encoder.schemas
        schema, name = relation.schema, relation.name
        key_text = key_schema(relation, self._codecs) if self._key.has_key else ""
        if key_text:
            schemas.expect(schema, name, "key", key_text)
        self._table = self._encoder.records.open_table(schema, name)
        self._value_header = schemas.header_for(schema, name, "value", envelope_schema(relation, self._codecs))
        if schema:
            self._encoder.records.set_key(schema, name, relation.key, relation.oid, relation.added)
        if key_text:
            self._key.header = schemas.header_for(schema, name, "key", key_text) + self._key.table_piece

    def _announce_truncate(self) -> None:
        """Make the schema of truncates known: it differs from that of rows."""
        if not self._value_header:
            self._announce()
        relation = self._relation
        text = envelope_schema(relation, self._codecs, of_truncate=True)
        self._truncate_header = self._encoder.schemas.header_for(relation.schema, relation.name, "value", text)

    # Changes

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        new = self._checks.inserted(frame, at, self._encoder.commit_lsn)
        self._event(CREATE, frame, lsn, 0, 0, new)

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        old = self._checks.old_of_update(frame, at, self._encoder.commit_lsn)
        new = self._checks.new_of_update(frame, at, old, self._encoder.commit_lsn)
        kind: i64 = frame[at]
        if old == 0:
            self._event(UPDATE, frame, lsn, 0, 0, new)
        elif not self._key.has_key or self._key.is_unchanged(frame, old, new):
            self._event(UPDATE, frame, lsn, kind, old, new)
        else:
            # The new key may go to another partition, and compaction knows only keys. So delete the row under the old
            # key, and create it under the new key.
            self._event(DELETE, frame, lsn, kind, old, 0)
            self._event(CREATE, frame, lsn, 0, old, new)

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        old = self._checks.deleted(frame, at, self._encoder.commit_lsn)
        self._event(DELETE, frame, lsn, frame[at], old, 0)

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        if not self._truncate_header:
            self._announce_truncate()
        encoder = self._encoder
        self._head(self._truncate_header, TRUNCATE, lsn)
        self._form.write_rest_of_truncate(encoder.value, cascade, restart_identity)
        encoder.records.add_to_every_partition(self._table, TRUNCATE, encoder.value.getvalue())

    def message(self, row: bytes, lsn: i64) -> None:
        """Encode a logical message. `row` is a row of MESSAGES: the byte N and its tuple."""
        self._event(MESSAGE, row, lsn, 0, 0, 1)

    def snapshot_row(self, row: bytes, at: i64, kinds: bytes, lsn: i64) -> None:
        if not self._value_header:
            self._announce()
        out = self._encoder.value
        self._head(self._value_header, READ, lsn)
        out.write(self._form.only_after)
        self._key.begin()
        has_key = self._key.has_key
        size: i64 = len(row)
        field = self._first
        while field is not None:
            if size < at + 4:
                raise self._checks.malformed_row(row, f"is cut off at {at}")
            length = i64(read_i32_be(row, at))
            at += 4
            if length < 0:
                self._write_null(field)
                if field.in_key:
                    if not self._key.from_catalog:
                        raise self._key.missing(field)
                    has_key = False
            else:
                if size < at + length:
                    raise self._checks.malformed_row(row, f"is cut off at {at}")
                kind: i64 = kinds[field.index]
                mark = len(out)
                self._begin_value(field)
                is_joined = length >= _JOINED_MIN_BYTES and self._is_joined(field, kind, row, at, length)
                if not (is_joined or write_value(field, kind, row, at, length, out)):
                    self._write_unrepresentable(field, mark, "after", text_of(field, kind, row, at, length))
                if field.in_key and has_key:
                    self._key.add(field, kind, row, at, length)
                at += length
            field = field.next_field
        if at != size:
            raise self._checks.malformed_row(row, f"has {size - at} bytes after its last column")
        if self._is_json:
            out.write(self._row_end)
        self._finish(READ, self._key.finish() if has_key else None)

    # Events

    def _event(self, op: i64, frame: bytes, lsn: i64, old_kind: i64, old: i64, new: i64) -> None:
        """Encode one event, which has a row, and pass it to the consumer.

        `old` and `new` are offsets of checked tuples; 0: no tuple. `old_kind` (KEY, OLD, or 0) says which columns of
        the old tuple the event shows as `before`. Unchanged TOAST values that `new` lacks are always taken from `old`.
        """
        if not self._value_header:
            self._announce()
        out = self._encoder.value
        self._head(self._value_header, op, lsn)
        form = self._form
        if old_kind == 0:
            out.write(form.only_after)
        else:
            out.write(form.full_before if old_kind == OLD else form.key_before)
            self._row(frame, old, 0, "before")
            out.write(form.no_after if new == 0 else form.after)
        if new != 0:
            self._row(frame, new, old, "after")
        key: bytes | None = None
        if self._key.has_key:
            key = self._key.encode(frame, old, 0) if new == 0 else self._key.encode(frame, new, old)
        elif old_kind == KEY and not self._relation.has_lost_key:
            raise self._key.unknown()
        self._finish(op, key)

    def _head(self, header: bytes, op: i64, lsn: i64) -> None:
        """Start an event: its schema's header, then the fields `op` and `source`."""
        encoder = self._encoder
        out = encoder.value
        out.truncate(0)
        if encoder.joined:  # of an event that could not be encoded
            encoder.joined = []
        out.write(header)
        self._form.write_head(out, op, encoder.seq, lsn, self._named)
        encoder.seq += 1

    def _finish(self, op: i64, key: bytes | None) -> None:
        """End an event with the fields `unchanged` and `unrepresentable`, and pass it to the consumer."""
        encoder = self._encoder
        out = encoder.value
        if self._unchanged or self._unrepresentable:
            self._form.write_losses(out, self._unchanged, self._unrepresentable)
            self._unchanged = []
            self._unrepresentable = []
        else:
            out.write(self._form.end)
        if encoder.joined:
            encoder.records.add(self._table, op, key, encoder.join())
        elif len(out) > _KEPT_BYTES:
            encoder.value = BytesWriter()
            encoder.records.add_large(self._table, op, key, LargeValue(out))
        else:
            encoder.records.add(self._table, op, key, out.getvalue())
        if self._key.hash >= 0 and key is not None:
            encoder.records.set_hash(self._table, self._key.hash)

    # Tuples

    def _row(self, frame: bytes, at: i64, old: i64, image: str) -> None:
        """Append the row of the checked tuple at `at`. Values that PostgreSQL left out may be in the tuple at `old`."""
        out = self._encoder.value
        is_json = self._is_json
        field = self._first
        at += 2
        while field is not None:
            kind: i64 = frame[at]
            if kind == BINARY or kind == TEXT:
                size = i64(read_i32_be(frame, at + 1))
                at += 5
                mark = len(out)
                if is_json:
                    out.write(field.piece)
                else:
                    out.append(2)
                if size >= _JOINED_MIN_BYTES and self._is_joined(field, kind, frame, at, size):
                    is_held = True
                elif kind == BINARY:
                    is_held = field.writer.binary(frame, at, size, out)
                else:
                    is_held = field.writer.text(frame, at, size, out)
                if not is_held:
                    self._write_unrepresentable(field, mark, image, text_of(field, kind, frame, at, size))
                at += size
            elif kind == NULL:
                if is_json:
                    out.write(field.null)
                else:
                    out.append(0)
                at += 1
            else:
                self._write_unchanged(frame, field, old, image)
                at += 1
            field = field.next_field
        if is_json:
            out.write(self._row_end)

    def _is_joined(self, field: KeyField, kind: i64, frame: bytes, at: i64, size: i64) -> bool:
        """Append the length of a large value and note its bytes, if the event has them as they are in the frame."""
        start = field.writer.copied_from(frame, at, size, kind == BINARY)
        if start < 0:
            return False
        out = self._encoder.value
        write_long(out, at + size - start)
        self._encoder.joined.append((len(out), memoryview(frame)[start : at + size]))
        return True

    def _begin_value(self, field: KeyField) -> None:
        """Append what is before a value."""
        if self._is_json:
            self._encoder.value.write(field.piece)
        else:
            self._encoder.value.append(2)

    def _write_null(self, field: KeyField) -> None:
        """Append what is instead of a value."""
        if self._is_json:
            self._encoder.value.write(field.null)
        else:
            self._encoder.value.append(0)

    def _write_unrepresentable(self, field: KeyField, mark: i64, image: str, text: str) -> None:
        """Replace the value that starts at `mark` by null, and note its text."""
        out = self._encoder.value
        out.truncate(mark)
        self._write_null(field)
        self._unrepresentable.append((image, field.name, text))

    def _write_unchanged(self, frame: bytes, field: KeyField, old: i64, image: str) -> None:
        """Append an unchanged TOAST value from the old tuple. If that has none, append null and note the name."""
        out = self._encoder.value
        at = column_at(frame, old, field.index) if old != 0 else 0
        if at != 0 and (frame[at] == BINARY or frame[at] == TEXT):
            size = i64(read_i32_be(frame, at + 1))
            mark = len(out)
            self._begin_value(field)
            is_joined = size >= _JOINED_MIN_BYTES and self._is_joined(field, frame[at], frame, at + 5, size)
            if not (is_joined or write_value(field, frame[at], frame, at + 5, size, out)):
                self._write_unrepresentable(field, mark, image, text_of(field, frame[at], frame, at + 5, size))
            return
        self._write_null(field)
        self._unchanged.append(field.name)
