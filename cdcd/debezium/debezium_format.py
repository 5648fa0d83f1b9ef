"""Events as Debezium writes them, in the JSON of Kafka Connect's JsonConverter, or the Avro of its AvroConverter.

Before: the daemon passes on settings, the database's name and encoding.
After: `event_encoder` encodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.schema_store import SchemaStore, SchemaStores
from cdcd.debezium.event_encoder import EventEncoder
from cdcd.debezium.event_writer import EventWriter
from cdcd.debezium.modes import Modes
from cdcd.debezium.values.lookup import ValueLookup
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.record_consumer import RecordConsumer


class DebeziumFormat(EventFormat):
    """Makes the encoders of Debezium's events."""

    def __init__(
        self,
        modes: Modes,
        names: tuple[str, str],
        encoding: str,
        clock_ns: Callable[[], int],
        last_commit: int = 0,
        to_text: Callable[[bytes], str] | None = None,
        stores: SchemaStores | None = None,
        parked: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        """`names`: the prefix of the topics, and the database. `encoding`: the database's, by PostgreSQL's name.

        `clock_ns`: as EventWriter has it. `last_commit`: as EventEncoder. `to_text`: that of TypeOptions. `stores`:
        makes known the schemas of events in Avro; None: events are JSON. `parked`: the parked tables (schema, name).
        """
        self._modes = modes
        self._names = names
        self._options = TypeOptions.of_database("string", encoding, self._position, to_text)
        self._clock_ns = clock_ns
        self._last_commit = last_commit
        self._stores = stores
        self._parked = parked
        self._stream: EventEncoder | None = None

    def stream_encoder(self, records: RecordConsumer) -> EventEncoder:
        schemas = None if self._stores is None else self._stores.of_stream(records)
        self._stream = self._encoder(records, schemas, self._modes, self._last_commit)
        return self._stream

    def snapshot_encoder(self, records: RecordConsumer) -> EventEncoder:
        schemas = None if self._stores is None else self._stores.of_snapshots(records)
        modes = replace(self._modes, transactions=False)  # its rows belong to none
        return self._encoder(records, schemas, modes, 0)

    def _encoder(
        self, records: RecordConsumer, schemas: SchemaStore | None, modes: Modes, last_commit: int
    ) -> EventEncoder:
        writer = EventWriter(records, self._names, modes, self._clock_ns, schemas, self._parked)
        return EventEncoder(writer, ValueLookup(modes, self._options), last_commit)

    def _position(self) -> int:
        """The commit LSN of the current transaction; 0 before the first."""
        return 0 if self._stream is None else self._stream.commit_lsn
