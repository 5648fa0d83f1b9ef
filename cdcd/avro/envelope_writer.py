"""Writes the parts of an event that are not its rows, in the order of `envelope_fields`.

Before: `event_encoder` has written the rows.
After: `event_encoder` has the complete event.
Source: Apache Avro specification, "Binary Encoding".

`write_fields` follows the tables of `envelope_fields`. It is slow, and serves rare events only. For the events of rows,
hand-written code here and in `event_encoder` writes the same fields: `tests/unit/avro/test_envelope_fields.py` compares
the bytes of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.varint import write_long, write_text
from cdcd.avro.envelope_fields import TIMESTAMP, TRUNCATE_ENVELOPE, EnvelopeField, FieldType, ListType, RecordType


def transaction_bytes(xid: i64, commit_ts: i64, origin: str) -> bytes:
    """The fields of `source` after `lsn`: they are the same in all events of a transaction. `origin` "": none."""
    out = BytesWriter()
    write_long(out, xid)
    write_long(out, commit_ts)
    if origin:
        out.append(2)
        write_text(out, origin)
    else:
        out.append(0)
    return out.getvalue()


def table_bytes(schema: str, name: str) -> bytes:
    """The fields of TABLE, in `source` and in a key."""
    out = BytesWriter()
    write_text(out, schema)
    write_text(out, name)
    return out.getvalue()


def write_losses(out: BytesWriter, unchanged: list[str], unrepresentable: list[tuple[str, str, str]]) -> None:
    """Append the fields `unchanged` (columns) and `unrepresentable` (image, column, text)."""
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


def write_rest_of_truncate(out: BytesWriter, cascade: bool, restart_identity: bool) -> None:
    """Append the fields of a truncate after `source`."""
    options = {"cascade": cascade, "restart_identity": restart_identity}
    write_fields(out, TRUNCATE_ENVELOPE[2:], {"identity": "none", "truncate": options})


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
