"""The parts of Debezium's events that are no values of columns, in JSON.

Before: `event_form` says what they are. After: `row_encoder` and `message_encoder` write the pieces.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.debezium.event_form import EventForm
from cdcd.debezium.json_text import quoted, write_int
from cdcd.debezium.modes import DEBEZIUM_VERSION

LSN: Final = b"\0"
"""Stands for the LSN of the change in `value`. No JSON has this byte."""


@final
class JsonForm(EventForm):
    """JSON.

    `source` is `_head`, the LSN of the change, `_middle`, the table's piece, `_xid`, the LSN again, and `_tail`.
    """

    def __init__(self, prefix: str, database: str) -> None:
        super().__init__(
            b'{"before":',
            b'{"before":null,"after":',
            b',"after":',
            b',"after":null',
            b'{"before":null,"after":null',
            b"}",
        )
        self._begin = (
            b',"source":{"version":' + quoted(DEBEZIUM_VERSION) + b',"connector":"postgresql","name":' + quoted(prefix)
        )
        self._database = quoted(database)
        self._prefix = quoted(prefix)
        self._head = b""
        self._middle = b""
        self._xid = b""
        self._tail = b""
        self._ts_us: i64 = 0
        self._of_xid: i64 = 0
        self._before = b""
        self._is_snapshot = False
        self._origin = ("", 0)

    def begin(self, ts_us: i64, xid: i64, last_commit: i64, is_snapshot: bool) -> None:
        before = b"null" if last_commit == 0 else b'\\"%d\\"' % int(last_commit)
        self._head = b"".join(
            (
                self._begin,
                b',"ts_ms":%d' % (int(ts_us) // 1000),
                b',"snapshot":"true"' if is_snapshot else b',"snapshot":"false"',
                b',"db":' + self._database,
                b',"sequence":"[' + before + b',\\"',
            )
        )
        self._middle = b'\\"]","ts_us":%d,"ts_ns":%d,' % (int(ts_us), int(ts_us) * 1000)
        self._ts_us, self._of_xid, self._before, self._is_snapshot = ts_us, xid, before, is_snapshot
        self._xid = b',"txId":' + (b"null" if xid == 0 else str(int(xid)).encode()) + b',"lsn":'
        self.origin("", 0)

    def origin(self, name: str, lsn: i64) -> None:
        self.version += 1
        self._origin = (name, int(lsn))
        self._tail = b',"xmin":null,"origin":null,"origin_lsn":null}'
        if name:
            self._tail = b',"xmin":null,"origin":%s,"origin_lsn":%d}' % (quoted(name), int(lsn))

    def value(self, field: str) -> bytes:
        """The JSON of one field, but for `schema` and `table`; LSN stands where the LSN of the change does."""
        name, lsn = self._origin
        match field:
            case "version":
                return quoted(DEBEZIUM_VERSION)
            case "connector":
                return b'"postgresql"'
            case "name":
                return self._prefix
            case "ts_ms":
                return b"%d" % (int(self._ts_us) // 1000)
            case "ts_us":
                return b"%d" % int(self._ts_us)
            case "ts_ns":
                return b"%d" % (int(self._ts_us) * 1000)
            case "snapshot":
                return b'"true"' if self._is_snapshot else b'"false"'
            case "db":
                return self._database
            case "sequence":
                return b'"[' + self._before + b',\\"' + LSN + b'\\"]"'
            case "txId" if self._of_xid:
                return b"%d" % int(self._of_xid)
            case "lsn":
                return LSN
            case "origin" if name:
                return quoted(name)
            case "origin_lsn" if name:
                return b"%d" % lsn
        return b"null"

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
        return b',"transaction":null,"op":"%c' % op

    def message_key(self, prefix: str) -> bytes:
        return b'{"prefix":' + quoted(prefix) + b"}"

    def message_head(self, now_ns: int, source: bytes, prefix: str) -> bytes:
        head = b'{"op":"m","ts_ms":%d' % (now_ns // 1_000_000)
        return head + source + b',"transaction":null,"message":{"prefix":' + quoted(prefix) + b',"content":'
