"""Makes schemas known to readers: the first bytes of every record name its schema.

Before: `schema` makes the JSON text of a relation's schemas.
After: `event_encoder` starts every record with the header that a store returned.
Source: Apache Avro specification, "Single-object encoding".

There are two ways. FingerprintStore sends the schema to Kafka, on `{prefix}.schemas`, before the first record that uses
it. `registry_store` puts it into a Confluent-compatible schema registry. Readers tell the two ways apart by the first
byte of a record: C3 or 00.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from cdcd.avro.single_object import fingerprint, header
from cdcd.transaction.record_consumer import RecordConsumer


@mypyc_attr(allow_interpreted_subclasses=True)
class SchemaStore:
    """Makes schemas known to readers."""

    def expect(self, schema: str, name: str, subject: str, text: str) -> None:
        """Say what `header_for` will soon be called with: a store that has to ask somebody begins now."""

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        """Make an Avro schema known, and return the header: the bytes with which every record of this schema starts.

        `schema` and `name` are the table's. `subject` is "key" or "value". `text` is the Avro schema as JSON.
        """
        raise NotImplementedError


class FingerprintStore(SchemaStore):
    """Names a schema by the fingerprint of its text, and sends the text before the records."""

    def __init__(self, records: RecordConsumer) -> None:
        self._records = records
        self._sent: set[str] = set()

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        digest = fingerprint(text)
        if digest.hex() not in self._sent:
            self._sent.add(digest.hex())
            self._records.add_schema(digest.hex(), text)
        return header(digest)


class PerTableStore(SchemaStore):
    """Two stores: one for parked tables, whose schemas a registry may have refused, and one for all other tables."""

    def __init__(self, store: SchemaStore, fingerprints: SchemaStore, parked: frozenset[tuple[str, str]]) -> None:
        """`parked`: schema and name of the tables that use `fingerprints`."""
        self._store = store
        self._fingerprints = fingerprints
        self._parked = parked

    def expect(self, schema: str, name: str, subject: str, text: str) -> None:
        self._of(schema, name).expect(schema, name, subject, text)

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        return self._of(schema, name).header_for(schema, name, subject, text)

    def _of(self, schema: str, name: str) -> SchemaStore:
        return self._fingerprints if (schema, name) in self._parked else self._store


class ObservedStore(SchemaStore):
    """A store around another store, with a callback that gets the header of a table's next events."""

    def __init__(self, store: SchemaStore, on_schema: Callable[[str, bytes], None]) -> None:
        """`on_schema` gets `schema.table` and the header of its events."""
        self._store = store
        self._on_schema = on_schema

    def expect(self, schema: str, name: str, subject: str, text: str) -> None:
        self._store.expect(schema, name, subject, text)

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        value_header = self._store.header_for(schema, name, subject, text)
        if subject == "value":
            self._on_schema(f"{schema}.{name}", value_header)
        return value_header


class SchemaStores:
    """Makes the stores of one stream, and of the snapshots next to it."""

    def __init__(
        self,
        on_schema: Callable[[str, bytes], None] | None = None,
        registry: SchemaStore | None = None,
        parked: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        """`on_schema`: as ObservedStore has it. Schemas go to Kafka if `registry` is None.

        If not, they go to the registry, but those of the `parked` tables (schema, name) still go to Kafka.
        """
        self._on_schema = on_schema
        self._registry = registry
        self.parked = parked
        self._stream: SchemaStore | None = None

    def of_stream(self, records: RecordConsumer) -> SchemaStore:
        """The store of the stream. Called once, before `of_snapshots`."""
        store: SchemaStore = FingerprintStore(records)
        if self._registry is not None:
            store = PerTableStore(self._registry, store, self.parked)
        self._stream = store
        return store if self._on_schema is None else ObservedStore(store, self._on_schema)

    def of_snapshots(self, records: RecordConsumer) -> SchemaStore:
        """The store of snapshots."""
        # The daemon takes no snapshot of a parked table. So with a registry, all schemas are in the registry.
        store = FingerprintStore(records) if self._registry is None else self._stream
        assert store is not None
        return store
