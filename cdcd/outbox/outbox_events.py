"""Publishes the events of the outbox: each to the topic of its aggregate's type, under its aggregate's id.

Before: `assembler` and `change_router` hand in changes in commit order.
After: a RecordConsumer (`sink.batches`) takes the records. All other changes go to the event format.

An insert is an event. An update, a delete and a truncate of the outbox are none, and neither are rows of a snapshot: an
application that deletes its events after it has written them publishes each of them once. What lacks the type of its
aggregate, or its aggregate's id, goes to the topic of its table, or to that of the messages: nothing is lost. So does
what no registered schema fits, if payloads are to be Avro.

A topic is known here as a table of the schema "", which no table has, as the topic of the logical messages is.
"""

from __future__ import annotations

import logging
from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from cdcd.avro.codecs.lookup import TypeOptions, codecs_for
from cdcd.avro.codecs.text_encoding import escaped
from cdcd.avro.envelope_writer import AvroEnvelope
from cdcd.avro.key_encoder import KeyField, first_field, text_of
from cdcd.outbox.avro_payloads import AvroPayloads
from cdcd.outbox.message_content import fields_of
from cdcd.outbox.outbox_rules import OutboxRules
from cdcd.pgoutput.messages import INSERT, NEW
from cdcd.pgoutput.tuples import BINARY, TEXT, column_at, tuple_end
from cdcd.transaction.change_consumer import ChangeConsumer, ChangeForwarder, RelationChanges
from cdcd.transaction.record_consumer import Headers, RecordConsumer
from cdcd.transaction.relations import ResolvedRelation

log = logging.getLogger(__name__)

_CREATE: Final = 0x63
_BYTEA: Final = 17


@final
class OutboxConsumer(ChangeForwarder):
    """Takes the changes of the outbox, and hands all others on."""

    def __init__(
        self,
        consumer: ChangeConsumer,
        records: RecordConsumer,
        rules: OutboxRules,
        options: TypeOptions,
        payloads: AvroPayloads | None = None,
    ) -> None:
        """`payloads`: encodes JSON; None: payloads go as they are."""
        super().__init__(consumer)
        self._events = OutboxEvents(records, rules, payloads)
        self._rules = rules
        self._options = options

    def open_relation(self, relation: ResolvedRelation) -> RelationChanges:
        changes, rules = self.consumer.open_relation(relation), self._rules
        if not rules.matches(relation.schema, relation.name):
            return changes
        columns = {column.name: index for index, column in enumerate(relation.columns)}
        if missing := [name for name in rules.required if name not in columns]:
            log.warning(
                "the outbox %s.%s has no column %s: its rows go to its own topic",
                relation.schema, relation.name, ", ".join(missing),
            )  # fmt: skip
            return changes
        first = first_field(relation, codecs_for(relation.types, self._options), AvroEnvelope())
        return OutboxRows(changes, self._events, rules, relation, first)

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        rules = self._rules
        if prefix == rules.message_prefix:
            found = fields_of(content)
            if found is not None and self._publish(found):
                return
        super().message(prefix, content, transactional, lsn)

    def _publish(self, found: dict[str, str | None]) -> bool:
        """Publish an event from the fields of a message; False if it is none."""
        rules = self._rules
        aggregate, key = found.get(rules.aggregate_type), found.get(rules.aggregate_id)
        if not aggregate or key is None or rules.payload not in found:
            return False
        payload = found[rules.payload]
        headers = []
        for name in (rules.id, rules.type, *rules.headers):
            text = found.get(name)
            if text is not None:
                headers.append((name, text.encode()))
        return self._events.add(aggregate, key.encode(), None if payload is None else payload.encode(), headers)


@final
class OutboxRows(RelationChanges):
    """Takes the changes of the outbox in one version."""

    def __init__(
        self,
        changes: RelationChanges,
        events: OutboxEvents,
        rules: OutboxRules,
        relation: ResolvedRelation,
        first: KeyField | None,
    ) -> None:
        """`changes`: where the row of no event goes. `first`: the first column, as `first_field` gives it."""
        self._changes = changes
        self._events = events
        self._width: i64 = len(relation.columns)
        fields: dict[str, KeyField] = {}
        while first is not None:
            fields[relation.columns[first.index].name] = first
            first = first.next_field
        self._aggregate_type, self._aggregate_id, self._payload = (fields[name] for name in rules.required)
        self._headers = [(name, fields[name]) for name in (rules.id, rules.type, *rules.headers) if name in fields]
        self._is_bytea = [column.pgtype.oid == _BYTEA for column in relation.columns]

    def is_event(self, kind: i64) -> bool:
        return kind == INSERT

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        new = at + 1
        if (
            new >= len(frame)
            or frame[at] != NEW
            or tuple_end(frame, new, self._width, "Insert", "new tuple") != len(frame)
        ):
            self._changes.insert(frame, at, lsn)  # it refuses the frame
            return
        aggregate = self._value(frame, new, self._aggregate_type)
        key = self._value(frame, new, self._aggregate_id)
        if not aggregate or key is None:
            self._changes.insert(frame, at, lsn)
            return
        headers: Headers = []
        for name, field in self._headers:
            value = self._value(frame, new, field)
            if value is not None:
                headers.append((name, value))
        payload, is_json = self._value(frame, new, self._payload), not self._is_bytea[self._payload.index]
        if not self._events.add(aggregate.decode("utf-8", "backslashreplace"), key, payload, headers, is_json):
            self._changes.insert(frame, at, lsn)

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        """Publish nothing."""

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        """Publish nothing."""

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        """Publish nothing."""

    def snapshot_row(self, row: bytes, at: i64, kinds: bytes, lsn: i64) -> None:
        """Publish nothing: a snapshot that goes on after a kill has rows twice."""

    def _value(self, frame: bytes, at: i64, field: KeyField) -> bytes | None:
        """The bytes of a bytea, or PostgreSQL's text of another value, in UTF-8; None for null.

        Bytes that are not UTF-8 are escaped, as a UTF8 database may have some: in both modes of the server.
        """
        at = column_at(frame, at, field.index)
        kind: i64 = frame[at]
        if kind != BINARY and kind != TEXT:
            return None
        size = i64(read_i32_be(frame, at + 1))
        at += 5
        if not self._is_bytea[field.index]:
            return escaped(text_of(field, kind, frame, at, size)).encode()
        raw = frame[at : at + size]
        return raw if kind == BINARY else bytes.fromhex(raw[2:].decode())


@final
class OutboxEvents:
    """Gives events to the consumer of records."""

    def __init__(self, records: RecordConsumer, rules: OutboxRules, payloads: AvroPayloads | None) -> None:
        self._records = records
        self._rules = rules
        self._payloads = payloads

    def add(
        self, aggregate_type: str, key: bytes, payload: bytes | None, headers: Headers, is_json: bool = True
    ) -> bool:
        """Publish one event; False if it is none, because no schema fits its payload, which should be JSON.

        `payload` None: a record without a value.
        """
        records = self._records
        topic = self._rules.topic(aggregate_type)
        if self._payloads is not None and payload is not None and is_json:
            payload = self._payloads.encode(topic, payload)
            if payload is None:
                return False
        table = records.open_table("", topic)
        if payload is None:
            records.add_without_value(table, _CREATE, key)
        else:
            records.add(table, _CREATE, key, payload)
        if headers:
            records.add_headers(table, headers, sum([len(name) + len(value) for name, value in headers]))
        return True
