"""The parts of Debezium's events that are no values of columns, in Avro.

Before: `event_form` says what they are. After: `row_encoder` and `message_encoder` write the pieces.
Source: Apache Avro specification, "Binary Encoding". `event_schema` has the fields in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.avro.codecs.varint import write_long, write_text
from cdcd.debezium.event_form import EventForm
from cdcd.debezium.json_text import write_int
from cdcd.debezium.modes import DEBEZIUM_VERSION

_NULL: Final = b"\x00"
_VALUE: Final = b"\x02"
"""The branches of a field that may be null."""


def _text(text: str) -> bytes:
    out = BytesWriter()
    write_text(out, text)
    return out.getvalue()


def _long(n: int) -> bytes:
    out = BytesWriter()
    write_long(out, n)
    return out.getvalue()


SOURCE_BEGIN: Final = _text(DEBEZIUM_VERSION) + _text("postgresql")
"""How the field `source` of each event begins."""


@final
class AvroForm(EventForm):
    """Avro.

    `source` is `_head`, the field `sequence`, `_middle`, the table's piece, `_xid`, the LSN of the change, and `_tail`.
    """

    def __init__(self, prefix: str, database: str) -> None:
        super().__init__((prefix, database), _VALUE, _NULL + _VALUE, _VALUE, _NULL, _NULL + _NULL, b"")
        self.no_transaction = _NULL
        self._begin = SOURCE_BEGIN + _text(prefix)
        self._database = _text(database)
        self._head = b""
        self._sequence = b""
        self._middle = b""
        self._xid = b""
        self._tail = b""

    def begin(self, ts_us: i64, xid: i64, last_commit: i64, is_snapshot: bool) -> None:
        super().begin(ts_us, xid, last_commit, is_snapshot)
        us = int(ts_us)
        snapshot = _NULL + _text("true" if is_snapshot else "false")  # the value's branch comes first: it has a default
        self._head = self._begin + _long(us // 1000) + snapshot + self._database
        self._sequence = b'[null,"' if last_commit == 0 else b'["%d","' % int(last_commit)
        self._middle = _VALUE + _long(us) + _VALUE + _long(us * 1000)
        self._xid = _NULL if xid == 0 else _VALUE + _long(int(xid))
        self.origin("", 0)

    def origin(self, name: str, lsn: i64) -> None:
        super().origin(name, lsn)
        self._tail = _NULL * 3
        if name:
            self._tail = _NULL + _VALUE + _text(name) + _VALUE + _long(int(lsn))

    def write_source(self, out: BytesWriter, table: bytes, lsn: i64) -> None:
        out.write(self._head)
        self.write_sequence(out, lsn)
        out.write(self._middle)
        out.write(table)
        out.write(self._xid)
        self.write_lsn(out, lsn)
        out.write(self._tail)

    def table_in_key(self, name: str, table: str) -> bytes:
        return _text(table)

    def added_name(self, name: str, is_first: bool) -> bytes:
        return b""

    def added_value(self, value: str | int | None) -> bytes:
        if value is None:
            return _NULL
        return _VALUE + (_text(value) if isinstance(value, str) else _long(value))

    def write_lsn(self, out: BytesWriter, lsn: i64) -> None:
        out.write(_VALUE)
        write_long(out, lsn)

    def write_sequence(self, out: BytesWriter, lsn: i64) -> None:
        out.write(_VALUE)
        mark = len(out)
        out.append(0)
        out.write(self._sequence)
        write_int(out, lsn)
        out.write(b'"]')
        out[mark] = u8((len(out) - mark - 1) << 1)  # less than 64: two numbers, and nine other characters

    def table_piece(self, schema: str, table: str) -> bytes:
        return _text(schema) + _text(table)

    def clock_piece(self, now_ns: int) -> bytes:
        return _VALUE + _long(now_ns // 1_000_000) + _VALUE + _long(now_ns // 1000) + _VALUE + _long(now_ns)

    def op_piece(self, op: int) -> bytes:
        return _text(chr(op))

    def message_key(self, prefix: str) -> bytes:
        return _VALUE + _text(prefix)

    def message_head(self, now_ns: int, source: bytes, prefix: str) -> bytes:
        head = _text("m") + _VALUE + _long(now_ns // 1_000_000)
        return head + source + _VALUE + _text(prefix) + _VALUE

    def write_transaction(self, out: BytesWriter, xid: bytes, lsn: i64, total: i64, of_collection: i64) -> None:
        out.write(_VALUE)
        mark = len(out)
        out.append(0)
        out.write(xid)
        write_int(out, lsn)
        out[mark] = u8((len(out) - mark - 1) << 1)  # less than 64: two numbers, and a colon
        write_long(out, total)
        write_long(out, of_collection)

    def transaction_key(self, name: str) -> bytes:
        return _text(name)

    def transaction_event(
        self, status: str, name: str, counts: Sequence[tuple[str, int]] | None, commit_ms: int
    ) -> bytes:
        shown = _NULL + _NULL
        if counts is not None:
            items = b"".join([_VALUE + _text(each) + _long(count) for each, count in counts])
            shown = _VALUE + _long(sum([count for _, count in counts])) + _VALUE + _long(len(counts)) + items + b"\x00"
        return _text(status) + _text(name) + shown + _long(commit_ms)
