"""Events as Avro records, with their schemas in Kafka or in a schema registry.

Before: the daemon passes on settings, the database's encoding, and the parked tables.
After: `event_encoder` encodes; `schema_store` makes schemas known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.envelope_form import EnvelopeForm
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import SchemaStore, SchemaStores
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

        `on_schema`, `registry`, `parked`: as SchemaStores has them. `to_text`: that of TypeOptions.
        """
        self._types = TypeOptions.of_database(numeric, encoding, self._position, to_text)
        self._stores = SchemaStores(on_schema, registry, parked)
        self._stream: EventEncoder | None = None

    def stream_encoder(
        self, records: RecordConsumer, schemas: SchemaStore | None = None, form: EnvelopeForm | None = None
    ) -> EventEncoder:
        """`schemas`, `form`: of another form than Avro, as EventEncoder has them."""
        self._stream = EventEncoder(records, schemas or self._stores.of_stream(records), self._types, form)
        return self._stream

    def snapshot_encoder(
        self, records: RecordConsumer, schemas: SchemaStore | None = None, form: EnvelopeForm | None = None
    ) -> EventEncoder:
        """As `stream_encoder`."""
        return EventEncoder(records, schemas or self._stores.of_snapshots(records), self._types, form)

    def _position(self) -> int:
        """The commit LSN of the current transaction; 0 before the first."""
        return 0 if self._stream is None else self._stream.commit_lsn
