"""Encodes the changes of one relation as Debezium's events, or as flat rows: reads PostgreSQL's tuples in place.

Before: `event_encoder` hands in changes in commit order, `snapshot.copy_format` the rows of a snapshot.
After: a RecordConsumer (`sink.batches`) takes the records.
Source: Debezium's `Envelope` and `RelationalChangeRecordEmitter`; PostgreSQL, "Logical Replication Message Formats",
TupleData.

Hot path, compiled. Everything but the values is bytes that were made once for a relation or a transaction.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from cdcd.debezium.added_fields import AddedToTable
from cdcd.debezium.debezium_names import adjusted_field
from cdcd.debezium.event_tail import EventTail
from cdcd.debezium.event_writer import EventWriter
from cdcd.debezium.field_writer import Field
from cdcd.debezium.key_encoder import KeyEncoder
from cdcd.debezium.lost_values import LostValues
from cdcd.debezium.relation_schemas import header_schema, relation_schemas
from cdcd.debezium.transaction_metadata import TransactionMetadata
from cdcd.pgoutput.messages import DELETE, KEY, TRUNCATE
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, column_at
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.record_consumer import LargeValue
from cdcd.transaction.relations import ResolvedRelation
from cdcd.transaction.tuple_checks import TupleChecks

NEW_KEY: Final = "__debezium.newkey"
OLD_KEY: Final = "__debezium.oldkey"
"""The headers of a change of the key."""

_CREATE: Final = 0x63
_UPDATE: Final = 0x75
_DELETE: Final = 0x64
_TRUNCATE: Final = 0x74
_READ: Final = 0x72


_KEPT_BYTES: Final = 1_048_576
"""The largest buffer that is kept for the next event: a BytesWriter never gives memory back."""


@final
class RowEncoder(RelationChanges):
    """Encodes the changes of one relation in one version."""

    def __init__(
        self,
        writer: EventWriter,
        relation: ResolvedRelation,
        fields: list[Field],
        lost: LostValues | None,
        metadata: TransactionMetadata | None,
    ) -> None:
        """`lost`: keeps what an event does not have; None: nobody wants it. `metadata`: that of EventTail."""
        self._writer = writer
        self._lost = lost
        self._relation = relation
        self._fields = fields
        self._checks = TupleChecks(relation)
        self._key = KeyEncoder(writer, relation, fields)
        self._table: i64 = -1
        self._empty = b"{" if not writer.is_avro and not any(field.is_shown for field in fields) else b""
        """What begins a row without columns."""
        self._head = b""
        """What stands before an event's first row."""
        self._head_without_old = b""
        """What stands before the only row of an event."""
        self._head_without_rows = b""
        """What an event without rows has up to its source."""
        self._is_stale = False
        """A column may be null, and the schema does not say so."""
        table = (relation.schema, relation.name)
        self._tail = EventTail(writer, table, metadata)
        self._rows: AddedToTable | None = None
        """Not None: flat rows, with what stands behind their columns."""
        if writer.rows is not None:
            self._rows = AddedToTable(writer.rows, writer.form, table, is_empty=bool(self._empty))

    @property
    def _has_delete_events(self) -> bool:
        return self._rows is None or self._rows.fields.has_deleted_rows

    def _announce(self) -> None:
        """Make the topic known. This waits for the first event, because a relation may never have one."""
        self._is_stale = False
        relation, writer = self._relation, self._writer
        table = (relation.schema, relation.name)
        described, key = relation_schemas(relation, self._fields, self._key.fields, writer.prefix, writer.modes)
        if self._key.has_key:
            writer.expect(table, "key", key)
        self._table = writer.records.open_table(*table)
        head = writer.head_of(table, "value", described)
        if self._rows is None:
            self._head = head + writer.form.before
            self._head_without_old = head + writer.form.no_before
            self._head_without_rows = head + writer.form.no_rows
        else:
            self._head = self._head_without_old = head
            shown = [adjusted_field(each.name, writer.modes.field_names) for each in self._fields if each.is_shown]
            self._rows.fields.check(shown, (relation.schema, relation.name))
        writer.records.set_key(relation.schema, relation.name, relation.key, relation.oid, relation.added)
        if self._key.has_key:
            self._key.head = self._key.header_head = writer.head_of(table, "key", key)
            if relation.shared_topic and not writer.is_avro:
                in_header = header_schema(relation, self._key.fields, writer.prefix, writer.modes)
                self._key.header_head = writer.head_of(table, "key", in_header)

    # Changes

    def is_event(self, kind: i64) -> bool:
        if kind == TRUNCATE:
            return self._writer.takes_truncates
        return kind != DELETE or self._has_delete_events  # a tombstone needs a key, which an old row may lack

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        new = self._checks.inserted(frame, at, self._writer.commit_lsn)
        self._write_rows(frame, 0, 0, new)
        self._finish(_CREATE, self._key_of(frame, new, 0), lsn)

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        old = self._checks.old_of_update(frame, at, self._writer.commit_lsn)
        new = self._checks.new_of_update(frame, at, old, self._writer.commit_lsn)
        kind: i64 = frame[at]
        if old == 0 or not self._key.has_key or self._key.is_unchanged(frame, old, new):
            if kind == KEY and not (self._key.has_key or self._relation.has_lost_key):
                raise self._key.unknown()
            self._write_rows(frame, old, old, new)
            self._finish(_UPDATE, self._key_of(frame, new, old), lsn)
            return
        # A row under another key is another one for Kafka: delete it under the old key, and create it under the new.
        if self._table < 0:
            self._announce()
        after: bytes | None = self._key_of(frame, new, old)
        after_hash = self._key.hash
        before: bytes | None = self._key_of(frame, old, 0)
        new_key = self._key.header(frame, new, old, after)
        old_key = self._key.header(frame, old, 0, before)
        if self._has_delete_events:
            self._write_rows(frame, old, 0, 0)
        self._finish_change(_DELETE, before, lsn, NEW_KEY, new_key)
        self._key.hash = after_hash
        self._write_rows(frame, 0, old, new)
        self._finish_change(_CREATE, after, lsn, OLD_KEY, old_key)

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        old = self._checks.deleted(frame, at, self._writer.commit_lsn)
        if frame[at] == KEY and not (self._key.has_key or self._relation.has_lost_key):
            raise self._key.unknown()
        if self._table < 0:
            self._announce()
        if self._has_delete_events:
            self._write_rows(frame, old, 0, 0)
        self._finish(_DELETE, self._key_of(frame, old, 0), lsn)

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        writer = self._writer
        if not writer.takes_truncates:
            return
        if self._table < 0:
            self._announce()
        out = writer.value
        out.truncate(0)
        out.write(self._head_without_rows)
        self._write_rest(_TRUNCATE, lsn)
        writer.records.add_to_every_partition(self._table, _TRUNCATE, out.getvalue())

    def snapshot_row(self, row: bytes, at: i64, kinds: bytes, lsn: i64) -> None:
        if self._table < 0:
            self._announce()
        out = self._writer.value
        out.truncate(0)
        if self._lost is not None:
            self._lost.clear()
        out.write(self._head_without_old)
        out.write(self._empty)
        size: i64 = len(row)
        begin = at
        field = self._fields[0] if self._fields else None
        while field is not None:
            if size < at + 4:
                raise self._checks.malformed_row(row, f"is cut off at {at}")
            length = i64(read_i32_be(row, at))
            at += 4
            if length >= 0 and size < at + length:
                raise self._checks.malformed_row(row, f"is cut off at {at}")
            field.at = at
            field.size = length
            if field.is_shown:
                if length < 0:
                    if field.is_required:
                        self._relax(field)
                    out.write(field.null)
                else:
                    is_held = field.write(i64(kinds[field.index]), row, at, length, out)
                    if not is_held:
                        self._lose(field, True, i64(kinds[field.index]), row, at, length)
                    elif field.value.has_near and self._lost is not None:
                        self._lost.add_near(field, True, i64(kinds[field.index]), row, at, length)
            elif self._lost is not None and length >= 0:
                self._lost.add(field.index, True, i64(kinds[field.index]), row, at, length)
            if length > 0:
                at += length
            field = field.next_field
        if at != size:
            raise self._checks.malformed_row(row, f"has {size - at} bytes after its last column")
        if self._is_stale:
            self._announce()
            self.snapshot_row(row, begin, kinds, lsn)
            return
        out.write(self._writer.form.row_end)
        self._finish(_READ, self._key.encode_snapshot(row, kinds) if self._key.has_key else None, lsn)

    # Events

    def _write_rows(self, frame: bytes, before: i64, old: i64, new: i64) -> None:
        """Write the rows of an event.

        `before` and `new` are offsets of checked tuples; 0: no tuple. Values that PostgreSQL left out of `new` are in
        the tuple at `old`.
        """
        if self._table < 0:
            self._announce()
        self._write_images(frame, before, old, new)
        if self._is_stale:
            self._announce()
            self._write_images(frame, before, old, new)

    def _write_images(self, frame: bytes, before: i64, old: i64, new: i64) -> None:
        out = self._writer.value
        out.truncate(0)
        if self._lost is not None:
            self._lost.clear()
        if self._rows is not None:
            out.write(self._head)
            self._row(frame, before if new == 0 else new, old, new != 0)
            return
        if before == 0:
            out.write(self._head_without_old)
        else:
            out.write(self._head)
            self._row(frame, before, 0, False)
            out.write(self._writer.form.after if new != 0 else self._writer.form.no_after)
        if new != 0:
            self._row(frame, new, old, True)

    def _key_of(self, frame: bytes, at: i64, old: i64) -> bytes | None:
        return self._key.encode(frame, at, old) if self._key.has_key else None

    def _write_rest(self, op: i64, lsn: i64) -> None:
        """Write the fields behind the rows."""
        writer = self._writer
        out = writer.value
        if self._rows is not None:
            if self._rows.fields.has_clock:
                writer.see_clock()
            self._rows.write(out, op, lsn, writer.clock_ns)
        else:
            self._tail.write(op, lsn)
        out.write(writer.end)

    def _finish(self, op: i64, key: bytes | None, lsn: i64) -> bool:
        """End an event, and pass it to the consumer. False: there is none."""
        writer = self._writer
        if op == _DELETE and self._rows is not None and not self._rows.fields.has_deleted_rows:
            if key is None or not self._rows.fields.has_tombstones:  # without a key it would not say what it deletes
                return False
            writer.records.add_without_value(self._table, _DELETE, key)
            self._set_hash(key)
            return True
        self._write_rest(op, lsn)
        out = writer.value
        if len(out) > _KEPT_BYTES:
            writer.value = BytesWriter()
            writer.records.add_large(self._table, op, key, LargeValue(out))
        else:
            writer.records.add(self._table, op, key, out.getvalue())
        self._set_hash(key)
        if self._lost is not None:
            self._lost.give_to(writer.records, self._table)
        return True

    def _set_hash(self, key: bytes | None) -> None:
        if self._key.hash >= 0 and key is not None:
            self._writer.records.set_hash(self._table, self._key.hash)

    def _finish_change(self, op: i64, key: bytes | None, lsn: i64, header: str, other_key: bytes | None) -> None:
        """End one of the two events of a changed key."""
        if self._finish(op, key, lsn) and other_key is not None:
            self._writer.records.add_headers(self._table, [(header, other_key)], len(header) + len(other_key))

    # Tuples

    def _row(self, frame: bytes, at: i64, old: i64, is_new: bool) -> None:
        """Append the row of the checked tuple at `at`. Values that PostgreSQL left out may be in the tuple at `old`."""
        out = self._writer.value
        out.write(self._empty)
        is_whole = frame[at - 1] != KEY  # else all columns but those of the key are null
        field = self._fields[0] if self._fields else None
        at += 2
        while field is not None:
            kind: i64 = frame[at]
            at += 1
            if kind == BINARY or kind == TEXT:
                size = i64(read_i32_be(frame, at))
                at += 4
                if field.is_shown:
                    is_held = field.write(kind, frame, at, size, out)
                    if not is_held:
                        self._lose(field, is_new, kind, frame, at, size)
                    elif field.value.has_near and self._lost is not None:
                        self._lost.add_near(field, is_new, kind, frame, at, size)
                elif self._lost is not None:
                    self._lost.add(field.index, is_new, kind, frame, at, size)
                at += size
            elif field.is_shown:
                if kind == NULL:
                    if field.is_required and is_whole:
                        self._relax(field)
                    out.write(field.null)
                else:
                    self._write_unchanged(frame, field, old)
            elif self._lost is not None and kind != NULL:
                self._lost.add_unchanged(field.index, frame, old)
            field = field.next_field
        out.write(self._writer.form.row_end)

    def _relax(self, field: Field) -> None:
        """From here on the column may be null, in the schema, too.

        The row is of before the column became NOT NULL, or Connect's type cannot hold its value: 0 would be wrong.
        """
        field.relax(self._writer.modes.null_as_default)
        self._is_stale = True

    def _write_unchanged(self, frame: bytes, field: Field, old: i64) -> None:
        """Append an unchanged TOAST value from the old tuple; if that has none, the placeholder."""
        out = self._writer.value
        at = column_at(frame, old, field.index) if old != 0 else 0
        if at != 0 and (frame[at] == BINARY or frame[at] == TEXT):
            size = i64(read_i32_be(frame, at + 1))
            if not field.write(i64(frame[at]), frame, at + 5, size, out):
                self._lose(field, True, i64(frame[at]), frame, at + 5, size)
            elif field.value.has_near and self._lost is not None:
                self._lost.add_near(field, True, i64(frame[at]), frame, at + 5, size)
        else:
            out.write(field.unchanged)
            if self._lost is not None and not field.value.placeholder:
                self._lost.add_unchanged(field.index, frame, 0)

    def _lose(self, field: Field, is_new: bool, kind: i64, frame: bytes, at: i64, size: i64) -> None:
        """Connect's type cannot hold a value: BINARY or TEXT, of `size` bytes at `at`."""
        if field.is_required:
            self._relax(field)
        if self._lost is not None:
            self._lost.add(field.index, is_new, kind, frame, at, size)
