"""Arrays -> Avro array of nullable elements.

Before: `lookup` builds the codec around that of the element.
After: `event_encoder` calls it once a value. `literals` has the rules for quoted text.
Source: PostgreSQL `arrayfuncs.c` (`array_send`, `array_out`): all counts and lengths are big-endian int32; a length of
-1 is null.

An array with an unrepresentable element is unrepresentable: the event then has the text of the whole array.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.errors import malformed, wrong_text
from cdcd.avro.codecs.length_prefixed import LengthPrefixedReader
from cdcd.avro.codecs.literals import LiteralScanner, quote_element
from cdcd.avro.codecs.registry import ARRAY, TypeRegistry, TypeRequest
from cdcd.avro.codecs.varint import write_long

_DIMENSIONS_MAX: Final = 6
_NULL_BRANCH: Final = 0
_VALUE_BRANCH: Final = 2  # index 1, zigzag
_OPEN_BRACE: Final = 123
_CLOSE_BRACE: Final = 125


class Array(Codec):
    """T[] -> array of nullable T. Arrays with several dimensions or another lower bound than 1 are unrepresentable."""

    def __init__(self, element: Codec, type_name: str, delimiter: str) -> None:
        schema: dict[str, object] = {"type": "array", "items": ["null", element.schema]}
        if delimiter != ",":  # a reader of a domain over an array, or of a composite, does not know the element's type
            schema["pg_delimiter"] = delimiter
        super().__init__(schema, is_fallible=True)
        self.element = element
        self.type_name = type_name
        self.delimiter = delimiter
        self.delimiter_byte: i64 = ord(delimiter)

    def children(self) -> list[Codec]:
        return [self.element]

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = LengthPrefixedReader(at, size, self.type_name)
        dimensions: i64 = self._read_header(parts, data)
        if dimensions == 0:
            parts.finish()
            out.append(0)
            return True
        count: i64 = parts.int4(data)
        if parts.int4(data) != 1 or dimensions > 1:
            return False
        if count < 0:
            raise malformed(self.type_name, "a count of elements", f"{count}")
        write_long(out, count)
        i: i64 = 0
        while i < count:
            length: i64 = parts.size(data)
            if length < 0:
                out.append(_NULL_BRANCH)
            else:
                out.append(_VALUE_BRANCH)
                if not self.element.binary(data, parts.at, length, out):
                    return False
                parts.skip(length)
            i += 1
        parts.finish()
        if count > 0:
            out.append(0)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        # the text starts with explicit bounds, so not all of them are 1
        if size >= 2 and data[at] == 91 and data[end - 1] == _CLOSE_BRACE:
            return False
        if size < 2 or data[at] != _OPEN_BRACE or data[end - 1] != _CLOSE_BRACE:
            raise wrong_text(self.type_name, "elements in braces", size)
        if size == 2:
            out.append(0)
            return True
        if data[at + 1] == _OPEN_BRACE:
            return False
        # Avro wants the count first, so walk twice: count, then write.
        items = LiteralScanner(data, at + 1, end, self.type_name)
        count: i64 = 0
        while True:
            items.next(self.delimiter_byte, _CLOSE_BRACE)
            count += 1
            items.at += 1
            if items.at == end:
                break
            if data[items.at - 1] == _CLOSE_BRACE:
                raise wrong_text(self.type_name, "elements in braces", size)
        write_long(out, count)
        items = LiteralScanner(data, at + 1, end, self.type_name)
        while count > 0:
            items.next(self.delimiter_byte, _CLOSE_BRACE)
            if items.is_bare(b"NULL"):
                out.append(_NULL_BRANCH)
            else:
                out.append(_VALUE_BRANCH)
                if not self.element.text(items.data, items.start, items.size, out):
                    return False
            items.at += 1
            count -= 1
        out.append(0)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        parts = LengthPrefixedReader(at, size, self.type_name)
        dimensions = int(self._read_header(parts, data))
        bounds = []
        for _ in range(dimensions):
            count = int(parts.int4(data))
            lower = int(parts.int4(data))
            if count < 0:
                raise malformed(self.type_name, "a count of elements", f"{count}")
            bounds.append((count, lower))
        if not bounds or any(count == 0 for count, _ in bounds):
            parts.finish()
            return "{}"
        text = self._render_dimension(parts, data, [count for count, _ in bounds])
        parts.finish()
        if any(lower != 1 for _, lower in bounds):
            return "".join(f"[{lower}:{lower + count - 1}]" for count, lower in bounds) + "=" + text
        return text

    def _render_dimension(self, parts: LengthPrefixedReader, data: bytes, counts: list[int]) -> str:
        if len(counts) > 1:
            inner = [self._render_dimension(parts, data, counts[1:]) for _ in range(counts[0])]
            return "{" + self.delimiter.join(inner) + "}"
        elements = []
        for _ in range(counts[0]):
            length: i64 = parts.size(data)
            if length < 0:
                elements.append("NULL")
            else:
                elements.append(quote_element(self.element.render(data, parts.at, length), self.delimiter))
                parts.skip(length)
        return "{" + self.delimiter.join(elements) + "}"

    def _read_header(self, parts: LengthPrefixedReader, data: bytes) -> i64:
        """The number of dimensions. The other two fields (has nulls, element type OID) are not needed."""
        dimensions: i64 = parts.int4(data)
        if dimensions < 0 or dimensions > _DIMENSIONS_MAX:
            raise malformed(self.type_name, f"0 to {_DIMENSIONS_MAX} dimensions", f"{dimensions}")
        parts.int4(data)
        parts.int4(data)
        return dimensions


def register(types: TypeRegistry) -> None:
    """Make true arrays known."""
    types.add_kind(ARRAY, _array)


def _array(request: TypeRequest) -> Codec | None:
    pgtype = request.pgtype
    if pgtype.element is None:
        return None
    return Array(request.part(pgtype.element, request.typmod), pgtype.qualified, pgtype.element.delimiter)
