"""Puts the outbox around an event format. Without an outbox no module uses this.

Before: the daemon passes on the settings.
After: `outbox_events` publishes the events of the outbox; the format encodes all other changes.
"""

from __future__ import annotations

from typing import final

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.outbox.avro_payloads import AvroPayloads
from cdcd.outbox.outbox_events import OutboxConsumer
from cdcd.outbox.outbox_rules import OutboxRules
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.record_consumer import RecordConsumer


@final
class OutboxFormat(EventFormat):
    """A format next to an outbox."""

    def __init__(
        self, events: EventFormat, rules: OutboxRules, options: TypeOptions, payloads: AvroPayloads | None = None
    ) -> None:
        """`options`: how the texts of values are read. `payloads`: as OutboxConsumer."""
        self._events = events
        self._rules = rules
        self._options = options
        self._payloads = payloads

    def stream_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        consumer = self._events.stream_encoder(records)
        return OutboxConsumer(consumer, records, self._rules, self._options, self._payloads)

    def snapshot_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        return OutboxConsumer(self._events.snapshot_encoder(records), records, self._rules, self._options)
