"""bit and varbit; point, line, lseg, box, path, polygon and circle.

Before: `lookup` chooses the value by the column's type.
After: `field_writer` calls it once a value. Bits in binary are read through their text. cdcd's stream is in text mode
while a table has a geometric type.
Source: Debezium's `PostgresValueConverter`, `Bits`, `io.debezium.data.geometry`; OGC's well-known binary (WKB).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.errors import wrong_text
from cdcd.debezium.connect_schema import BOOLEAN, BYTES, DOUBLE, INT32, STRING, Schema
from cdcd.debezium.json_text import write_base64, write_double
from cdcd.debezium.values.base import Value

_NUMBER: Final = re.compile(rb"[^(){}<>,\[\]]+")
_POINT: Final = 1
_LINESTRING: Final = 2
_POLYGON: Final = 3

POINT: Final = Schema(
    "struct",
    "io.debezium.data.geometry.Point",
    1,
    "Geometry (POINT)",
    fields=(("x", DOUBLE), ("y", DOUBLE), ("wkb", BYTES.optional), ("srid", INT32.optional)),
)
GEOMETRY: Final = Schema(
    "struct",
    "io.debezium.data.geometry.Geometry",
    2,
    "Geometry",
    is_optional=True,
    fields=(
        ("wkb", BYTES),
        ("srid", INT32.optional),
        ("extensions", Schema("map", is_optional=True, items=STRING)),
    ),
)
LINE: Final = Schema(
    "struct",
    "io.debezium.data.geometry.Line",
    1,
    "Geometry (LINE)",
    is_optional=True,
    fields=(("a", DOUBLE), ("b", DOUBLE), ("c", DOUBLE)),
)
CIRCLE: Final = Schema(
    "struct",
    "io.debezium.data.geometry.Circle",
    1,
    "Geometry (CIRCLE)",
    is_optional=True,
    fields=(("center", POINT), ("radius", DOUBLE)),
)


class OneBit(Value):
    """bit(1), varbit(1) -> boolean. No bit at all is null."""

    def __init__(self) -> None:
        super().__init__(BOOLEAN, b"false")

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 1:
            return False
        out.write(b"true" if data[at] == 49 else b"false")
        return True


class Bits(Value):
    """bit(n), varbit(n) -> bytes, little-endian: the last bit is bit 0. Zeros at the high end are left out."""

    def __init__(self, length: int, *, is_varying: bool = False) -> None:
        """`is_varying`: the length is the largest one."""
        schema = Schema("bytes", "io.debezium.data.Bits", 1, parameters=(("length", str(length)),))
        super().__init__(schema, b'""')
        self.has_near = is_varying

    def is_near(self, text: str) -> bool:
        return self.has_near and text.startswith("0")

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = data[at : at + size]
        if raw.strip(b"01"):
            raise wrong_text("bit", "digits 0 and 1", size)
        n = int(raw, 2) if raw else 0
        bits = n.to_bytes((n.bit_length() + 7) // 8, "little")
        write_base64(out, bits, 0, len(bits))
        return True


class Shape(Value):
    """A geometric type; subclasses write the numbers of its text, in their order."""

    def __init__(self, schema: Schema, fallback: str) -> None:
        super().__init__(schema)
        out, text = BytesWriter(), fallback.encode()
        self.text(text, 0, len(text), out)
        self.fallback = out.getvalue()

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = data[at : at + size]
        try:
            numbers = [float(number) for number in _NUMBER.findall(raw)]
            self.write(numbers, raw, out)
        except (ValueError, IndexError):
            raise wrong_text("a geometric type", "numbers in brackets", size) from None
        return True

    def write(self, numbers: list[float], raw: bytes, out: BytesWriter) -> None:
        """Append the shape of these numbers; `raw`: the text that has them."""
        raise NotImplementedError


class Point(Shape):
    """point -> Point."""

    def __init__(self) -> None:
        super().__init__(POINT, "(0,0)")

    def write(self, numbers: list[float], raw: bytes, out: BytesWriter) -> None:
        write_point(out, numbers[0], numbers[1])


class Line(Shape):
    """line -> Line."""

    def __init__(self) -> None:
        super().__init__(LINE, "{0,1,0}")

    def write(self, numbers: list[float], raw: bytes, out: BytesWriter) -> None:
        out.write(b'{"a":')
        write_double(out, numbers[0])
        out.write(b',"b":')
        write_double(out, numbers[1])
        out.write(b',"c":')
        write_double(out, numbers[2])
        out.write(b"}")


class Circle(Shape):
    """circle -> Circle."""

    def __init__(self) -> None:
        super().__init__(CIRCLE, "<(0,0),0>")

    def write(self, numbers: list[float], raw: bytes, out: BytesWriter) -> None:
        out.write(b'{"center":')
        write_point(out, numbers[0], numbers[1])
        out.write(b',"radius":')
        write_double(out, numbers[2])
        out.write(b"}")


class Box(Shape):
    """box -> Geometry: the ring through its corners, which begins with the first corner of the text."""

    def __init__(self) -> None:
        super().__init__(GEOMETRY, "(0,0),(1,1)")

    def write(self, numbers: list[float], raw: bytes, out: BytesWriter) -> None:
        x0, y0, x1, y1 = numbers[:4]
        write_geometry(out, _POLYGON, [x0, y0, x0, y1, x1, y1, x1, y0, x0, y0], b'"type":"box"')


class Segment(Shape):
    """lseg -> Geometry: a line string."""

    def __init__(self) -> None:
        super().__init__(GEOMETRY, "[(0,0),(0,0)]")

    def write(self, numbers: list[float], raw: bytes, out: BytesWriter) -> None:
        write_geometry(out, _LINESTRING, numbers, b'"type":"lseg"')


class Path(Shape):
    """path -> Geometry: a line string, and whether it is closed."""

    def __init__(self) -> None:
        super().__init__(GEOMETRY, "[(0,0)]")

    def write(self, numbers: list[float], raw: bytes, out: BytesWriter) -> None:
        closed = b"true" if raw[:1] == b"(" else b"false"
        write_geometry(out, _LINESTRING, numbers, b'"type":"path","closed":"' + closed + b'"')


class Polygon(Shape):
    """polygon -> Geometry: a ring, which is closed."""

    def __init__(self) -> None:
        super().__init__(GEOMETRY, "((0,0))")

    def write(self, numbers: list[float], raw: bytes, out: BytesWriter) -> None:
        ring = numbers if numbers[:2] == numbers[-2:] else [*numbers, *numbers[:2]]
        write_geometry(out, _POLYGON, ring, b'"type":"polygon"')


def write_point(out: BytesWriter, x: float, y: float) -> None:
    """Append the struct Point."""
    out.write(b'{"x":')
    write_double(out, x)
    out.write(b',"y":')
    write_double(out, y)
    out.write(b',"wkb":')
    wkb = struct.pack("<BIdd", 1, _POINT, x, y)
    write_base64(out, wkb, 0, len(wkb))
    out.write(b',"srid":null}')


def write_geometry(out: BytesWriter, kind: int, numbers: Sequence[float], extensions: bytes) -> None:
    """Append the struct Geometry of the points x, y, x, y, ...; `extensions`: the pairs of this map as JSON."""
    head = struct.pack("<BI", 1, kind) + (struct.pack("<I", 1) if kind == _POLYGON else b"")
    wkb = head + struct.pack(f"<I{len(numbers)}d", len(numbers) // 2, *numbers)
    out.write(b'{"wkb":')
    write_base64(out, wkb, 0, len(wkb))
    out.write(b',"srid":null,"extensions":{' + extensions + b"}}")
