"""Events as Avro records, with their schemas in Kafka or in a schema registry.

Before: the daemon passes on settings, the database's encoding, and the parked tables.
After: `event_encoder` encodes; `schema_store` makes schemas known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore, ObservedStore, PerTableStore, SchemaStore
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.record_consumer import RecordConsumer


class AvroFormat(EventFormat):
    """Makes the encoders of Avro records."""

    def __init__(
        self,
        numeric: Literal["decimal", "string"],
        encoding: str,
        on_schema: Callable[[str, bytes], None] | None = None,
        registry: SchemaStore | None = None,
        parked: frozenset[tuple[str, str]] = frozenset(),
        to_text: Callable[[bytes], str] | None = None,
    ) -> None:
        """`numeric`: the setting `avro.numeric`. `encoding`: the database's encoding, by PostgreSQL's name.

        `on_schema` is called when the stream first uses a schema for a table's events, with `schema.table` and the
        header of the events. Schemas go to Kafka if `registry` is None. If not, they go to the registry, but those of
        the `parked` tables (schema, name) still go to Kafka. `to_text`: that of TypeOptions.
        """
        self._types = TypeOptions.of_database(numeric, encoding, self._position, to_text)
        self._on_schema = on_schema
        self._registry = registry
        self._parked = parked
        self._stream: EventEncoder | None = None
        self._stream_store: SchemaStore | None = None

    def stream_encoder(self, records: RecordConsumer) -> EventEncoder:
        store: SchemaStore = FingerprintStore(records)
        if self._registry is not None:
            store = PerTableStore(self._registry, store, self._parked)
        self._stream_store = store
        if self._on_schema is not None:
            store = ObservedStore(store, self._on_schema)
        self._stream = EventEncoder(records, store, self._types)
        return self._stream

    def snapshot_encoder(self, records: RecordConsumer) -> EventEncoder:
        # The daemon takes no snapshot of a parked table. So with a registry, all schemas are in the registry.
        store = FingerprintStore(records) if self._registry is None else self._stream_store
        assert store is not None
        return EventEncoder(records, store, self._types)

    def _position(self) -> int:
        """The commit LSN of the current transaction; 0 before the first."""
        return 0 if self._stream is None else self._stream.commit_lsn
