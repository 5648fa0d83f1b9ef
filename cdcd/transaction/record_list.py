"""Takes records into a list, in commit order, with their schemas: for what shows the next events of a slot.

Before: the encoders of an event format, with all that stands around it. After: `cdcd peek` shows the records.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from cdcd.source.pg_types import Attribute
from cdcd.transaction.record_consumer import Headers, RecordConsumer


@final
class ListedRecord:
    """One record. The schema "" is that of no table, as `open_table` has it."""

    def __init__(self, name: tuple[str, str], op: i64, commit_lsn: int, key: bytes | None, value: bytes | None) -> None:
        """`name`: schema and table. `op`: as `RecordConsumer.add` has it."""
        self.schema, self.table = name
        self.op = chr(op)
        self.commit_lsn = commit_lsn
        self.key = key
        self.value = value
        self.headers: Headers = []


@final
class RecordList(RecordConsumer):
    """Keeps all records of all transactions."""

    def __init__(self) -> None:
        self.records: list[ListedRecord] = []
        self.schemas: dict[str, str] = {}
        """The texts, by fingerprint."""
        self._names: list[tuple[str, str]] = []
        self._commit_lsn: int = 0

    def open_table(self, schema: str, name: str) -> int:
        if (schema, name) not in self._names:
            self._names.append((schema, name))
        return self._names.index((schema, name))

    def set_key(
        self, schema: str, name: str, columns: tuple[str, ...], oid: int, added: dict[str, Attribute] | None = None
    ) -> None:
        """Nobody asks."""

    def add_schema(self, fingerprint: str, text: str) -> None:
        self.schemas[fingerprint] = text

    def request(self, values: dict[str, str]) -> None:
        """A request to the daemon is no record."""

    def begin(self, commit_lsn: i64, commit_ts: i64) -> None:
        self._commit_lsn = commit_lsn

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        self._add(table, op, key, value)

    def add_without_value(self, table: i64, op: i64, key: bytes) -> None:
        self._add(table, op, key, None)

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        self._add(table, op, None, value)

    def add_headers(self, table: i64, headers: Headers, size: i64) -> None:
        last = self.records[-1]
        last.headers = headers + last.headers

    def set_hash(self, table: i64, key_hash: i64) -> None:
        """Only the sink has partitions."""

    def commit(self, end_lsn: i64) -> None:
        """A transaction needs no end."""

    def _add(self, table: i64, op: i64, key: bytes | None, value: bytes | None) -> None:
        self.records.append(ListedRecord(self._names[table], op, self._commit_lsn, key, value))
