"""Text and types that are like text: json, jsonb, xml, enums, uuid; also bytea, and the fallback for unknown types.

Before: `lookup` chooses the codec by the column's type.
After: `event_encoder` calls it once a value.
Source: PostgreSQL `varlena.c` (text, bytea), `char.c`, `jsonb.c`, `uuid.c`.

The session's client_encoding is UTF8, so text comes as UTF-8 in both modes, as Avro wants it. `text_encoding` is for
databases without an encoding.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.errors import malformed, wrong_size, wrong_text
from cdcd.avro.codecs.registry import ENUM, TypeRegistry, TypeRequest
from cdcd.avro.codecs.text_encoding import TextCodec
from cdcd.avro.codecs.varint import write_bytes, write_long, write_text
from cdcd.errors import BinaryFormatUnsupported

_HYPHEN: Final = 45
_UUID_TEXT_SIZE: Final = 36

# The value of each hexadecimal digit; 255: not one.
_NIBBLES: Final = bytes(int(chr(c), 16) if chr(c) in "0123456789abcdefABCDEF" else 255 for c in range(256))


class Text(TextCodec):
    """text, varchar, bpchar, name, citext, xml, json, enums -> string: the binary form is the text."""

    def __init__(self) -> None:
        super().__init__("string")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_bytes(out, data, at, size)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_bytes(out, data, at, size)
        return True

    def copied_from(self, data: bytes, at: i64, size: i64, is_binary: bool) -> i64:
        return at

    def raw(self, data: bytes, at: i64, size: i64) -> bytes:
        return data[at : at + size]


class TextFallback(Text):
    """A type whose binary form cdcd does not know -> string: PostgreSQL's text. The stream runs in text mode."""

    def __init__(self, type_name: str) -> None:
        super().__init__()
        self.type_name = type_name

    @property
    def has_binary(self) -> bool:
        return False

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raise self._no_binary()

    def copied_from(self, data: bytes, at: i64, size: i64, is_binary: bool) -> i64:
        return -1 if is_binary else at

    def raw(self, data: bytes, at: i64, size: i64) -> bytes:
        raise self._no_binary()

    def _no_binary(self) -> BinaryFormatUnsupported:
        return BinaryFormatUnsupported(
            f"type {self.type_name} has no binary form that cdcd knows: the stream goes on in text mode",
            code="stream-restarted",
        )


class VersionedText(Text):
    """jsonb, ltree, lquery, ltxtquery -> string: the binary form is a version byte, 1, and the text."""

    def __init__(self, type_name: str) -> None:
        super().__init__()
        self.type_name = type_name

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        self._check(data, at, size)
        write_bytes(out, data, at + 1, size - 1)
        return True

    def copied_from(self, data: bytes, at: i64, size: i64, is_binary: bool) -> i64:
        if is_binary:
            self._check(data, at, size)
            return at + 1
        return at

    def raw(self, data: bytes, at: i64, size: i64) -> bytes:
        self._check(data, at, size)
        return data[at + 1 : at + size]

    def _check(self, data: bytes, at: i64, size: i64) -> None:
        if size < 1 or data[at] != 1:
            got = f"version {data[at]}" if size > 0 else "nothing"
            raise malformed(self.type_name, "version 1", got)


class Char(Codec):
    r"""The type "char" (one byte, mostly in the system catalogs) -> string.

    Zero is the empty string. A byte above 127 is not UTF-8: it becomes `\ooo`, as PostgreSQL 16 and later write it.
    In text mode PostgreSQL 14 and 15 convert it like text, if the database is neither in UTF8 nor in SQL_ASCII. Only
    the server knows the way back, so it stays the character.
    """

    def __init__(self) -> None:
        super().__init__("string")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_text(out, self.render(data, at, size))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size == 1:
            write_text(out, self.render(data, at, size))
        elif size == 0 or size == 4 or (size <= 3 and data[at] >= 0xC0):
            # `\ooo`, or before PostgreSQL 16 one character of the database's encoding
            write_bytes(out, data, at, size)
        else:
            raise wrong_text('"char"', "at most one character", size)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 1:
            raise wrong_size('"char"', 1, size)
        byte = int(data[at])
        if byte > 127:
            return f"\\{byte:03o}"
        return chr(byte) if byte else ""


class Uuid(Codec):
    """uuid -> string with logicalType uuid: 36 characters, lower case."""

    def __init__(self) -> None:
        super().__init__({"type": "string", "logicalType": "uuid"})

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 16:
            raise wrong_size("uuid", 16, size)
        write_long(out, _UUID_TEXT_SIZE)
        write_i64_be(out, _hex_of_4(i64(read_i32_be(data, at))))
        out.append(_HYPHEN)
        write_i32_be(out, i32(_hex_of_2(i64(read_i16_be(data, at + 4)))))
        out.append(_HYPHEN)
        write_i32_be(out, i32(_hex_of_2(i64(read_i16_be(data, at + 6)))))
        out.append(_HYPHEN)
        write_i32_be(out, i32(_hex_of_2(i64(read_i16_be(data, at + 8)))))
        out.append(_HYPHEN)
        write_i32_be(out, i32(_hex_of_2(i64(read_i16_be(data, at + 10)))))
        write_i64_be(out, _hex_of_4(i64(read_i32_be(data, at + 12))))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != _UUID_TEXT_SIZE:
            raise wrong_text("uuid", f"{_UUID_TEXT_SIZE} characters", size)
        write_bytes(out, data, at, size)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        out = BytesWriter()
        self.binary(data, at, size, out)
        return out.getvalue()[1:].decode()


class Bytea(Codec):
    r"""bytea -> bytes. Its text is hexadecimal after `\x` (bytea_output = hex)."""

    def __init__(self) -> None:
        super().__init__("bytes")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_bytes(out, data, at, size)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size < 2 or data[at] != 92 or data[at + 1] != 120:
            raise wrong_text("bytea", "hexadecimal after \\x", size)
        write_unhexed(out, data, at + 2, size - 2, "bytea")
        return True

    def copied_from(self, data: bytes, at: i64, size: i64, is_binary: bool) -> i64:
        return at if is_binary else -1

    def render(self, data: bytes, at: i64, size: i64) -> str:
        return "\\x" + data[at : at + size].hex()


class Ewkb(Codec):
    """PostGIS geometry, geography -> bytes: EWKB. Its text is EWKB in hexadecimal, upper case."""

    def __init__(self, type_name: str) -> None:
        # Inside a domain or a composite, only this tells a reader that the text is not that of a bytea.
        super().__init__({"type": "bytes", "pg_type": type_name})
        self.type_name = type_name

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_bytes(out, data, at, size)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_unhexed(out, data, at, size, self.type_name)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        return data[at : at + size].hex().upper()


def write_unhexed(out: BytesWriter, data: bytes, at: i64, size: i64, type_name: str) -> None:
    """Decode the `size` hexadecimal digits at `at`, and append the bytes as Avro bytes."""
    end: i64 = at + size
    if size & 1:
        raise wrong_text(type_name, "an even number of hexadecimal digits", size)
    write_long(out, size >> 1)
    while at < end:
        high: i64 = i64(_NIBBLES[data[at]])
        low: i64 = i64(_NIBBLES[data[at + 1]])
        if high | low > 15:
            raise wrong_text(type_name, "hexadecimal digits", size)
        out.append(u8(high << 4 | low))
        at += 2


def _hex_of_4(value: i64) -> i64:
    """The 8 hexadecimal digits of the low 32 bits, as the 8 ASCII characters of one big-endian word.

    It handles all eight digits together: it spreads the nibbles over the bytes, adds "0" to each, and adds the distance
    from ":" to "a" to those above 9.
    """
    value &= 0xFFFF_FFFF
    value = (value & 0xFFFF_0000) << 16 | value & 0xFFFF
    value = (value & 0x0000_FF00_0000_FF00) << 8 | value & 0x0000_00FF_0000_00FF
    value = (value & 0x00F0_00F0_00F0_00F0) << 4 | value & 0x000F_000F_000F_000F
    above_9: i64 = (value + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101
    return value + 0x3030_3030_3030_3030 + above_9 * 39


def _hex_of_2(value: i64) -> i64:
    """The 4 hexadecimal digits of the low 16 bits, as ASCII."""
    return _hex_of_4(value) & 0xFFFF_FFFF


def fallback(request: TypeRequest) -> Codec:
    """The codec of a type that is not registered: its text."""
    return TextFallback(request.pgtype.qualified)


def register(types: TypeRegistry) -> None:
    """Make text, the types like text, bytea and PostGIS known."""
    types.add_built_in("bytea", 17, lambda _: Bytea())
    types.add_built_in("char", 18, lambda _: Char())
    types.add_built_in("name", 19, lambda _: Text())
    types.add_built_in("text", 25, lambda _: Text())
    types.add_built_in("json", 114, lambda _: Text())
    types.add_built_in("xml", 142, lambda _: Text())
    types.add_built_in("bpchar", 1042, lambda _: Text())
    types.add_built_in("varchar", 1043, lambda _: Text())
    types.add_built_in("uuid", 2950, lambda _: Uuid())
    types.add_built_in("jsonb", 3802, lambda request: VersionedText(request.name))
    types.add_kind(ENUM, lambda _: Text())
    types.add_extension("citext", lambda _: Text())
    types.add_extension("ltree", lambda request: VersionedText(request.name))
    types.add_extension("lquery", lambda request: VersionedText(request.name))
    types.add_extension("ltxtquery", lambda request: VersionedText(request.name))
    types.add_extension("geometry", lambda request: Ewkb(request.name))
    types.add_extension("geography", lambda request: Ewkb(request.name))
