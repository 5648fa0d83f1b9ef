"""The form of events in Avro: the parts of an event that are not its rows, in the order of `envelope_fields`.

Before: `envelope_form` says what the parts are.
After: `event_encoder` and `key_encoder` write them around values.
Source: Apache Avro specification, "Binary Encoding".

`write_fields` follows the tables of `envelope_fields`. It is slow, and serves rare events only. For the events of rows,
hand-written code here writes the same fields: `tests/unit/avro/test_envelope_fields.py` compares
the bytes of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.avro.codecs.base import Codec, Transcoder
from cdcd.avro.codecs.varint import write_long, write_text
from cdcd.avro.envelope_fields import TIMESTAMP, TRUNCATE_ENVELOPE, EnvelopeField, FieldType, ListType, RecordType
from cdcd.avro.envelope_form import EnvelopeForm


@final
class AvroEnvelope(EnvelopeForm):
    """Avro."""

    def __init__(self) -> None:
        super().__init__(
            is_json=False,
            only_after=b"\x08none\x00\x02",
            full_before=b"\x08full\x02",
            key_before=b"\x06key\x02",
            after=b"\x02",
            no_after=b"\x00",
            end=b"\x00\x00",
        )
        self._commit_lsn = b""
        self._tail = b""
        """The fields of `source` after `lsn`. Both are the same in all events of a transaction."""

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64, origin: str) -> None:
        out = BytesWriter()
        write_long(out, commit_lsn)
        self._commit_lsn = out.getvalue()
        out.truncate(0)
        write_long(out, xid)
        write_long(out, commit_ts)
        if origin:
            out.append(2)
            write_text(out, origin)
        else:
            out.append(0)
        self._tail = out.getvalue()

    def write_head(self, out: BytesWriter, op: i64, seq: i64, lsn: i64, table: bytes) -> None:
        out.append(2)
        out.append(u8(op & 0xFF))
        out.write(self._commit_lsn)
        write_long(out, seq)
        write_long(out, lsn)
        out.write(self._tail)
        if table:
            out.write(table)

    def write_losses(self, out: BytesWriter, unchanged: list[str], unrepresentable: list[tuple[str, str, str]]) -> None:
        if unchanged:
            write_long(out, len(unchanged))
            for column in unchanged:
                write_text(out, column)
        out.append(0)
        if unrepresentable:
            write_long(out, len(unrepresentable))
            for image, column, text in unrepresentable:
                write_text(out, image)
                write_text(out, column)
                write_text(out, text)
        out.append(0)

    def write_rest_of_truncate(self, out: BytesWriter, cascade: bool, restart_identity: bool) -> None:
        options = {"cascade": cascade, "restart_identity": restart_identity}
        write_fields(out, TRUNCATE_ENVELOPE[2:], {"identity": "none", "truncate": options})

    def key_end(self, field: str, losses: list[tuple[str, str]]) -> bytes:
        out = BytesWriter()
        if losses:
            write_long(out, len(losses))
            for column, text in losses:
                write_text(out, column)
                write_text(out, text)
        if field:
            out.append(0)
        return out.getvalue()

    def table_in_source(self, schema: str, table: str) -> bytes:
        out = BytesWriter()
        write_text(out, schema)
        write_text(out, table)
        return out.getvalue()

    def table_in_key(self, names: tuple[str, ...], schema: str, table: str) -> bytes:
        return self.table_in_source(schema, table)

    def writer(self, codec: Codec) -> Transcoder:
        return codec

    def name(self, column: str, avro_name: str) -> str:
        return avro_name

    def piece(self, name: str, is_first: bool) -> bytes:
        return b""


def write_fields(out: BytesWriter, fields: Sequence[EnvelopeField], values: Mapping[str, object]) -> None:
    """Append the values of `fields`, which `values` has by name. A missing value is null, or an empty list."""
    for field in fields:
        value = values.get(field.name)
        if field.is_nullable:
            out.append(0 if value is None else 2)
        if value is not None or not field.is_nullable:
            _write(out, field.type, value)


def _write(out: BytesWriter, kind: FieldType, value: object) -> None:
    if isinstance(kind, RecordType):
        assert isinstance(value, Mapping)
        write_fields(out, kind.fields, value)
    elif isinstance(kind, ListType):
        items = value if isinstance(value, list) else []
        if items:
            write_long(out, len(items))
        for item in items:
            _write(out, kind.items, item)
        out.append(0)
    elif kind == "boolean":
        out.append(1 if value else 0)
    elif kind in ("long", TIMESTAMP):
        assert isinstance(value, int)
        write_long(out, value)
    else:
        assert kind == "string"
        assert isinstance(value, str)
        write_text(out, value)
