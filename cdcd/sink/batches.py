"""Events on their way to Kafka, gathered by table in commit order.

Before: `avro.event_encoder` adds records one by one, in the thread that owns the replication connection.
After: `publisher` puts whole batches into Kafka transactions, in the thread that owns the producer.

Hot path, compiled: `add` costs one dict and one list append a row. confluent-kafka's `produce_batch` takes the dict as
it is.

Tables that share a topic are gathered together, so that the topic has their events in commit order. Each *turn* is a
stretch of one table's records.

An open batch holds only rows of the unfinished transaction; complete transactions were put into the previous batch. So
a Kafka transaction can be committed where a large PostgreSQL transaction begins, and small ones do not wait for its
end. To divide a batch afterwards, each table remembers where the open transaction began in it: one comparison a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from typing import Final, Required, TypedDict

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.progress.daemon_requests import Request
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.sink.topics import encode_identifier
from cdcd.source.pg_types import Attribute
from cdcd.transaction.record_consumer import Headers, LargeValue, RecordConsumer

log = logging.getLogger(__name__)


class Message(TypedDict, total=False):
    """A record. Without `key` it has none; `value` is None for a tombstone.

    `hash` decides the partition in place of the key's own: a number of 32 bits.
    """

    key: bytes
    value: Required[bytes | None]
    headers: Headers
    hash: int


def message_bytes(message: Message) -> int:
    """Return how many bytes of key, value and headers a record has."""
    headers = sum(len(name) + len(header) for name, header in message.get("headers", ()))
    return len(message.get("key") or b"") + len(message["value"] or b"") + headers


DELETE: Final = 0x64
TOMBSTONE: Final = 0
_OPS: Final = b"crudtm"
"""All ops of the event envelope."""

REQUESTS_MAX: Final = 1_000
"""One transaction asks the daemon for no more than this: what is beyond it is passed over."""
REPAIRS_MAX: Final = 64
"""Nor for more repairs than this, whose keys may be long."""


class TableBatch:
    """The records of one table in one batch, or of the tables that share a topic."""

    def __init__(self, schema: str, name: str, table: i64 = 0) -> None:
        """`table`: the number of the table, which comes first."""
        self.schema = schema
        self.name = name
        """Those of the first table."""
        self.table: i64 = table
        """The number of the table whose records come now."""
        self.turns: list[tuple[int, tuple[str, str]]] = []
        """If the table shares its topic: where the records of a table (schema, name) begin, in order."""
        self.messages: list[Message] = []
        """In commit order. One without "key" goes to partition 0."""
        self.everywhere: list[int] = []
        """Indexes of messages that go to every partition of the topic (truncate), ascending."""
        self.has_headers = False
        """A message may have headers."""
        self.has_hashes = False
        """A message may have a hash."""
        self.ops = BytesWriter()
        """The op of each message (ASCII code), 0 for a tombstone."""
        self.large: list[tuple[int, LargeValue]] = []
        """Indexes of messages that get their value in `build`, when the frames are gone: frame, value and copy would be
        too much memory."""
        self.transaction: i64 = 0
        """Commit LSN of the last transaction with records here; 0: they are no transaction's."""
        self.begins_at: i64 = 0
        """Index of that transaction's first message."""

    @property
    def tables(self) -> list[tuple[str, str]]:
        """The tables, each once."""
        return list(dict.fromkeys(table for _, table in self.turns)) if self.turns else [(self.schema, self.name)]

    @property
    def counts(self) -> dict[tuple[str, str], dict[int, int]]:
        """Events by table and op (ASCII code)."""
        ops = self.ops.getvalue()
        turns = self.turns or [(0, (self.schema, self.name))]
        found: dict[tuple[str, str], dict[int, int]] = {}
        for number, (at, table) in enumerate(turns):
            turn = ops[at : turns[number + 1][0]] if number + 1 < len(turns) else ops[at:]
            counts = found.setdefault(table, {})
            for op in _OPS:
                events = turn.count(op)
                if events:
                    counts[op] = counts.get(op, 0) + events
        return found

    def turn(self, number: i64, table: tuple[str, str]) -> None:
        """The next records are of this table."""
        self.table = number
        self.turns.append((len(self.messages), table))

    def without(self, tables: Container[tuple[str, str]]) -> list[TableBatch]:
        """Take the records of `tables` apart: a batch for each, and one for all others, which keep their order."""
        if not self.turns:
            return [self]
        parts: dict[tuple[str, str], TableBatch] = {}
        others = ("", "")
        everywhere = set(self.everywhere)
        ops = self.ops.getvalue()
        ends = [at for at, _ in self.turns[1:]] + [len(self.messages)]
        for (at, table), end in zip(self.turns, ends, strict=True):
            to = table if table in tables else others
            part = parts.get(to)
            if part is None:
                part = parts[to] = TableBatch(table[0], table[1])
                part.has_headers = self.has_headers
                part.has_hashes = self.has_hashes
            part.turn(0, table)
            part.everywhere += [index - at + len(part.messages) for index in range(at, end) if index in everywhere]
            part.messages += self.messages[at:end]
            part.ops.write(ops[at:end])
        return list(parts.values())

    def copy_large(self) -> None:
        """Put the large values into their messages, one after the other: each is there twice only meanwhile."""
        while self.large:
            index, value = self.large.pop()
            self.messages[index]["value"] = value.take()

    def cut(self) -> TableBatch:
        """Move the last transaction's records out of this batch into a new one, and return the new one."""
        at = self.begins_at
        rest = TableBatch(self.schema, self.name, self.table)
        rest.transaction = self.transaction
        rest.has_headers = self.has_headers
        rest.has_hashes = self.has_hashes
        rest.messages = self.messages[at:]
        del self.messages[at:]
        if self.turns:
            before = [turn for turn in self.turns if turn[0] < at]
            rest.turns = [(turn[0] - at, turn[1]) for turn in self.turns[len(before) :]]
            if not rest.turns or rest.turns[0][0] > 0:
                rest.turns.insert(0, (0, before[-1][1]))
            self.turns = before
        rest.everywhere = [index - at for index in self.everywhere if index >= at]
        self.everywhere = [index for index in self.everywhere if index < at]
        rest.ops.write(self.ops.getvalue()[at:])
        self.ops.truncate(at)
        return rest


class AnnouncedTable:
    """What a table's records are from here on."""

    def __init__(
        self, schema: str, name: str, key: tuple[str, ...], oid: int, added: dict[str, Attribute] | None = None
    ) -> None:
        self.schema = schema
        self.name = name
        self.key = key
        """The columns of their key; empty if they have none."""
        self.oid = oid
        """The OID of the table that they are of."""
        self.added = added
        """By name, the columns that were added with a default; None: nothing was told of them."""


class Batch:
    """Complete PostgreSQL transactions, or a part of a large one. Complete transactions may follow the last part.

    A batch changes hands as a whole; two threads never share one.
    """

    def __init__(self) -> None:
        self.tables: list[TableBatch] = []
        self.schemas: list[tuple[str, str]] = []
        """Avro schemas to publish before the rows: fingerprint in hex, JSON."""
        self.announced: list[AnnouncedTable] = []
        """Tables whose records in this batch may have another key than before, or be of another table, in order."""
        self.rows: i64 = 0
        """Events, without tombstones."""
        self.bytes: i64 = 0
        """Keys, values and headers."""
        self.transactions: i64 = 0
        """Transactions that end in this batch."""
        self.commit_lsn: i64 = 0
        """Commit LSN of the last transaction with rows that ends in this batch; 0 if none does."""
        self.end_lsn: i64 = 0
        """End LSN of the last transaction that ends in this batch, or the position of an idle batch; else 0."""
        self.commit_ts: i64 = 0
        """Commit time of that transaction, microseconds since 1970 UTC."""
        self.oldest_commit_ts: i64 = 0
        """Earliest commit time of the transactions that end in this batch, microseconds since 1970 UTC. A later one may
        have an earlier time: a message outside a transaction has the time when it was received."""
        self.requests: list[Request] = []
        """Requests that the daemon takes, of these transactions: effective when the batch is durable."""
        self.ends_inside_transaction = False
        """The batch ends inside a transaction: more of it follows in the next batch."""
        self.commit_is_distant = False
        """The batch ends inside a transaction whose commit may be distant."""
        self.more_expected = False
        """The stream comes as a backlog: the next batch follows within milliseconds."""
        self.snapshot_records: list[TableSnapshot] | None = None
        """Not None: the batch holds rows of snapshots, no transactions; these records say how far the snapshots are."""


class RepairBatch(Batch):
    """All rows and deletes of some repairs, and the records that say that these are done. It has no transactions."""

    def __init__(
        self, of: Batch, records: list[tuple[bytes, bytes | None]], snapshots: list[TableSnapshot] | None = None
    ) -> None:
        """`of` has the rows. `records`: keys and values for the snapshots topic.

        `snapshots`: how far the tables are that are compared and repaired, instead of copied.
        """
        super().__init__()
        self.tables = of.tables
        self.schemas = of.schemas
        self.announced = of.announced
        self.rows = of.rows
        self.bytes = of.bytes
        self.records = records
        self.snapshots = snapshots or []


class GatheredRequests:
    """Rows of the table of requests, as they came: column and value."""

    def __init__(self) -> None:
        self.whole: list[dict[str, str]] = []
        """Those of complete transactions."""
        self._open: list[dict[str, str]] = []
        """Those of the open transaction."""
        self._passed_over: i64 = 0
        """How many were beyond what a transaction may ask for."""

    def add(self, values: dict[str, str]) -> None:
        """Add a request of the open transaction."""
        repairs = 0
        if "keys" in values:
            for each in self._open:
                if "keys" in each:
                    repairs += 1
        if len(self._open) < REQUESTS_MAX and repairs < REPAIRS_MAX:
            self._open.append(values)
        else:
            self._passed_over += 1

    def commit(self) -> None:
        """The open transaction has ended."""
        if self._open:
            self.whole += self._open
            self._open = []

    def take(self) -> list[dict[str, str]]:
        """Return the requests of complete transactions that no earlier call has returned."""
        if self._passed_over > 0:
            log.warning(
                "passed over %d requests: a transaction may make %d, %d of them for repairs",
                self._passed_over,
                REQUESTS_MAX,
                REPAIRS_MAX,
            )
            self._passed_over = 0
        requests = self.whole
        self.whole = []
        return requests


class NumberedTables:
    """The tables of a stream, each with a number."""

    def __init__(self, shared_topic: Callable[[str, str], str] | None) -> None:
        """`shared_topic`: that of BatchBuilder."""
        self.names: list[tuple[str, str]] = []
        """Schema and name, by number."""
        self.sharing: list[list[int] | None] = []
        """By number: the numbers of the tables that share the topic, this one included; None: no other may have it."""
        self._shared_topic = shared_topic
        self._numbers: dict[tuple[str, str], int] = {}
        self._topics: dict[str, list[int]] = {}

    def number(self, schema: str, name: str) -> int:
        """The number of a table: the next one if it has none."""
        number = self._numbers.get((schema, name))
        if number is None:
            number = self._numbers[schema, name] = len(self.names)
            self.names.append((schema, name))
            topic = "" if self._shared_topic is None else self._shared_topic(schema, name)
            self.sharing.append(self._topics.setdefault(topic, []) if topic else None)
            if topic:
                self._topics[topic].append(number)
        return number


class BatchBuilder(RecordConsumer):
    """Gathers records into a batch until `build` is called."""

    def __init__(
        self,
        tombstones: bool,
        truncate_key: bytes | None = b"",
        shared_topic: Callable[[str, str], str] | None = None,
    ) -> None:
        """`tombstones`: one follows each delete. `truncate_key`: that of truncates on such topics; None: none.

        `shared_topic`: gives the topic that a table (schema and name) shares with others; empty if it shares none.
        """
        self._tombstones = tombstones
        self._truncate_key = truncate_key
        self._tables = NumberedTables(shared_topic)
        self._gathering: list[TableBatch | None] = []
        """By the number of the table; tables that share a topic have the same one."""
        self._touched: list[int] = []
        """The number of a table for each batch of a topic, in the order of their first records."""
        self._batch = Batch()
        self._continued = False
        """The batch began inside a transaction."""
        self._whole_rows: i64 = 0
        self._whole_bytes: i64 = 0
        self._whole_announced: i64 = 0
        """Rows, bytes and announced tables when the last transaction began: those of complete transactions."""
        self._commit_lsn: i64 = 0
        self._commit_ts: i64 = 0
        """Commit LSN and time of the last transaction that began."""
        self._has_earlier_rows = False
        """Earlier batches have rows of the open transaction."""
        self._requests = GatheredRequests()

    @property
    def gathered_bytes(self) -> int:
        """Bytes of the keys, values and headers in the batch that `build` would return."""
        return self._batch.bytes

    @property
    def open_commit_ts(self) -> int:
        """Commit time of the transaction that has begun and not ended, microseconds since 1970 UTC; 0: none has."""
        return self._commit_ts if self._batch.ends_inside_transaction else 0

    def open_table(self, schema: str, name: str) -> int:
        number = self._tables.number(schema, name)
        if number == len(self._gathering):
            sharing = self._tables.sharing[number]
            self._gathering.append(self._gathering[sharing[0]] if sharing is not None and sharing[0] < number else None)
        return number

    def add_schema(self, fingerprint: str, text: str) -> None:
        self._batch.schemas.append((fingerprint, text))

    def set_key(
        self, schema: str, name: str, columns: tuple[str, ...], oid: int, added: dict[str, Attribute] | None = None
    ) -> None:
        self._batch.announced.append(AnnouncedTable(schema, name, columns, oid, added))

    def request(self, values: dict[str, str]) -> None:
        self._requests.add(values)

    def begin(self, commit_lsn: i64, commit_ts: i64) -> None:
        self._commit_lsn = commit_lsn
        self._commit_ts = commit_ts
        self._has_earlier_rows = False
        batch = self._batch
        batch.ends_inside_transaction = True
        self._whole_announced = len(batch.announced)
        self._whole_rows = batch.rows
        self._whole_bytes = batch.bytes

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        gathering = self._gathering[table]
        if gathering is None:
            gathering = self._start(table)
        if gathering.table != table:
            gathering.turn(table, self._tables.names[table])
        if gathering.transaction != self._commit_lsn:
            gathering.transaction = self._commit_lsn
            gathering.begins_at = len(gathering.messages)
        batch = self._batch
        batch.rows += 1
        batch.bytes += len(value)
        gathering.ops.append(u8(op))
        if key is None:
            gathering.messages.append({"value": value})
        else:
            gathering.messages.append({"key": key, "value": value})
            batch.bytes += len(key)
            if op == DELETE and self._tombstones:
                gathering.messages.append({"key": key, "value": None})
                gathering.ops.append(TOMBSTONE)

    def add_without_value(self, table: i64, op: i64, key: bytes) -> None:
        self.add(table, op, key, b"")
        gathering = self._gathering[table]
        assert gathering is not None
        gathering.messages[len(gathering.messages) - 1]["value"] = None  # its format has no other tombstones

    def add_headers(self, table: i64, headers: Headers, size: i64) -> None:
        gathering = self._gathering[table]
        assert gathering is not None
        gathering.has_headers = True
        messages = gathering.messages
        last: i64 = len(messages) - 1
        message = messages[last]
        before = message.get("headers")
        if before is not None:
            headers = headers + before
        message["headers"] = headers
        self._batch.bytes += size
        if gathering.ops[last] == TOMBSTONE:
            messages[last - 1]["headers"] = headers
            self._batch.bytes += size

    def set_hash(self, table: i64, key_hash: i64) -> None:
        gathering = self._gathering[table]
        assert gathering is not None
        gathering.has_hashes = True
        last: i64 = len(gathering.messages) - 1
        gathering.messages[last]["hash"] = key_hash
        if gathering.ops[last] == TOMBSTONE:
            gathering.messages[last - 1]["hash"] = key_hash

    def add_large(self, table: i64, op: i64, key: bytes | None, value: LargeValue) -> None:
        self.add(table, op, key, b"")
        gathering = self._gathering[table]
        assert gathering is not None
        index = len(gathering.messages) - 1
        if gathering.messages[index]["value"] is None:  # the tombstone of a delete
            index -= 1
        gathering.large.append((index, value))
        self._batch.bytes += value.size

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        gathering = self._gathering[table]
        if gathering is None:
            gathering = self._start(table)
        gathering.everywhere.append(len(gathering.messages))
        # A compacted topic takes no record without a key. It keeps the last one under this key, which ends all others.
        key = self._truncate_key if self._tombstones else None
        if key is not None and self._tables.sharing[table] is not None:
            key = ".".join(map(encode_identifier, self._tables.names[table])).encode()  # no other table has it
        self.add(table, op, key, value)

    def commit(self, end_lsn: i64) -> None:
        batch = self._batch
        batch.ends_inside_transaction = False
        batch.transactions += 1
        # PostgreSQL need not send a transaction without rows again, so the progress must not name it (`sent_again`).
        if batch.rows > self._whole_rows or self._has_earlier_rows:
            batch.commit_lsn = self._commit_lsn
            batch.commit_ts = self._commit_ts
        if batch.oldest_commit_ts == 0 or self._commit_ts < batch.oldest_commit_ts:
            batch.oldest_commit_ts = self._commit_ts
        batch.end_lsn = end_lsn
        self._requests.commit()

    def build(self) -> Batch:
        """Return the batch gathered since the last call; it may have neither rows nor transactions.

        If it would end inside a transaction, it holds the complete transactions alone; the next call returns the
        beginning of the unfinished one.
        """
        batch = self._batch
        following = Batch()
        following.ends_inside_transaction = batch.ends_inside_transaction
        has_whole = self._whole_rows > 0 or self._continued or len(self._requests.whole) > 0
        divided = batch.ends_inside_transaction and batch.transactions > 0 and has_whole
        if divided:
            batch.ends_inside_transaction = False
            following.rows = batch.rows - self._whole_rows
            following.bytes = batch.bytes - self._whole_bytes
            batch.rows = self._whole_rows
            batch.bytes = self._whole_bytes
        touched = self._touched
        self._touched = []
        for number in touched:
            gathering = self._gathering[number]
            assert gathering is not None
            is_cut = divided and gathering.transaction == self._commit_lsn
            if gathering.large:
                gathering.copy_large()
            rest: TableBatch | None = None
            if is_cut:
                rest = gathering.cut()
                self._touched.append(number)
            self._set(number, rest)
            if gathering.messages:
                batch.tables.append(gathering)
        if batch.rows == 0:
            # A batch without rows may never be published: its schemas travel with the first rows that follow.
            following.schemas, batch.schemas = batch.schemas, following.schemas
            # Nor is a table announced before its first event is published.
            following.announced, batch.announced = batch.announced, following.announced
        else:
            if divided:
                following.announced = batch.announced[self._whole_announced :]
                batch.announced = batch.announced[: self._whole_announced]
            self._whole_announced = 0
        self._continued = batch.ends_inside_transaction
        if self._continued and batch.rows > self._whole_rows:
            self._has_earlier_rows = True
        self._whole_rows = 0  # the open transaction's rows are the first of the next batch
        self._whole_bytes = 0
        self._batch = following
        return batch

    def take_requests(self) -> list[dict[str, str]]:
        """Return the requests in the transactions that have ended since the last call, each by column and value."""
        return self._requests.take()

    def _start(self, table: i64) -> TableBatch:
        schema, name = self._tables.names[table]
        gathering = TableBatch(schema, name, table)
        if self._tables.sharing[table] is not None:
            gathering.turn(table, (schema, name))
        self._set(table, gathering)
        self._touched.append(table)
        return gathering

    def _set(self, table: i64, gathering: TableBatch | None) -> None:
        """Gather a table's records there, and those of the tables that share its topic."""
        sharing = self._tables.sharing[table]
        if sharing is None:
            self._gathering[table] = gathering
        else:
            for number in sharing:
                self._gathering[number] = gathering
