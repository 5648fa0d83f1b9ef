"""The types of extensions: hstore and pgvector. (citext, ltree and PostGIS are in `text`.)

Before: `lookup` chooses the codec by the type's name alone: an extension may be in any schema.
After: `event_encoder` calls it once a value.
Source: contrib `hstore_io.c`, pgvector `vector.c`.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_f32_be, read_i16_be
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.errors import malformed, wrong_text
from cdcd.avro.codecs.floats import float4_text, read_float4, write_float4
from cdcd.avro.codecs.length_prefixed import LengthPrefixedReader
from cdcd.avro.codecs.literals import LiteralScanner
from cdcd.avro.codecs.registry import TypeRegistry, TypeRequest
from cdcd.avro.codecs.text_encoding import TextCodec
from cdcd.avro.codecs.varint import write_bytes, write_long
from cdcd.errors import BinaryFormatUnsupported

_NULL_BRANCH: Final = 0
_VALUE_BRANCH: Final = 2  # index 1, zigzag
_COMMA: Final = 44
_EQUALS: Final = 61


class Hstore(TextCodec):
    """hstore -> map of nullable string, in hstore's own order."""

    def __init__(self) -> None:
        super().__init__({"type": "map", "values": ["null", "string"]}, is_fallible=True)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = LengthPrefixedReader(at, size, "hstore")
        count: i64 = self._read_count(parts, data)
        if count > 0:
            write_long(out, count)
        while count > 0:
            self._write_key(parts, data, out)
            length: i64 = parts.size(data)
            if length < 0:
                out.append(_NULL_BRANCH)
            else:
                out.append(_VALUE_BRANCH)
                write_bytes(out, data, parts.at, length)
                parts.skip(length)
            count -= 1
        parts.finish()
        out.append(0)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size == 0:
            out.append(0)
            return True
        pairs = BytesWriter()
        # Append a comma, so that the last pair ends like all others.
        items = LiteralScanner(data[at : at + size] + b",", 0, size + 1, "hstore")
        count: i64 = 0
        while items.at <= size:
            items.next(_EQUALS, _EQUALS)
            if not items.quoted or items.at + 2 > size:
                raise wrong_text("hstore", '"key"=>"value"', size)
            write_bytes(pairs, items.data, items.start, items.size)
            items.at += 2
            items.next(_COMMA, _COMMA)
            if items.is_bare(b"NULL"):
                pairs.append(_NULL_BRANCH)
            elif not items.quoted:
                raise wrong_text("hstore", '"key"=>"value"', size)
            else:
                pairs.append(_VALUE_BRANCH)
                write_bytes(pairs, items.data, items.start, items.size)
            items.at += 2  # a comma and a blank
            count += 1
        write_long(out, count)
        out.write(pairs.getvalue())
        out.append(0)
        return True

    def raw(self, data: bytes, at: i64, size: i64) -> bytes:
        parts = LengthPrefixedReader(at, size, "hstore")
        pairs = []
        for _ in range(int(self._read_count(parts, data))):
            key: i64 = self._key_size(parts, data)
            text = _quote(data[parts.at : parts.at + key])
            parts.skip(key)
            length: i64 = parts.size(data)
            pairs.append(text + b"=>" + (b"NULL" if length < 0 else _quote(data[parts.at : parts.at + length])))
            parts.skip(length)
        parts.finish()
        return b", ".join(pairs)

    def _read_count(self, parts: LengthPrefixedReader, data: bytes) -> i64:
        count: i64 = parts.int4(data)
        if count < 0:
            raise malformed("hstore", "a count of pairs", f"{count}")
        return count

    def _key_size(self, parts: LengthPrefixedReader, data: bytes) -> i64:
        size: i64 = parts.size(data)
        if size < 0:
            raise malformed("hstore", "a key", "null")
        return size

    def _write_key(self, parts: LengthPrefixedReader, data: bytes, out: BytesWriter) -> None:
        length: i64 = self._key_size(parts, data)
        write_bytes(out, data, parts.at, length)
        parts.skip(length)


class ConvertedHstore(Hstore):
    """hstore of a database whose text the server converts to UTF-8. cdcd reads it in text mode only.

    `hstore_send` writes the lengths before the conversion, and the bytes after it: the binary form is wrong.
    """

    @property
    def has_binary(self) -> bool:
        return False

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raise _text_is_needed()

    def raw(self, data: bytes, at: i64, size: i64) -> bytes:
        raise _text_is_needed()


def _text_is_needed() -> BinaryFormatUnsupported:
    return BinaryFormatUnsupported(
        "hstore has a wrong binary form where the database is not UTF8: the stream goes on in text mode",
        code="stream-restarted",
    )


def _quote(text: bytes) -> bytes:
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


class Vector(Codec):
    """pgvector's vector -> array of float."""

    def __init__(self) -> None:
        super().__init__({"type": "array", "items": "float"}, is_fallible=True)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        count: i64 = self._read_header(data, at, size)
        if count > 0:
            write_long(out, count)
        at += 4
        while count > 0:
            write_float4(out, read_f32_be(data, at))
            at += 4
            count -= 1
        out.append(0)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size < 2 or data[at] != 91 or data[at + size - 1] != 93:
            raise wrong_text("vector", "numbers in brackets", size)
        i: i64 = at + 1
        last: i64 = at + size - 1
        if i < last:
            count: i64 = 1
            while i < last:
                if data[i] == _COMMA:
                    count += 1
                i += 1
            write_long(out, count)
        start: i64 = at + 1
        while start < last:
            i = start
            while i < last and data[i] != _COMMA:
                i += 1
            write_float4(out, read_float4(data, start, i - start))
            start = i + 1
        out.append(0)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        count = int(self._read_header(data, at, size))
        return "[" + ",".join(float4_text(read_f32_be(data, at + 4 + 4 * i)) for i in range(count)) + "]"

    def _read_header(self, data: bytes, at: i64, size: i64) -> i64:
        count: i64 = -1
        if size >= 4:
            count = i64(read_i16_be(data, at))
        if count < 0 or size != 4 + 4 * count:
            raise malformed("vector", "a count and so many floats", f"{size} bytes")
        return count


def register(types: TypeRegistry) -> None:
    """Make hstore and vector known."""
    types.add_extension("hstore", _hstore)
    types.add_extension("vector", lambda _: Vector())


def _hstore(request: TypeRequest) -> Codec:
    return ConvertedHstore() if request.options.converted else Hstore()
