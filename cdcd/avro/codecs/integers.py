"""Integers and booleans: int2, int4, int8, oid, xid, cid, xid8, bool.

Before: `lookup` chooses the codec by the column's type.
After: `event_encoder` calls it once a value.
Source: PostgreSQL `int.c`, `int8.c`, `oid.c`, `xid.c`, `bool.c`: the `*send` functions, all big-endian.
"""

from __future__ import annotations

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64, u8

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.digits import read_int
from cdcd.avro.codecs.errors import malformed, wrong_size, wrong_text
from cdcd.avro.codecs.registry import TypeRegistry
from cdcd.avro.codecs.varint import write_bytes, write_long, write_text


class Int2(Codec):
    """smallint -> int."""

    def __init__(self) -> None:
        super().__init__("int")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 2:
            raise wrong_size("int2", 2, size)
        write_long(out, i64(read_i16_be(data, at)))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        n: i64 = read_int(data, at, size, "int2")
        if n < -0x8000 or n > 0x7FFF:
            raise wrong_text("int2", "a decimal integer of its range", size)
        write_long(out, n)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 2:
            raise wrong_size("int2", 2, size)
        return str(read_i16_be(data, at))


class Int4(Codec):
    """integer -> int."""

    def __init__(self) -> None:
        super().__init__("int")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 4:
            raise wrong_size("int4", 4, size)
        write_long(out, i64(read_i32_be(data, at)))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        n: i64 = read_int(data, at, size, "int4")
        if n < -0x8000_0000 or n > 0x7FFF_FFFF:
            raise wrong_text("int4", "a decimal integer of its range", size)
        write_long(out, n)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 4:
            raise wrong_size("int4", 4, size)
        return str(read_i32_be(data, at))


class Int8(Codec):
    """bigint -> long."""

    def __init__(self) -> None:
        super().__init__("long")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 8:
            raise wrong_size("int8", 8, size)
        write_long(out, read_i64_be(data, at))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_long(out, read_int(data, at, size, "int8"))
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 8:
            raise wrong_size("int8", 8, size)
        return str(read_i64_be(data, at))


class Unsigned4(Codec):
    """oid, xid, cid -> long. They are unsigned 32-bit integers, too large for an Avro int."""

    def __init__(self, type_name: str) -> None:
        super().__init__("long")
        self.type_name = type_name

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 4:
            raise wrong_size(self.type_name, 4, size)
        write_long(out, i64(read_i32_be(data, at)) & 0xFFFF_FFFF)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        n: i64 = read_int(data, at, size, self.type_name)
        if n < 0 or n > 0xFFFF_FFFF:
            raise wrong_text(self.type_name, "an unsigned 32-bit integer", size)
        write_long(out, n)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 4:
            raise wrong_size(self.type_name, 4, size)
        return str(i64(read_i32_be(data, at)) & 0xFFFF_FFFF)


class Xid8(Codec):
    """xid8 -> string of its decimal digits: an Avro long is signed, and would lose the upper half of its range.

    No server reaches that half, but whoever may INSERT may write such a value. A key column holds it, too.
    """

    def __init__(self) -> None:
        super().__init__("string")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_text(out, self.render(data, at, size))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        digits = data[at : at + size]
        if size > 20 or not digits.isdigit() or int(digits) >= 2**64:
            raise wrong_text("xid8", "an unsigned 64-bit integer", size)
        write_bytes(out, data, at, size)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 8:
            raise wrong_size("xid8", 8, size)
        return str(int.from_bytes(data[at : at + 8], "big"))


class Bool(Codec):
    """boolean -> boolean. Its text in the stream is `t` or `f` (only a cast to text gives `true` and `false`)."""

    def __init__(self) -> None:
        super().__init__("boolean")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 1:
            raise wrong_size("bool", 1, size)
        value: i64 = i64(data[at])
        if value > 1:
            raise malformed("bool", "a byte 0 or 1", "another byte")
        out.append(u8(value))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 1 or (data[at] != 116 and data[at] != 102):
            raise wrong_text("bool", "t or f", size)
        out.append(1 if data[at] == 116 else 0)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 1:
            raise wrong_size("bool", 1, size)
        return "t" if data[at] else "f"


def register(types: TypeRegistry) -> None:
    """Make integers and booleans known."""
    types.add_built_in("bool", 16, lambda _: Bool())
    types.add_built_in("int8", 20, lambda _: Int8())
    types.add_built_in("int2", 21, lambda _: Int2())
    types.add_built_in("int4", 23, lambda _: Int4())
    types.add_built_in("oid", 26, lambda request: Unsigned4(request.name))
    types.add_built_in("xid", 28, lambda request: Unsigned4(request.name))
    types.add_built_in("cid", 29, lambda request: Unsigned4(request.name))
    types.add_built_in("xid8", 5069, lambda _: Xid8())
