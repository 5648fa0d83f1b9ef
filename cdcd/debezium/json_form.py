"""The parts of Debezium's events that are no values of columns, in JSON.

Before: `event_form` says what they are. After: `row_encoder` and `message_encoder` write the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.debezium.event_form import EventForm
from cdcd.debezium.json_text import quoted, write_int
from cdcd.debezium.modes import DEBEZIUM_VERSION


@final
class JsonForm(EventForm):
    """JSON.

    `source` is `_head`, the LSN of the change, `_middle`, the table's piece, `_xid`, the LSN again, and `_tail`.
    """

    def __init__(self, prefix: str, database: str) -> None:
        super().__init__(
            (prefix, database),
            b'{"before":',
            b'{"before":null,"after":',
            b',"after":',
            b',"after":null',
            b'{"before":null,"after":null',
            b"}",
        )
        self.no_transaction = b',"transaction":null'
        self._begin = (
            b',"source":{"version":' + quoted(DEBEZIUM_VERSION) + b',"connector":"postgresql","name":' + quoted(prefix)
        )
        self._database = quoted(database)
        self._head = b""
        self._middle = b""
        self._xid = b""
        self._tail = b""
        self._sequence = b""

    def begin(self, ts_us: i64, xid: i64, last_commit: i64, is_snapshot: bool) -> None:
        super().begin(ts_us, xid, last_commit, is_snapshot)
        before = b"null" if last_commit == 0 else b'\\"%d\\"' % int(last_commit)
        self._sequence = b'"[' + before + b',\\"'
        self._head = b"".join(
            (
                self._begin,
                b',"ts_ms":%d' % (int(ts_us) // 1000),
                b',"snapshot":"true"' if is_snapshot else b',"snapshot":"false"',
                b',"db":' + self._database,
                b',"sequence":' + self._sequence,
            )
        )
        self._middle = b'\\"]","ts_us":%d,"ts_ns":%d,' % (int(ts_us), int(ts_us) * 1000)
        self._xid = b',"txId":' + (b"null" if xid == 0 else str(int(xid)).encode()) + b',"lsn":'
        self.origin("", 0)

    def origin(self, name: str, lsn: i64) -> None:
        super().origin(name, lsn)
        self._tail = b',"xmin":null,"origin":null,"origin_lsn":null}'
        if name:
            self._tail = b',"xmin":null,"origin":%s,"origin_lsn":%d}' % (quoted(name), int(lsn))

    def table_in_key(self, name: str, table: str) -> bytes:
        return b"," + quoted(name) + b":" + quoted(table)

    def added_name(self, name: str, is_first: bool) -> bytes:
        return (b"" if is_first else b",") + quoted(name) + b":"

    def added_value(self, value: str | int | None) -> bytes:
        if value is None:
            return b"null"
        return quoted(value) if isinstance(value, str) else b"%d" % value

    def write_lsn(self, out: BytesWriter, lsn: i64) -> None:
        write_int(out, lsn)

    def write_sequence(self, out: BytesWriter, lsn: i64) -> None:
        out.write(self._sequence)
        write_int(out, lsn)
        out.write(b'\\"]"')

    def write_source(self, out: BytesWriter, table: bytes, lsn: i64) -> None:
        out.write(self._head)
        write_int(out, lsn)
        out.write(self._middle)
        out.write(table)
        out.write(self._xid)
        write_int(out, lsn)
        out.write(self._tail)

    def table_piece(self, schema: str, table: str) -> bytes:
        return b'"schema":' + quoted(schema) + b',"table":' + quoted(table)

    def clock_piece(self, now_ns: int) -> bytes:
        return b'","ts_ms":%d,"ts_us":%d,"ts_ns":%d}' % (now_ns // 1_000_000, now_ns // 1000, now_ns)

    def op_piece(self, op: int) -> bytes:
        return b',"op":"%c' % op

    def message_key(self, prefix: str) -> bytes:
        return b'{"prefix":' + quoted(prefix) + b"}"

    def message_head(self, now_ns: int, source: bytes, prefix: str) -> bytes:
        head = b'{"op":"m","ts_ms":%d' % (now_ns // 1_000_000)
        return head + source + b',"message":{"prefix":' + quoted(prefix) + b',"content":'

    def write_transaction(self, out: BytesWriter, xid: bytes, lsn: i64, total: i64, of_collection: i64) -> None:
        out.write(b',"transaction":{"id":"')
        out.write(xid)
        write_int(out, lsn)
        out.write(b'","total_order":')
        write_int(out, total)
        out.write(b',"data_collection_order":')
        write_int(out, of_collection)
        out.write(b"}")

    def transaction_key(self, name: str) -> bytes:
        return b'{"id":' + quoted(name) + b"}"

    def transaction_event(
        self, status: str, name: str, counts: Sequence[tuple[str, int]] | None, commit_ms: int
    ) -> bytes:
        total = shown = b"null"
        if counts is not None:
            total = b"%d" % sum([count for _, count in counts])
            items = [b'{"data_collection":%b,"event_count":%d}' % (quoted(each), count) for each, count in counts]
            shown = b"[" + b",".join(items) + b"]"
        head = b'{"status":%b,"id":%b,"event_count":%b' % (quoted(status), quoted(name), total)
        return head + b',"data_collections":%b,"ts_ms":%d}' % (shown, commit_ms)
