"""Events of cdcd's own format as JSON.

Before: the daemon has made the format of Avro. After: the same encoders write in the form of `envelope`.
"""

from __future__ import annotations

from cdcd.avro.avro_format import AvroFormat
from cdcd.json_events.envelope import JsonEnvelope, JsonHeads
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.record_consumer import RecordConsumer


class JsonFormat(EventFormat):
    """Makes the encoders of JSON records."""

    def __init__(self, avro: AvroFormat, *, with_schemas: bool) -> None:
        """`avro`: the format that knows the types. `with_schemas`: Connect's schema is before each key and value."""
        self._avro = avro
        self._with_schemas = with_schemas

    def stream_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        return self._avro.stream_encoder(records, JsonHeads(self._with_schemas), JsonEnvelope(self._with_schemas))

    def snapshot_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        return self._avro.snapshot_encoder(records, JsonHeads(self._with_schemas), JsonEnvelope(self._with_schemas))
