"""Numbers the events of each transaction, and publishes where it begins and ends: Debezium's transaction metadata.

Before: `event_encoder` begins and ends transactions, `event_tail` and `message_encoder` write their events.
After: a RecordConsumer (`sink.batches`) takes the records of the topic of transactions.
Source: Debezium 3.7, `provide.transaction.metadata`: `TransactionContext`, `TransactionMonitor`.

A transaction begins here with its first event: one without events has no records. So a start that knows by its rows
whether Kafka has a transaction (`transaction.sent_again`) knows the same with and without metadata. All numbers follow
from the transaction alone: they are the same however often, and by whatever protocol, the server sends it.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.debezium.event_schema import TRANSACTION_KEY, TRANSACTION_VALUE
from cdcd.debezium.event_writer import EventWriter
from cdcd.debezium.java_maps import hash_map_order
from cdcd.transaction.record_consumer import TRANSACTIONS

_OP: Final = 0x6D
"""As that of a logical message: the record is of no row."""


@final
class Collection:
    """What the metadata counts by: the events of one table, or the logical messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count: i64 = 0
        """Events of the open transaction."""


@final
class TransactionMetadata:
    """The metadata of the transactions of one stream."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._collections: dict[str, Collection] = {}
        self._counted: list[Collection] = []
        """Those with events in the open transaction."""
        self._total: i64 = 0
        """Events of the open transaction."""
        self._xid = b""
        """Its xid, and a colon."""
        self._commit_ms = 0
        self._is_replicated = False
        self._table: i64 = -1
        """The number of the topic; -1: no record came yet."""
        self._heads = (b"", b"")
        """What stands before each key, and before each value."""

    def collection(self, name: str) -> Collection:
        """Return the one of this name. All versions of a table share it."""
        return self._collections.setdefault(name, Collection(name))

    def begin(self, commit_ts: i64, xid: i64) -> None:
        """A transaction begins; `commit_ts`: microseconds since 1970-01-01 UTC."""
        for each in self._counted:
            each.count = 0
        self._counted = []
        self._total = 0
        self._is_replicated = False
        self._xid = b"%d:" % int(xid)
        self._commit_ms = int(commit_ts) // 1000

    def origin(self) -> None:
        """The open transaction was replicated to this server: PostgreSQL sends its beginning without a position."""
        self._is_replicated = True

    def write(self, out: BytesWriter, collection: Collection, lsn: i64) -> None:
        """Number the next event, at `lsn`, and append its field `transaction`."""
        if self._total == 0:
            self._publish("BEGIN", 0 if self._is_replicated else lsn, None)
        self._total += 1
        if collection.count == 0:
            self._counted.append(collection)
        collection.count += 1
        self._writer.form.write_transaction(out, self._xid, lsn, self._total, collection.count)

    def end(self, end_lsn: i64) -> None:
        """The open transaction ends; `end_lsn`: the first byte after its commit record."""
        if self._total > 0:
            names = [each.name for each in self._counted]
            ordered = hash_map_order(names) if len(names) > 1 else names
            self._publish("END", end_lsn, [(name, int(self._collections[name].count)) for name in ordered])

    def _publish(self, status: str, lsn: i64, counts: list[tuple[str, int]] | None) -> None:
        writer = self._writer
        if self._table < 0:
            writer.expect(TRANSACTIONS, "key", TRANSACTION_KEY)
            value = writer.head_of(TRANSACTIONS, "value", TRANSACTION_VALUE)
            self._heads = (writer.head_of(TRANSACTIONS, "key", TRANSACTION_KEY), value)
            self._table = writer.records.open_table(*TRANSACTIONS)
        name = (self._xid + b"%d" % int(lsn)).decode()
        of_key, of_value = self._heads
        key = of_key + writer.form.transaction_key(name) + writer.end
        event = writer.form.transaction_event(status, name, counts, self._commit_ms)
        writer.records.add(self._table, _OP, key, of_value + event + writer.end)
