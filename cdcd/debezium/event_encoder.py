"""Encodes changes as Debezium's events, or as flat rows.

Before: `transaction` gives changes in commit order, `snapshot.copy_format` the rows of a snapshot.
After: `row_encoder` and `message_encoder` write the events; a RecordConsumer (`sink.batches`) takes the records.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from cdcd.debezium.event_writer import EventWriter
from cdcd.debezium.field_writer import fields_of
from cdcd.debezium.lost_values import LostValues
from cdcd.debezium.message_encoder import MessageEncoder
from cdcd.debezium.row_encoder import RowEncoder
from cdcd.debezium.transaction_metadata import TransactionMetadata
from cdcd.debezium.values.lookup import ValueLookup
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.relations import ResolvedRelation


@final
class EventEncoder(ChangeConsumer):
    """Encodes the changes of all relations. They share the open transaction and the buffers."""

    def __init__(self, writer: EventWriter, lookup: ValueLookup, last_commit: int = 0) -> None:
        """`last_commit`: where the last transaction before ends; 0: unknown."""
        self._writer = writer
        self._lookup = lookup
        self._last_commit: i64 = last_commit
        self._commit_ts: i64 = 0
        self._xid: i64 = 0
        self._messages: MessageEncoder | None = None
        self._metadata = TransactionMetadata(writer) if writer.modes.transactions else None

    @property
    def commit_lsn(self) -> i64:
        """The commit LSN of the open transaction; if none is open, of the last one."""
        return self._writer.commit_lsn

    def open_relation(self, relation: ResolvedRelation) -> RowEncoder:
        writer = self._writer
        fields = fields_of(relation, self._lookup, writer.modes, is_avro=writer.is_avro)
        lost = LostValues(relation, self._lookup.options, writer.modes.placeholder) if writer.modes.keeps_lost else None
        return RowEncoder(writer, relation, fields, lost, self._metadata)

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        self._commit_ts = commit_ts
        self._xid = xid
        self._writer.begin(commit_lsn)
        self._writer.form.begin(commit_ts, xid, self._last_commit, False)
        if self._metadata is not None:
            self._metadata.begin(commit_ts, xid)
        self._writer.records.begin(commit_lsn, commit_ts)

    def begin_snapshot(self, commit_lsn: i64, taken_us: i64) -> None:
        self._writer.begin(commit_lsn)
        self._writer.form.begin(taken_us, 0, 0, True)

    def origin(self, name: str, lsn: i64 = 0) -> None:
        self._writer.form.origin(name, lsn)
        if self._metadata is not None:
            self._metadata.origin()

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        if not transactional:
            self._last_commit = lsn  # Debezium's connector takes it for a commit
            self._writer.form.begin(self._commit_ts, self._xid, lsn, False)
        if self._messages is None:
            self._messages = MessageEncoder(self._writer, self._metadata)
        self._messages.message(prefix, content, transactional, lsn)

    def request(self, values: dict[str, str]) -> None:
        self._writer.records.request(values)

    def commit(self, end_lsn: i64) -> None:
        self._last_commit = end_lsn
        if self._metadata is not None:
            self._metadata.end(end_lsn)
        self._writer.records.commit(end_lsn)
