"""The base class of all values: one PostgreSQL type as Connect's JSON.

Before: `lookup` chooses the value of a column once, when its relation becomes known.
After: the families implement it; `field_writer` and `key_encoder` call it.

This is the hot path. A value reads PostgreSQL's form in place in the frame, and appends JSON to the writer.
"""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.text_encoding import EscapingColumn
from cdcd.debezium.connect_schema import STRING, Schema
from cdcd.errors import DecodeError


class Value:
    """One PostgreSQL type. Subclasses are stateless between two values."""

    def __init__(self, schema: Schema, fallback: bytes = b"", placeholder: bytes = b"") -> None:
        self.schema = schema
        self.fallback = fallback
        """JSON of a NOT NULL column whose value did not come; empty: null."""
        self.placeholder = placeholder
        """JSON of a value that PostgreSQL left out because it did not change; empty: null."""

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the JSON of the text (`typoutput`) value `data[at:at + size]`.

        Returns False if Connect's type cannot hold it: the caller then removes the appended bytes, and writes null.
        Raises DecodeError if the bytes are not of this type.
        """
        raise DecodeError(f"{type(self).__name__} does not read text values")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the JSON of the binary (`typsend`) value: the same bytes as `text`. The contract is that of `text`."""
        raise DecodeError(f"{type(self).__name__} does not read binary values")


class Null(Value):
    """A type for which Debezium has a field that is always null."""

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return False

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return False


class ByText(Value):
    """A value that is made from PostgreSQL's text in both wire modes: an Avro codec knows the text of binary values."""

    def __init__(self, inner: Value, codec: Codec) -> None:
        super().__init__(inner.schema, inner.fallback, inner.placeholder)
        self.inner = inner
        self.codec = codec

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self.inner.text(data, at, size, out)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = self.codec.render(data, at, size).encode("utf-8", "surrogateescape")
        return self.inner.text(raw, 0, len(raw), out)


class Escaped(Value):
    r"""A column of a database that is not UTF8, whose text may not be UTF-8: such bytes are written as `\xHH`."""

    def __init__(self, inner: Value, codec: EscapingColumn) -> None:
        super().__init__(inner.schema, inner.fallback, inner.placeholder)
        self.inner = inner
        self.codec = codec

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self.codec.shown(data[at : at + size]), out)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self.codec.render(data, at, size), out)

    def _write(self, text: str, out: BytesWriter) -> bool:
        raw = text.encode()
        return self.inner.text(raw, 0, len(raw), out)


def named(name: str, of: Schema = STRING) -> Schema:
    """A semantic type of Debezium, version 1."""
    return Schema(of.type, name, 1)
