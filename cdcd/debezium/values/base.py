"""The base class of all values: one PostgreSQL type as Connect's JSON, and as its Avro.

Before: `lookup` chooses the value of a column once, when its relation becomes known.
After: the families implement it; `field_writer` and `key_encoder` call it.

This is the hot path. A value reads PostgreSQL's form in place in the frame, and appends JSON or Avro to the writer.
Types that `avro.codecs` writes as Connect does take their codecs from there.
"""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.avro.codecs.base import Codec, Transcoder
from cdcd.avro.codecs.text_encoding import EscapingColumn
from cdcd.avro.codecs.varint import write_bytes, write_long
from cdcd.debezium.avro_data import avro_of_json
from cdcd.debezium.connect_schema import STRING, Schema


class Value(Transcoder):
    """One PostgreSQL type as Connect's JSON; False of `text` and `binary`: Connect's type cannot hold the value.

    `avro` has the same values in Avro.
    """

    def __init__(self, schema: Schema, fallback: bytes = b"", placeholder: bytes = b"") -> None:
        self.schema = schema
        self.fallback = fallback
        """JSON of a NOT NULL column whose value did not come; empty: null."""
        self.placeholder = placeholder
        """JSON of a value that PostgreSQL left out because it did not change; empty: null."""
        self.has_near = False
        """Some values are written as others that are near: `is_near` says which."""

    def avro(self) -> Transcoder:
        """What writes these values in Avro."""
        return FromJson(self, self.schema)

    def lost(self) -> tuple[str, str]:
        """Which values Connect's type cannot hold, and the setting of [debezium] that holds them, if one does.

        Both are empty if it holds all. A value that it cannot hold is null, or another value that is near.
        """
        return "", ""

    def is_near(self, text: str) -> bool:
        """Whether a value that is written is not the one of PostgreSQL's text, but one that is near.

        Without this text nobody can tell it: infinity is a date, microseconds are gone, two values look the same.
        """
        return False


class FromJson(Transcoder):
    """Avro that is made from the JSON of the same value: for types whose rows are rare."""

    def __init__(self, value: Transcoder, schema: Schema) -> None:
        self.value = value
        self.schema = schema

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        shown = BytesWriter()
        return self.value.text(data, at, size, shown) and self._write(shown, out)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        shown = BytesWriter()
        return self.value.binary(data, at, size, shown) and self._write(shown, out)

    def _write(self, shown: BytesWriter, out: BytesWriter) -> bool:
        out.write(avro_of_json(self.schema, shown.getvalue()))
        return True


class Ascii(Transcoder):
    """Avro's string of what a value writes as a JSON string of ASCII without escapes."""

    def __init__(self, value: Transcoder) -> None:
        self.value = value

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        mark = len(out)
        return self.value.text(data, at, size, out) and _with_length(out, mark)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        mark = len(out)
        return self.value.binary(data, at, size, out) and _with_length(out, mark)


def _with_length(out: BytesWriter, mark: i64) -> bool:
    """Put the length in the place of the first quote, and remove the last one."""
    size: i64 = len(out) - mark - 2
    if size < 64:
        out[mark] = u8(size << 1)
        out.truncate(mark + 1 + size)
    else:
        shown = out.getvalue()[mark + 1 :]
        out.truncate(mark)
        write_bytes(out, shown, 0, size)
    return True


class Count(Transcoder):
    """Avro's int or long of what a value writes as a JSON integer."""

    def __init__(self, value: Transcoder) -> None:
        self.value = value

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        mark = len(out)
        return self.value.text(data, at, size, out) and _as_long(out, mark)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        mark = len(out)
        return self.value.binary(data, at, size, out) and _as_long(out, mark)


def _as_long(out: BytesWriter, mark: i64) -> bool:
    """Replace the decimal digits from `mark` on by a long."""
    end = len(out)
    at: i64 = mark
    is_negative = out[at] == 45
    if is_negative:
        at += 1
    negated: i64 = 0  # the lowest integer has no positive counterpart
    while at < end:
        negated = negated * 10 - (i64(out[at]) - 48)
        at += 1
    out.truncate(mark)
    write_long(out, negated if is_negative else -negated)
    return True


class Null(Value):
    """A type for which Debezium has a field that is always null."""

    def lost(self) -> tuple[str, str]:
        return "all: they are null", ""

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return False

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return False


class ByText(Value):
    """A value that is made from PostgreSQL's text in both wire modes: an Avro codec knows the text of binary values."""

    def __init__(self, inner: Value, codec: Codec) -> None:
        super().__init__(inner.schema, inner.fallback, inner.placeholder)
        self.has_near = inner.has_near
        self.inner = inner
        self.codec = codec
        self.writer: Transcoder = inner

    def avro(self) -> Transcoder:
        other = ByText(self.inner, self.codec)
        other.writer = self.inner.avro()
        return other

    def lost(self) -> tuple[str, str]:
        return self.inner.lost()

    def is_near(self, text: str) -> bool:
        return self.inner.is_near(text)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self.writer.text(data, at, size, out)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = self.codec.render(data, at, size).encode("utf-8", "surrogateescape")
        return self.writer.text(raw, 0, len(raw), out)


class Escaped(Value):
    r"""A column of a database that is not UTF8, whose text may not be UTF-8: such bytes are written as `\xHH`."""

    def __init__(self, inner: Value, codec: EscapingColumn) -> None:
        super().__init__(inner.schema, inner.fallback, inner.placeholder)
        self.has_near = inner.has_near
        self.inner = inner
        self.codec = codec
        self.writer: Transcoder = inner

    def avro(self) -> Transcoder:
        other = Escaped(self.inner, self.codec)
        other.writer = self.inner.avro()
        return other

    def lost(self) -> tuple[str, str]:
        return self.inner.lost()

    def is_near(self, text: str) -> bool:
        return self.inner.is_near(text)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self.codec.shown(data[at : at + size]), out)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self.codec.render(data, at, size), out)

    def _write(self, text: str, out: BytesWriter) -> bool:
        raw = text.encode()
        return self.writer.text(raw, 0, len(raw), out)


def named(name: str, of: Schema = STRING) -> Schema:
    """A semantic type of Debezium, version 1."""
    return Schema(of.type, name, 1)
