"""The form of events in JSON: the parts of an event that are no values of columns.

Before: `avro.envelope_form` says what the parts are. After: `avro.event_encoder` writes them around values.
Source: `avro.envelope_fields` has the order of the fields.

Hot path, compiled.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.avro.codecs.base import Codec, Transcoder
from cdcd.avro.envelope_form import EnvelopeForm
from cdcd.avro.schema_store import SchemaStore
from cdcd.debezium.event_schema import before_payload
from cdcd.debezium.json_text import quoted, write_int
from cdcd.json_events.connect_schemas import connect_schema
from cdcd.json_events.forms import Timestamp
from cdcd.json_events.values import writer_of

_NONE: Final = b'},"identity":"none","before":null,"after":'
_LSN: Final = b',"lsn":'
_UNCHANGED: Final = b',"unchanged":['
_UNREPRESENTABLE: Final = b'],"unrepresentable":['


class JsonHeads(SchemaStore):
    """What is before each key and event, instead of the name of its schema."""

    def __init__(self, with_schemas: bool) -> None:
        """`with_schemas`: Connect's schema is there."""
        self._with_schemas = with_schemas

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        head = before_payload(connect_schema(text)) if self._with_schemas else b""
        return head + b'{"op":"' if subject == "value" else head


@final
class JsonEnvelope(EnvelopeForm):
    """JSON. An event begins as JsonHeads says."""

    def __init__(self, with_schemas: bool) -> None:
        """`with_schemas`: that of JsonHeads."""
        self._brace = b"}}" if with_schemas else b"}"
        super().__init__(
            is_json=True,
            only_after=_NONE,
            full_before=b'},"identity":"full","before":',
            key_before=b'},"identity":"key","before":',
            after=b',"after":',
            no_after=b',"after":null',
            end=_UNCHANGED + _UNREPRESENTABLE + b"]" + self._brace,
        )
        self._commit_ts = Timestamp(with_zone=True)
        self._source = b""
        """From `op` to `seq`."""
        self._tail = b""
        """What follows on `lsn` in `source`, without its brace: the table may follow."""

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64, origin: str) -> None:
        self._source = b'","source":{"commit_lsn":%d,"seq":' % int(commit_lsn)
        out = BytesWriter()
        out.write(b',"xid":%d,"commit_ts":' % int(xid))
        self._commit_ts.write_micros(commit_ts, out)
        out.write(b',"origin":' + (quoted(origin) if origin else b"null"))
        self._tail = out.getvalue()

    def write_head(self, out: BytesWriter, op: i64, seq: i64, lsn: i64, table: bytes) -> None:
        out.append(u8(op & 0xFF))
        out.write(self._source)
        write_int(out, seq)
        out.write(_LSN)
        write_int(out, lsn)
        out.write(self._tail)
        if table:
            out.write(table)

    def write_losses(self, out: BytesWriter, unchanged: list[str], unrepresentable: list[tuple[str, str, str]]) -> None:
        out.write(_UNCHANGED + b",".join([quoted(column) for column in unchanged]) + _UNREPRESENTABLE)
        texts = [
            b'{"image":%s,"column":%s,"text":%s}' % (quoted(image), quoted(column), quoted(text))
            for image, column, text in unrepresentable
        ]
        out.write(b",".join(texts) + b"]" + self._brace)

    def write_rest_of_truncate(self, out: BytesWriter, cascade: bool, restart_identity: bool) -> None:
        out.write(_NONE + b"null" + _UNCHANGED + _UNREPRESENTABLE)
        flags = b"true" if cascade else b"false", b"true" if restart_identity else b"false"
        out.write(b'],"truncate":{"cascade":%s,"restart_identity":%s}' % flags + self._brace)

    def key_end(self, field: str, losses: list[tuple[str, str]]) -> bytes:
        if not field:
            return self._brace
        texts = [b'{"column":%s,"text":%s}' % (quoted(column), quoted(text)) for column, text in losses]
        return b"," + quoted(field) + b":[" + b",".join(texts) + b"]" + self._brace

    def table_in_source(self, schema: str, table: str) -> bytes:
        return b',"schema":' + quoted(schema) + b',"table":' + quoted(table)

    def table_in_key(self, names: tuple[str, ...], schema: str, table: str) -> bytes:
        fields = zip(names, (schema, table), strict=True)
        return b"{" + b",".join([quoted(name) + b":" + quoted(value) for name, value in fields])

    def writer(self, codec: Codec) -> Transcoder:
        return writer_of(codec)

    def name(self, column: str, avro_name: str) -> str:
        return column

    def piece(self, name: str, is_first: bool) -> bytes:
        return (b"{" if is_first else b",") + quoted(name) + b":"
