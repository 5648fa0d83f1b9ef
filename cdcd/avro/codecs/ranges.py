"""Ranges and multiranges -> record { lower, upper, lower_inc, upper_inc, empty }, and array of that record.

Before: `lookup` builds the codec around that of the subtype.
After: `event_encoder` calls it once a value.
Source: PostgreSQL `rangetypes.c` (`range_send`: a byte of flags, then each finite bound with its length),
`multirangetypes.c` (`multirange_send`: a count, then each range with its length).

A null bound in the record means infinite, unless `empty` is true.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.avro_names import avro_name
from cdcd.avro.codecs.base import AvroType, Codec
from cdcd.avro.codecs.errors import malformed, wrong_text
from cdcd.avro.codecs.length_prefixed import LengthPrefixedReader
from cdcd.avro.codecs.literals import LiteralScanner, quote_bound
from cdcd.avro.codecs.registry import MULTIRANGE, RANGE, TypeRegistry, TypeRequest
from cdcd.avro.codecs.varint import write_long
from cdcd.avro.type_forms import RANGE_FIELDS

_EMPTY: Final = 0x01
_LOWER_INCLUSIVE: Final = 0x02
_UPPER_INCLUSIVE: Final = 0x04
_LOWER_INFINITE: Final = 0x08
_UPPER_INFINITE: Final = 0x10

_NULL_BRANCH: Final = 0
_VALUE_BRANCH: Final = 2  # index 1, zigzag

_COMMA: Final = 44
_QUOTE: Final = 34
_BACKSLASH: Final = 92
_OPEN_PARENTHESIS: Final = 40
_CLOSE_PARENTHESIS: Final = 41
_OPEN_BRACKET: Final = 91
_CLOSE_BRACKET: Final = 93
_OPEN_BRACE: Final = 123
_CLOSE_BRACE: Final = 125


class Range(Codec):
    """A range type -> record. Unrepresentable if one of its bounds is."""

    def __init__(self, record_name: str, subtype: Codec, type_name: str) -> None:
        fields: list[AvroType] = [
            {"name": bound, "type": ["null", subtype.schema], "default": None} for bound in RANGE_FIELDS[:2]
        ]
        fields += [{"name": name, "type": "boolean"} for name in RANGE_FIELDS[2:]]
        super().__init__({"type": "record", "name": record_name, "fields": fields}, is_fallible=True)
        self.subtype = subtype
        self.type_name = type_name

    def children(self) -> list[Codec]:
        return [self.subtype]

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        flags: i64 = self._read_flags(data, at, size)
        parts = LengthPrefixedReader(at + 1, size - 1, self.type_name)
        if flags & (_EMPTY | _LOWER_INFINITE):
            out.append(_NULL_BRANCH)
        elif not self._write_bound(parts, data, out):
            return False
        if flags & (_EMPTY | _UPPER_INFINITE):
            out.append(_NULL_BRANCH)
        elif not self._write_bound(parts, data, out):
            return False
        parts.finish()
        out.append(1 if flags & _LOWER_INCLUSIVE else 0)
        out.append(1 if flags & _UPPER_INCLUSIVE else 0)
        out.append(1 if flags & _EMPTY else 0)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        if size == 5 and data[at:end] == b"empty":
            out.write(b"\0\0\0\0\1")
            return True
        if size < 3 or (data[at] != _OPEN_BRACKET and data[at] != _OPEN_PARENTHESIS):
            raise wrong_text(self.type_name, "two bounds in brackets", size)
        items = LiteralScanner(data, at + 1, end, self.type_name)
        items.next(_COMMA, _COMMA)
        if not self._write_bound_text(items, out):
            return False
        items.at += 1
        items.next(_CLOSE_BRACKET, _CLOSE_PARENTHESIS)
        if not self._write_bound_text(items, out):
            return False
        if items.at + 1 != end:
            raise wrong_text(self.type_name, "nothing after the bounds", size)
        out.append(1 if data[at] == _OPEN_BRACKET else 0)
        out.append(1 if data[end - 1] == _CLOSE_BRACKET else 0)
        out.append(0)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        flags: i64 = self._read_flags(data, at, size)
        parts = LengthPrefixedReader(at + 1, size - 1, self.type_name)
        if flags & _EMPTY:
            parts.finish()
            return "empty"
        lower = "" if flags & _LOWER_INFINITE else self._render_bound(parts, data)
        upper = "" if flags & _UPPER_INFINITE else self._render_bound(parts, data)
        parts.finish()
        return f"{'[' if flags & _LOWER_INCLUSIVE else '('}{lower},{upper}{']' if flags & _UPPER_INCLUSIVE else ')'}"

    def _read_flags(self, data: bytes, at: i64, size: i64) -> i64:
        if size < 1:
            raise malformed(self.type_name, "a byte of flags", "nothing")
        flags: i64 = i64(data[at])
        if flags & _EMPTY:
            return _EMPTY
        # An infinite bound is never inclusive.
        if flags & _LOWER_INFINITE:
            flags &= ~_LOWER_INCLUSIVE
        if flags & _UPPER_INFINITE:
            flags &= ~_UPPER_INCLUSIVE
        return flags

    def _write_bound(self, parts: LengthPrefixedReader, data: bytes, out: BytesWriter) -> bool:
        length: i64 = self._bound_size(parts, data)
        out.append(_VALUE_BRANCH)
        if not self.subtype.binary(data, parts.at, length, out):
            return False
        parts.skip(length)
        return True

    def _write_bound_text(self, items: LiteralScanner, out: BytesWriter) -> bool:
        if items.size == 0 and not items.quoted:
            out.append(_NULL_BRANCH)
            return True
        out.append(_VALUE_BRANCH)
        return self.subtype.text(items.data, items.start, items.size, out)

    def _render_bound(self, parts: LengthPrefixedReader, data: bytes) -> str:
        length: i64 = self._bound_size(parts, data)
        text = quote_bound(self.subtype.render(data, parts.at, length))
        parts.skip(length)
        return text

    def _bound_size(self, parts: LengthPrefixedReader, data: bytes) -> i64:
        length: i64 = parts.size(data)
        if length < 0:
            raise malformed(self.type_name, "a bound", "null")
        return length


class Multirange(Codec):
    """A multirange type -> array of the record of its range type."""

    def __init__(self, element: Codec, type_name: str) -> None:
        super().__init__({"type": "array", "items": element.schema}, is_fallible=True)
        self.element = element
        self.type_name = type_name

    def children(self) -> list[Codec]:
        return [self.element]

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = LengthPrefixedReader(at, size, self.type_name)
        count: i64 = self._read_count(parts, data)
        if count > 0:
            write_long(out, count)
        while count > 0:
            length: i64 = self._range_size(parts, data)
            if not self.element.binary(data, parts.at, length, out):
                return False
            parts.skip(length)
            count -= 1
        parts.finish()
        out.append(0)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size - 1
        if size < 2 or data[at] != _OPEN_BRACE or data[end] != _CLOSE_BRACE:
            raise wrong_text(self.type_name, "ranges in braces", size)
        # Avro wants the count first, so walk twice: count, then write.
        count: i64 = 0
        i: i64 = at + 1
        while i < end:
            i = _range_end(data, i, end) + 1
            count += 1
        if count > 0:
            write_long(out, count)
        i = at + 1
        while count > 0:
            stop: i64 = _range_end(data, i, end)
            if not self.element.text(data, i, stop - i, out):
                return False
            i = stop + 1
            count -= 1
        out.append(0)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        parts = LengthPrefixedReader(at, size, self.type_name)
        ranges = []
        for _ in range(int(self._read_count(parts, data))):
            length: i64 = self._range_size(parts, data)
            ranges.append(self.element.render(data, parts.at, length))
            parts.skip(length)
        parts.finish()
        return "{" + ",".join(ranges) + "}"

    def _read_count(self, parts: LengthPrefixedReader, data: bytes) -> i64:
        count: i64 = parts.int4(data)
        if count < 0:
            raise malformed(self.type_name, "a count of ranges", f"{count}")
        return count

    def _range_size(self, parts: LengthPrefixedReader, data: bytes) -> i64:
        length: i64 = parts.size(data)
        if length < 0:
            raise malformed(self.type_name, "a range", "null")
        return length


def _range_end(data: bytes, at: i64, end: i64) -> i64:
    """The end of the range that starts at `at`: after its closing bracket outside quotes, or `end` if there is none."""
    quoted = False
    while at < end:
        byte: i64 = i64(data[at])
        if byte == _BACKSLASH:
            at += 1
        elif byte == _QUOTE:  # a doubled one closes and opens again
            quoted = not quoted
        elif not quoted and (byte == _CLOSE_BRACKET or byte == _CLOSE_PARENTHESIS):
            return at + 1
        at += 1
    return end


def register(types: TypeRegistry) -> None:
    """Make range and multirange types known."""
    types.add_kind(RANGE, _range)
    types.add_kind(MULTIRANGE, _multirange)


def _range(request: TypeRequest) -> Codec | None:
    pgtype = request.pgtype
    if pgtype.element is None:
        return None
    return Range(avro_name(pgtype.qualified), request.part(pgtype.element), pgtype.qualified)


def _multirange(request: TypeRequest) -> Codec | None:
    pgtype = request.pgtype
    return None if pgtype.element is None else Multirange(request.part(pgtype.element), pgtype.qualified)
