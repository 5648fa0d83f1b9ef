"""The parts of Debezium's events that are no values of columns: what an encoding has to say of them.

Before: `event_encoder` knows the transaction, its change, and the table.
After: `row_encoder` and `message_encoder` write the pieces around the rows. `json_form` and `avro_form` implement it.
Source: Debezium's `Envelope`, `SourceInfo`, `PostgresSourceInfoStructMaker` and `LogicalDecodingMessageMonitor`.
"""

from __future__ import annotations

from collections.abc import Sequence

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.debezium.modes import DEBEZIUM_VERSION


class EventForm:
    """Makes the pieces of events. Most are made once a transaction, or once a relation."""

    def __init__(
        self,
        names: tuple[str, str],
        before: bytes,
        no_before: bytes,
        after: bytes,
        no_after: bytes,
        no_rows: bytes,
        row_end: bytes,
    ) -> None:
        """`names`: the prefix of the topics, and the database."""
        self._names = names
        self.before = before
        """What stands before the old row."""
        self.no_before = no_before
        """What stands before the new row of an event that has no old one."""
        self.after = after
        """What stands between the two rows."""
        self.no_after = no_after
        """What stands behind the old row of an event that has no new one."""
        self.no_rows = no_rows
        """What stands for both rows."""
        self.row_end = row_end
        """What ends a row, and a struct."""
        self.no_transaction = b""
        """The field `transaction` of an event without metadata."""
        self.version: i64 = 0
        """Another number: the transaction, its origin or the clock is another one."""
        self._transaction = (0, 0, False)
        """Its commit time, its xid, and whether it is a snapshot."""
        self._origin = ("", 0)

    def begin(self, ts_us: i64, xid: i64, last_commit: i64, is_snapshot: bool) -> None:
        """Begin a transaction, or a snapshot; `ts_us`: microseconds since 1970-01-01 UTC.

        `xid`: 0 for what belongs to no transaction. `last_commit`: where the transaction before ends; 0: none came yet.
        """
        self._transaction = (int(ts_us), int(xid), is_snapshot)

    def origin(self, name: str, lsn: i64) -> None:
        """Note the replication origin of the open transaction, and its LSN there."""
        self.version += 1
        self._origin = (name, int(lsn))

    def value(self, field: str) -> str | int | None:
        """One field of `source` that is the same for all changes of a table in a transaction."""
        ts_us, xid, is_snapshot = self._transaction
        name, lsn = self._origin
        values: dict[str, str | int | None] = {
            "version": DEBEZIUM_VERSION,
            "connector": "postgresql",
            "name": self._names[0],
            "ts_ms": ts_us // 1000,
            "snapshot": "true" if is_snapshot else "false",
            "db": self._names[1],
            "ts_us": ts_us,
            "ts_ns": ts_us * 1000,
            "txId": xid or None,
            "xmin": None,
            "origin": name or None,
            "origin_lsn": lsn if name else None,
        }
        return values[field]

    def table_in_key(self, name: str, table: str) -> bytes:
        """The field of a key that names the table. It stands behind others."""
        raise NotImplementedError

    def added_name(self, name: str, is_first: bool) -> bytes:
        """What stands before the value of a field that a flat row has behind its columns."""
        raise NotImplementedError

    def added_value(self, value: str | int | None) -> bytes:
        """The value of such a field."""
        raise NotImplementedError

    def write_lsn(self, out: BytesWriter, lsn: i64) -> None:
        """Append the value of such a field: the LSN of the change."""
        raise NotImplementedError

    def write_sequence(self, out: BytesWriter, lsn: i64) -> None:
        """Append the value of such a field: the field `sequence` of `source`."""
        raise NotImplementedError

    def write_source(self, out: BytesWriter, table: bytes, lsn: i64) -> None:
        """Append the field `source`. `table`: as `table_piece` makes it. `lsn`: that of the change."""
        raise NotImplementedError

    def table_piece(self, schema: str, table: str) -> bytes:
        """The table's piece of `source`."""
        raise NotImplementedError

    def clock_piece(self, now_ns: int) -> bytes:
        """The last fields of an event: when it was made, in nanoseconds since 1970-01-01 UTC."""
        raise NotImplementedError

    def op_piece(self, op: int) -> bytes:
        """The field `op`, between `transaction` and the last fields; `op`: an ASCII code."""
        raise NotImplementedError

    def message_key(self, prefix: str) -> bytes:
        """The key of a logical message."""
        raise NotImplementedError

    def message_head(self, now_ns: int, source: bytes, prefix: str) -> bytes:
        """What a logical message has before its content. `source`: that field, and `transaction`."""
        raise NotImplementedError

    def write_transaction(self, out: BytesWriter, xid: bytes, lsn: i64, total: i64, of_collection: i64) -> None:
        """Append the field `transaction`, with the numbers of an event. `xid`: in digits, and a colon."""
        raise NotImplementedError

    def transaction_key(self, name: str) -> bytes:
        """The key of a record about the transaction with this id."""
        raise NotImplementedError

    def transaction_event(
        self, status: str, name: str, counts: Sequence[tuple[str, int]] | None, commit_ms: int
    ) -> bytes:
        """The record itself. `name`: the id. `counts`: the events of each collection; None: it begins."""
        raise NotImplementedError
