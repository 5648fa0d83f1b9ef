"""Where encoded events go: the little that the encoder knows of the sink.

Before: `event_encoder` makes keys and values. After: `sink.batches` implements this and decides about partitions.
"""

from __future__ import annotations

from mypy_extensions import i64


class RecordConsumer:
    """Takes Avro records in commit order. A table is known by the number that `open_table` gave it."""

    def open_table(self, schema: str, name: str) -> int:
        """Name a table (PostgreSQL's schema and name) whose records will follow; equal names give equal numbers."""
        raise NotImplementedError

    def add_schema(self, fingerprint: str, text: str) -> None:
        """Publish an Avro schema (JSON) under its fingerprint (hex), no later than the first record that uses it."""
        raise NotImplementedError

    def request(self, content: bytes) -> None:
        """Whoever runs the daemon asks it for something (JSON), at this place between two transactions."""
        raise NotImplementedError

    def begin(self, commit_lsn: i64, commit_ts: i64) -> None:
        """A PostgreSQL transaction starts: its commit LSN, and its commit time in microseconds since 1970 UTC."""
        raise NotImplementedError

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        """One event of the open transaction; `op` is the ASCII code of the envelope's op."""
        raise NotImplementedError

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        """One event that concerns every key (truncate), of the open transaction."""
        raise NotImplementedError

    def commit(self, end_lsn: i64) -> None:
        """The open PostgreSQL transaction is whole; `end_lsn` is the first byte after its commit record."""
        raise NotImplementedError
