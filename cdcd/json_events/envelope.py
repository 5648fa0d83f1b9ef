"""The form of an event: most of its envelope is the same in all events of a transaction.

Before: `form_lookup` has made the form of each field. After: `json_records` calls it once an event.
Source: `avro.envelope_fields` has the order of the fields.

Two stretches of the Avro bytes are kept with their JSON from one event to the next: from the beginning to `commit_lsn`,
and from behind `lsn` to the row. Equal bytes have equal JSON. Hot path, compiled.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i64_be
from mypy_extensions import i64

from cdcd.json_events.forms import AvroReader, Field, Form

_CLOSE: Final = 125
_NOTHING_LOST: Final = b',"unchanged":[],"unrepresentable":[]}'


@final
class Stretch:
    """Bytes of Avro, and their JSON."""

    def __init__(self) -> None:
        self._avro = b""
        self._size: i64 = 0
        self._json = b""

    def write(self, avro: AvroReader, out: BytesWriter) -> bool:
        """Append the JSON if the next bytes are these; else False."""
        data, own = avro.data, self._avro
        at: i64 = avro.at
        size: i64 = self._size
        if size == 0 or at + size > len(data):
            return False
        done: i64 = 0
        while done + 8 <= size:
            if read_i64_be(data, at + done) != read_i64_be(own, done):
                return False
            done += 8
        while done < size:
            if data[at + done] != own[done]:
                return False
            done += 1
        out.write(self._json)
        avro.at = at + size
        return True

    def take(self, data: bytes, begin: i64, end: i64, json: bytes) -> None:
        """Take `data[begin:end]`, whose JSON this is."""
        self._avro = data[begin:end]
        self._size = end - begin
        self._json = json


class Envelope(Form):
    """An event -> object."""

    def __init__(self, fields: list[Field], source: list[Field]) -> None:
        """`fields`: of the envelope. `source`: of its field `source`. Each in its order."""
        self._op, self._source, self._identity, self._before, self._after, self._unchanged, self._lost = fields[:7]
        self._commit_lsn, self._seq, self._lsn, self._xid = source[:4]
        self._truncate = fields[7] if len(fields) > 7 else None
        self._head = Stretch()
        self._tail = Stretch()
        self._is_row_next = False
        """The tail ends where the row `after` begins, and there is no row `before`."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        if not self._head.write(avro, out):
            self._write_head(avro, out)
        self._seq.write(avro, out)
        self._lsn.write(avro, out)
        if not self._tail.write(avro, out):
            self._write_tail(avro, out)
        if self._is_row_next:
            self._after.form.write(avro, out)
        else:
            self._before.write(avro, out)
            self._after.write(avro, out)
        at: i64 = avro.at
        if self._truncate is None and avro.data[at] == 0 and avro.data[at + 1] == 0:
            avro.at = at + 2
            out.write(_NOTHING_LOST)
            return
        self._unchanged.write(avro, out)
        self._lost.write(avro, out)
        if self._truncate is not None:
            self._truncate.write(avro, out)
        out.append(_CLOSE)

    def _write_head(self, avro: AvroReader, out: BytesWriter) -> None:
        begin: i64 = avro.at
        json = BytesWriter()
        self._op.write(avro, json)
        json.write(self._source.piece)
        self._commit_lsn.write(avro, json)
        self._head.take(avro.data, begin, avro.at, json.getvalue())
        out.write(json.getvalue())

    def _write_tail(self, avro: AvroReader, out: BytesWriter) -> None:
        begin: i64 = avro.at
        json = BytesWriter()
        field: Field | None = self._xid
        while field is not None:  # the last fields of `source`
            field.write(avro, json)
            field = field.next_field
        json.append(_CLOSE)
        self._identity.write(avro, json)
        at: i64 = avro.at
        self._is_row_next = avro.data[at] == 0 and avro.data[at + 1] != 0
        if self._is_row_next:
            avro.at = at + 2
            json.write(self._before.piece + b"null" + self._after.piece)
        self._tail.take(avro.data, begin, avro.at, json.getvalue())
        out.write(json.getvalue())
