"""The interface of an event format. The daemon's wiring chooses a format, and no other module knows which.

Before: `record_consumer` says where records go.
After: `avro.avro_format`, `debezium.debezium_format` and `json_events.json_format` implement it; `headed_events` and
`outbox.outbox_format` stand around one. The encoders that it makes take changes, see `change_consumer`.

Another format is a package of its own, with a class of this kind.
"""

from __future__ import annotations

from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.record_consumer import RecordConsumer


class EventFormat:
    """Makes the encoders of one stream, each with the store that makes its schemas known to readers."""

    def stream_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        """The encoder of the stream's changes. Called once, before `snapshot_encoder`."""
        raise NotImplementedError

    def snapshot_encoder(self, records: RecordConsumer) -> ChangeConsumer:
        """An encoder of the rows of snapshots, which go to Kafka next to the stream."""
        raise NotImplementedError
