"""Events of cdcd's own format as JSON.

Before: the daemon has made the format of Avro. After: its encoders write through `json_records`.
"""

from __future__ import annotations

from cdcd.avro.avro_format import AvroFormat
from cdcd.json_events.json_records import JsonRecords
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.record_consumer import RecordConsumer


class JsonFormat(EventFormat):
    """Makes the encoders of JSON records."""

    def __init__(self, avro: AvroFormat, *, with_schemas: bool) -> None:
        """`avro`: a format without a schema registry. `with_schemas`: that of JsonRecords."""
        self._avro = avro
        self._with_schemas = with_schemas

    def stream_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        return self._avro.stream_encoder(JsonRecords(records, self._with_schemas))

    def snapshot_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        return self._avro.snapshot_encoder(JsonRecords(records, self._with_schemas))
