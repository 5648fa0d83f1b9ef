"""Events as Avro records, with their schemas in Kafka or in a schema registry.

Before: the daemon's wiring knows the settings, the database's encoding, and which tables are parked.
After: `event_encoder` encodes, `schema_store` makes schemas known.
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
    """Makes encoders of Avro records."""

    def __init__(
        self,
        numeric: Literal["decimal", "string"],
        encoding: str,
        on_schema: Callable[[str, bytes], None] | None = None,
        registry: SchemaStore | None = None,
        parked: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        """`numeric`: the setting. `encoding`: of the database, in PostgreSQL's words.

        `on_schema` gets `schema.table` and the header of its values, when the stream's events first have it. Without
        `registry`, schemas go to Kafka. With it, those of the `parked` tables (schema and name) still do.
        """
        self._types = TypeOptions.of_database(numeric, encoding, self._position)
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
        # No parked table has a snapshot, so the registry has the schemas of all the others.
        store = FingerprintStore(records) if self._registry is None else self._stream_store
        assert store is not None
        return EventEncoder(records, store, self._types)

    def _position(self) -> int:
        """The commit LSN of the transaction at hand; 0 before the first."""
        return 0 if self._stream is None else self._stream.commit_lsn
