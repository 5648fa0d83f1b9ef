"""Events on their way to Kafka, gathered by table in commit order.

Before: `avro.envelope` adds records one by one, in the thread that owns the replication connection.
After: `publisher` takes whole batches, in the thread that owns the producer: it knows the topics' partitions, and
decides which batches share a Kafka transaction.

Hot path: `add` costs one dict and one list append a row; the dict is what confluent-kafka's `produce_batch` takes.
"""

from __future__ import annotations

from typing import TypeAlias

from mypy_extensions import i64

from cdcd.avro.records import RecordConsumer

Message: TypeAlias = "dict[str, bytes | None]"

DELETE = 0x64


class TableBatch:
    """The records of one table in one batch."""

    def __init__(self, schema: str, name: str) -> None:
        self.schema = schema
        self.name = name
        self.messages: list[Message] = []
        """In commit order. One without "key" and without "partition" goes to partition 0."""
        self.everywhere: list[int] = []
        """Indexes of messages that go to every partition of the topic (truncate), ascending."""
        self.counts: dict[int, int] = {}
        """Events by op (ASCII code)."""


class Batch:
    """Some whole PostgreSQL transactions, or a piece of a large one. Handed over whole, never shared."""

    def __init__(self) -> None:
        self.tables: list[TableBatch] = []
        self.schemas: list[tuple[str, str]] = []
        """Avro schemas to publish before the rows: fingerprint in hex, JSON."""
        self.rows: i64 = 0
        """Events, without tombstones."""
        self.bytes: i64 = 0
        """Keys and values."""
        self.transactions: i64 = 0
        """Transactions that end in this batch."""
        self.commit_lsn: i64 = 0
        """Of the last transaction that ends in this batch; 0 if none does."""
        self.end_lsn: i64 = 0
        """Of the last transaction that ends in this batch, or the position that an idle batch carries; else 0."""
        self.commit_ts: i64 = 0
        """Of the last transaction that ends in this batch, microseconds since 1970 UTC."""
        self.first_commit_ts: i64 = 0
        """Of the first transaction that ends in this batch."""
        self.open = False
        """The batch ends inside a transaction: more of it follows in the next one."""


class BatchBuilder(RecordConsumer):
    """Gathers records into a batch until `take` is called."""

    def __init__(self, tombstones: bool) -> None:
        self._tombstones = tombstones
        self._numbers: dict[tuple[str, str], int] = {}
        self._names: list[tuple[str, str]] = []
        self._gathering: list[TableBatch | None] = []
        self._batch = Batch()
        self._commit_lsn: i64 = 0
        self._commit_ts: i64 = 0

    def open_table(self, schema: str, name: str) -> int:
        number = self._numbers.get((schema, name))
        if number is None:
            number = len(self._names)
            self._numbers[schema, name] = number
            self._names.append((schema, name))
            self._gathering.append(None)
        return number

    def add_schema(self, fingerprint: str, text: str) -> None:
        self._batch.schemas.append((fingerprint, text))

    def begin(self, commit_lsn: i64, commit_ts: i64) -> None:
        self._commit_lsn = commit_lsn
        self._commit_ts = commit_ts
        self._batch.open = True

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        gathering = self._gathering[table]
        if gathering is None:
            gathering = self._start(table)
        batch = self._batch
        batch.bytes += len(value)
        if key is None:
            gathering.messages.append({"value": value})
        else:
            gathering.messages.append({"key": key, "value": value})
            batch.bytes += len(key)
            if op == DELETE and self._tombstones:
                gathering.messages.append({"key": key, "value": None})
        counts = gathering.counts
        counts[op] = counts.get(op, 0) + 1
        batch.rows += 1

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        gathering = self._gathering[table]
        if gathering is None:
            gathering = self._start(table)
        gathering.everywhere.append(len(gathering.messages))
        self.add(table, op, None, value)

    def commit(self, end_lsn: i64) -> None:
        batch = self._batch
        batch.open = False
        batch.transactions += 1
        batch.commit_lsn = self._commit_lsn
        batch.commit_ts = self._commit_ts
        if batch.first_commit_ts == 0:
            batch.first_commit_ts = self._commit_ts
        batch.end_lsn = end_lsn

    def take(self) -> Batch:
        """What was gathered since the last call; empty if it has neither rows nor transactions."""
        batch = self._batch
        for number, gathering in enumerate(self._gathering):
            if gathering is not None:
                batch.tables.append(gathering)
                self._gathering[number] = None
        following = Batch()
        following.open = batch.open
        if batch.rows == 0:
            # A batch without rows may never be published: its schemas travel with the first rows that follow.
            following.schemas, batch.schemas = batch.schemas, following.schemas
        self._batch = following
        return batch

    def _start(self, table: i64) -> TableBatch:
        schema, name = self._names[table]
        gathering = TableBatch(schema, name)
        self._gathering[table] = gathering
        return gathering
