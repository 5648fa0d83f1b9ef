"""How readers learn the schema of a record: the bytes that it starts with name one.

Before: `schema` makes the JSON text of a relation's schemas.
After: `event_encoder` starts every record with the header it got here; `records` carries the schema to the sink.
Source: Apache Avro specification, "Single-object encoding".

Two ways: here, the schema travels in Kafka, on `{prefix}.schemas`, before the first record that uses it; in `registry`,
a Confluent-compatible schema registry keeps it. Readers tell them apart by the first byte, C3 or 00.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from cdcd.avro.record_consumer import RecordConsumer
from cdcd.avro.single_object import fingerprint, header


@mypyc_attr(allow_interpreted_subclasses=True)
class SchemaStore:
    """Makes schemas known to readers."""

    def header(self, schema: str, name: str, subject: str, text: str) -> bytes:
        """The bytes that every record of this Avro schema starts with, once readers can find the schema by them.

        `schema` and `name` are the table's, `subject` is "key" or "value", `text` the Avro schema as JSON.
        """
        raise NotImplementedError


class FingerprintStore(SchemaStore):
    """Names a schema by the fingerprint of its text, and sends the text ahead with the records."""

    def __init__(self, records: RecordConsumer) -> None:
        self._records = records
        self._sent: set[str] = set()

    def header(self, schema: str, name: str, subject: str, text: str) -> bytes:
        digest = fingerprint(text)
        if digest.hex() not in self._sent:
            self._sent.add(digest.hex())
            self._records.add_schema(digest.hex(), text)
        return header(digest)


class PerTableStore(SchemaStore):
    """Another store, but for tables that are parked: what a registry may have refused, a fingerprint names."""

    def __init__(self, store: SchemaStore, fingerprints: SchemaStore, parked: frozenset[tuple[str, str]]) -> None:
        """`parked`: schema and name of tables."""
        self._store = store
        self._fingerprints = fingerprints
        self._parked = parked

    def header(self, schema: str, name: str, subject: str, text: str) -> bytes:
        store = self._fingerprints if (schema, name) in self._parked else self._store
        return store.header(schema, name, subject, text)


class ObservedStore(SchemaStore):
    """Another store, that tells which relation's events are about to come with which header."""

    def __init__(self, store: SchemaStore, on_schema: Callable[[str, bytes], None]) -> None:
        """`on_schema` gets `schema.table` and the header of its values."""
        self._store = store
        self._on_schema = on_schema

    def header(self, schema: str, name: str, subject: str, text: str) -> bytes:
        made = self._store.header(schema, name, subject, text)
        if subject == "value":
            self._on_schema(f"{schema}.{name}", made)
        return made
