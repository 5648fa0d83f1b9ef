"""Gives the records of any event format headers, if the settings ask for some. Without headers no module uses this.

Before: `assembler`, `change_router` and `snapshot` call the consumer of changes with each change.
After: the format's encoders make keys and values; `record_headers` makes the headers; `sink.batches` takes all.

It stands on both sides of an encoder: before it, a change says its relation and position; behind it, a record its op.

    HeadedChanges -> the format's RelationChanges -> HeadedRecords -> sink.batches
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from cdcd.transaction.change_consumer import ChangeConsumer, ChangeForwarder, RelationChanges
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.record_consumer import TRANSACTIONS, LargeValue, RecordConsumer, RecordForwarder
from cdcd.transaction.record_headers import HeaderChoice, HeaderWriter, RelationHeaders
from cdcd.transaction.relations import ResolvedRelation


@final
class HeadedFormat(EventFormat):
    """A format whose records have headers."""

    def __init__(self, events: EventFormat, choice: HeaderChoice) -> None:
        self._events = events
        self._choice = choice

    def stream_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        writer = HeaderWriter(self._choice)
        return HeadedConsumer(self._events.stream_encoder(HeadedRecords(records, writer)), writer)

    def snapshot_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        writer = HeaderWriter(self._choice)
        return HeadedConsumer(self._events.snapshot_encoder(HeadedRecords(records, writer)), writer)


@final
class HeadedConsumer(ChangeForwarder):
    """Tells the headers the transaction and the relation of each change."""

    def __init__(self, consumer: ChangeConsumer, writer: HeaderWriter) -> None:
        super().__init__(consumer)
        self._writer = writer

    def open_relation(self, relation: ResolvedRelation) -> RelationChanges:
        return HeadedChanges(self.consumer.open_relation(relation), self._writer, self._writer.of_relation(relation))

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        self._writer.begin(commit_lsn, commit_ts, xid)
        super().begin(commit_lsn, commit_ts, xid)

    def begin_snapshot(self, commit_lsn: i64, taken_us: i64) -> None:
        self._writer.begin_snapshot(commit_lsn, taken_us)
        super().begin_snapshot(commit_lsn, taken_us)

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        self._writer.relation = self._writer.messages
        self._writer.lsn = lsn
        super().message(prefix, content, transactional, lsn)


@final
class HeadedChanges(RelationChanges):
    """Tells the headers the relation and the position of each change."""

    def __init__(self, changes: RelationChanges, writer: HeaderWriter, relation: RelationHeaders) -> None:
        self._changes = changes
        self._writer = writer
        self._relation = relation

    def is_event(self, kind: i64) -> bool:
        return self._changes.is_event(kind)

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._note(lsn)
        self._changes.insert(frame, at, lsn)

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._note(lsn)
        self._changes.update(frame, at, lsn)

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._note(lsn)
        self._changes.delete(frame, at, lsn)

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        self._note(lsn)
        self._changes.truncate(lsn, cascade, restart_identity)

    def snapshot_row(self, row: bytes, at: i64, kinds: bytes, lsn: i64) -> None:
        self._note(lsn)
        self._changes.snapshot_row(row, at, kinds, lsn)

    def _note(self, lsn: i64) -> None:
        self._writer.relation = self._relation
        self._writer.lsn = lsn


@final
class HeadedRecords(RecordForwarder):
    """Gives each record its headers. Those about whole transactions get none."""

    def __init__(self, records: RecordConsumer, writer: HeaderWriter) -> None:
        super().__init__(records)
        self._writer = writer
        self._transactions: i64 = -1
        """The number of their topic; -1: there is none."""

    def open_table(self, schema: str, name: str) -> int:
        number = super().open_table(schema, name)
        if (schema, name) == TRANSACTIONS:
            self._transactions = number
        return number

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        super().add(table, op, key, value)
        if table != self._transactions:
            self._add_own(table, op)

    def add_large(self, table: i64, op: i64, key: bytes | None, value: LargeValue) -> None:
        super().add_large(table, op, key, value)
        self._add_own(table, op)

    def add_without_value(self, table: i64, op: i64, key: bytes) -> None:
        super().add_without_value(table, op, key)
        self._add_own(table, op)

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        super().add_to_every_partition(table, op, value)
        self._add_own(table, op)

    def _add_own(self, table: i64, op: i64) -> None:
        headers = self._writer.next(op)
        if headers:
            super().add_headers(table, headers, self._writer.bytes)
