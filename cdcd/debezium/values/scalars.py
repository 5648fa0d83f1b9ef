"""Booleans, integers, floats, text and bytes.

Before: `lookup` chooses the value by the column's type.
After: `field_writer` calls it once a value.
Source: Debezium's `PostgresValueConverter` and `JdbcValueConverters`; the text and binary forms as in `avro.codecs`.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from typing import Final

from librt.strings import BytesWriter, read_f32_be, read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64, u8

from cdcd.avro.codecs import floats, integers, text
from cdcd.avro.codecs.base import Transcoder
from cdcd.avro.codecs.digits import read_int
from cdcd.avro.codecs.errors import malformed, wrong_size, wrong_text
from cdcd.avro.codecs.floats import read_float, read_float4
from cdcd.avro.codecs.varint import write_bytes
from cdcd.debezium.connect_schema import BOOLEAN, BYTES, DOUBLE, FLOAT, INT16, INT32, INT64, STRING, Schema
from cdcd.debezium.json_text import quoted, write_base64, write_double, write_float, write_hex, write_int, write_string
from cdcd.debezium.modes import BinaryMode
from cdcd.debezium.values.base import Value

_NIBBLES: Final = bytes(int(chr(c), 16) if chr(c) in "0123456789abcdefABCDEF" else 255 for c in range(256))
_TRUE: Final = b"true"
_FALSE: Final = b"false"
_QUOTE: Final = 34
_WORD_MIN: Final = -0x8000_0000
_WORD_MAX: Final = 0x7FFF_FFFF


class Bool(Value):
    """boolean -> boolean."""

    def __init__(self) -> None:
        super().__init__(BOOLEAN, _FALSE)

    def avro(self) -> Transcoder:
        return integers.Bool()

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 1 or (data[at] != 116 and data[at] != 102):
            raise wrong_text("bool", "t or f", size)
        out.write(_TRUE if data[at] == 116 else _FALSE)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 1 or data[at] > 1:
            raise malformed("bool", "a byte 0 or 1", f"{size} bytes")
        out.write(_TRUE if data[at] else _FALSE)
        return True


class Int2(Value):
    """smallint -> int16."""

    def __init__(self) -> None:
        super().__init__(INT16, b"0")

    def avro(self) -> Transcoder:
        return integers.Int2()

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write_int(data, at, size, out, "int2", -0x8000, 0x7FFF)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 2:
            raise wrong_size("int2", 2, size)
        write_int(out, i64(read_i16_be(data, at)))
        return True


class Int4(Value):
    """integer -> int32."""

    def __init__(self) -> None:
        super().__init__(INT32, b"0")

    def avro(self) -> Transcoder:
        return integers.Int4()

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write_int(data, at, size, out, "int4", _WORD_MIN, _WORD_MAX)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 4:
            raise wrong_size("int4", 4, size)
        write_int(out, i64(read_i32_be(data, at)))
        return True


class Int8(Value):
    """bigint -> int64."""

    def __init__(self) -> None:
        super().__init__(INT64, b"0")

    def avro(self) -> Transcoder:
        return integers.Int8()

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_int(out, read_int(data, at, size, "int8"))
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 8:
            raise wrong_size("int8", 8, size)
        write_int(out, read_i64_be(data, at))
        return True


class Oid(Value):
    """oid -> int64."""

    def __init__(self) -> None:
        super().__init__(INT64, b"0")

    def avro(self) -> Transcoder:
        return integers.Unsigned4("oid")

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write_int(data, at, size, out, "oid", 0, 0xFFFF_FFFF)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 4:
            raise wrong_size("oid", 4, size)
        write_int(out, i64(read_i32_be(data, at)) & 0xFFFF_FFFF)
        return True


def _write_int(data: bytes, at: i64, size: i64, out: BytesWriter, type_name: str, lowest: i64, highest: i64) -> bool:
    n: i64 = read_int(data, at, size, type_name)
    if n < lowest or n > highest:
        raise wrong_text(type_name, "a decimal integer of its range", size)
    write_int(out, n)
    return True


class Float4(Value):
    """real -> float."""

    def __init__(self) -> None:
        super().__init__(FLOAT, b"0.0")

    def avro(self) -> Transcoder:
        return floats.Float4()

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_float(out, read_float4(data, at, size))
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 4:
            raise wrong_size("float4", 4, size)
        write_float(out, read_f32_be(data, at))
        return True


class Float8(Value):
    """double precision -> double."""

    def __init__(self) -> None:
        super().__init__(DOUBLE, b"0.0")

    def avro(self) -> Transcoder:
        return floats.Float8()

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_double(out, read_float(data, at, size, "float8"))
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 8:
            raise wrong_size("float8", 8, size)
        write_double(out, read_f64_be(data, at))
        return True


class Text(Value):
    """text, varchar, bpchar, name, json, xml, citext, enums -> string: the binary form is the text."""

    def __init__(self, schema: Schema, placeholder: str) -> None:
        super().__init__(schema, b'""', quoted(placeholder))

    def avro(self) -> Transcoder:
        return text.Text()

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_string(out, data, at, size)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_string(out, data, at, size)
        return True


class VersionedText(Text):
    """jsonb, ltree -> string: the binary form is a version byte, 1, and the text."""

    def __init__(self, schema: Schema, placeholder: str, type_name: str) -> None:
        super().__init__(schema, placeholder)
        self.type_name = type_name

    def avro(self) -> Transcoder:
        return text.VersionedText(self.type_name)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size < 1 or data[at] != 1:
            raise malformed(self.type_name, "version 1", "another one")
        write_string(out, data, at + 1, size - 1)
        return True


class Uuid(Text):
    """uuid -> string."""

    def __init__(self, schema: Schema, placeholder: str) -> None:
        super().__init__(schema, placeholder)
        self.codec = text.Uuid()

    def avro(self) -> Transcoder:
        return self.codec

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        mark = len(out)
        self.codec.binary(data, at, size, out)
        out[mark] = _QUOTE  # there stands the length, which Avro wants
        out.append(_QUOTE)
        return True


class Bytes(Value):
    """Bytes by `binary.handling.mode`."""

    def __init__(self, mode: BinaryMode, placeholder: str) -> None:
        self.mode = mode
        self.is_base64 = mode == "bytes" or mode == "base64"
        raw = placeholder.encode()
        shown = b""
        if mode == "bytes":
            out = BytesWriter()
            write_base64(out, raw, 0, len(raw))
            shown = out.getvalue()
        elif mode == "hex":
            shown = quoted(placeholder)
        super().__init__(BYTES if mode == "bytes" else STRING, b'""', shown)

    def avro(self) -> Transcoder:
        return BytesInAvro(self.mode)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        self.write(data, at, size, out)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        self.write(data, at, size, out)
        return True

    def write(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> None:
        """Append these bytes."""
        if self.is_base64:
            write_base64(out, data, at, size)
        elif self.mode == "hex":
            write_hex(out, data, at, size)
        else:
            out.append(_QUOTE)
            out.write(urlsafe_b64encode(data[at : at + size]))
            out.append(_QUOTE)


class Bytea(Bytes):
    r"""bytea: its text is hexadecimal after `\x`."""

    def avro(self) -> Transcoder:
        return ByteaInAvro(self.mode)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = _bytea(data, at, size)
        self.write(raw, 0, len(raw), out)
        return True


class BytesInAvro(Transcoder):
    """Bytes, or a string, by `binary.handling.mode`."""

    def __init__(self, mode: BinaryMode) -> None:
        self.mode = mode

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self.binary(data, at, size, out)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if self.mode == "bytes":
            write_bytes(out, data, at, size)
            return True
        raw = data[at : at + size]
        if self.mode == "hex":
            shown = raw.hex().encode()
        else:
            shown = b64encode(raw) if self.mode == "base64" else urlsafe_b64encode(raw)
        write_bytes(out, shown, 0, len(shown))
        return True


class ByteaInAvro(BytesInAvro):
    """bytea."""

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = _bytea(data, at, size)
        return self.binary(raw, 0, len(raw), out)


def _bytea(data: bytes, at: i64, size: i64) -> bytes:
    if size < 2 or data[at] != 92 or data[at + 1] != 120 or size & 1:
        raise wrong_text("bytea", "hexadecimal after \\x", size)
    return unhexed(data, at + 2, size - 2, "bytea")


def unhexed(data: bytes, at: i64, size: i64, type_name: str) -> bytes:
    """Decode `size` hexadecimal digits, an even number."""
    out = BytesWriter()
    end: i64 = at + size
    while at < end:
        high: i64 = i64(_NIBBLES[data[at]])
        low: i64 = i64(_NIBBLES[data[at + 1]])
        if high | low > 15:
            raise wrong_text(type_name, "hexadecimal digits", size)
        out.append(u8(high << 4 | low))
        at += 2
    return out.getvalue()
