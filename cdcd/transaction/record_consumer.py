"""Takes the records that an encoder makes: the interface between the event formats and the sink.

Before: `avro.event_encoder` makes keys and values.
After: `sink.batches` implements this. The sink chooses the partitions.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.source.pg_types import Attribute

Headers: TypeAlias = "list[tuple[str, bytes]]"
"""Names and values. Records may share one list."""

TRANSACTIONS: Final = ("", "transaction")
"""Schema and name that stand for the topic of Debezium's transaction metadata. Its records are of no change."""


class LargeValue:
    """The value of a large record, which is copied once, when the frame that it comes from is gone."""

    def __init__(self, out: BytesWriter) -> None:
        """`out`: it is nobody else's any more."""
        self._out = out
        self.size: i64 = len(out)

    def take(self) -> bytes:
        """Return the value, and let go of the buffer. Call it once."""
        value = self._out.getvalue()
        self._out = BytesWriter()
        return value


class RecordConsumer:
    """Takes records in commit order. A table is known by the number that `open_table` gave it."""

    def open_table(self, schema: str, name: str) -> int:
        """Name a table (PostgreSQL's schema and name) whose records will follow; equal names give equal numbers."""
        raise NotImplementedError

    def set_key(
        self, schema: str, name: str, columns: tuple[str, ...], oid: int, added: dict[str, Attribute] | None = None
    ) -> None:
        """Say which columns are the key of the table's records from here on; empty if they have no key.

        `oid`: which table has the name. `added`: by name, the columns that were added with a default; None: unknown.
        """
        raise NotImplementedError

    def add_schema(self, fingerprint: str, text: str) -> None:
        """Publish a schema (JSON) under its fingerprint (hex), no later than the first record that uses it."""
        raise NotImplementedError

    def request(self, values: dict[str, str]) -> None:
        """Take a request to the daemon itself, which is part of the open transaction. `values`: its columns."""
        raise NotImplementedError

    def begin(self, commit_lsn: i64, commit_ts: i64) -> None:
        """Start a PostgreSQL transaction: its commit LSN, and its commit time in microseconds since 1970 UTC."""
        raise NotImplementedError

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        """Take one event of the open transaction; `op` is the ASCII code of the envelope's op."""
        raise NotImplementedError

    def add_large(self, table: i64, op: i64, key: bytes | None, value: LargeValue) -> None:
        """As `add`. The consumer may take the value later, once the frame that it comes from is gone."""
        self.add(table, op, key, value.take())

    def add_without_value(self, table: i64, op: i64, key: bytes) -> None:
        """As `add`, for a record without a value: a delete that has no event, or an event without a payload."""
        raise NotImplementedError

    def add_headers(self, table: i64, headers: Headers, size: i64) -> None:
        """Give the last event of the table headers, before those that it has. Its tombstone gets them, too.

        `size`: the bytes of all names and values.
        """
        raise NotImplementedError

    def set_hash(self, table: i64, key_hash: i64) -> None:
        """Give the last event of the table, which has a key, the hash that decides its partition. So for its tombstone.

        `key_hash`: 0 to 2**32 - 1, see `column_rules.PartitionChoice`.
        """
        raise NotImplementedError

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        """Take one event of the open transaction that concerns every key (truncate)."""
        raise NotImplementedError

    def commit(self, end_lsn: i64) -> None:
        """End the open PostgreSQL transaction; `end_lsn` is the first byte after its commit record."""
        raise NotImplementedError


class RecordForwarder(RecordConsumer):
    """Stands before another consumer. A subclass changes the records that it is about, and the rest passes."""

    def __init__(self, records: RecordConsumer) -> None:
        self.records = records

    def open_table(self, schema: str, name: str) -> int:
        return self.records.open_table(schema, name)

    def set_key(
        self, schema: str, name: str, columns: tuple[str, ...], oid: int, added: dict[str, Attribute] | None = None
    ) -> None:
        self.records.set_key(schema, name, columns, oid, added)

    def add_schema(self, fingerprint: str, text: str) -> None:
        self.records.add_schema(fingerprint, text)

    def request(self, values: dict[str, str]) -> None:
        self.records.request(values)

    def begin(self, commit_lsn: i64, commit_ts: i64) -> None:
        self.records.begin(commit_lsn, commit_ts)

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        self.records.add(table, op, key, value)

    def add_large(self, table: i64, op: i64, key: bytes | None, value: LargeValue) -> None:
        self.records.add_large(table, op, key, value)

    def add_without_value(self, table: i64, op: i64, key: bytes) -> None:
        self.records.add_without_value(table, op, key)

    def add_headers(self, table: i64, headers: Headers, size: i64) -> None:
        self.records.add_headers(table, headers, size)

    def set_hash(self, table: i64, key_hash: i64) -> None:
        self.records.set_hash(table, key_hash)

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        self.records.add_to_every_partition(table, op, value)

    def commit(self, end_lsn: i64) -> None:
        self.records.commit(end_lsn)
