"""Arrays and composites: values made of values.

Before: `lookup` builds one around the codecs of its parts.
After: `event_encoder` calls it once a value. Ranges are next door in `ranges`; the text's quoting rules in `literals`;
what became of a composite type in `composite_changes`.
Source: PostgreSQL `arrayfuncs.c`, `rowtypes.c`: all counts and lengths are big-endian int32, a length of -1 is null.

Where a part is unrepresentable the whole value is: its text then stands in the event.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.base import AvroType, Codec
from cdcd.avro.codecs.composite_changes import CompositeDefinition
from cdcd.avro.codecs.errors import malformed, wrong_text
from cdcd.avro.codecs.length_prefixed import LengthPrefixedReader
from cdcd.avro.codecs.literals import LiteralScanner, quote_element, quote_field
from cdcd.avro.codecs.varint import write_long
from cdcd.errors import DecodeError

_DIMENSIONS_MAX: Final = 6
_NULL_BRANCH: Final = 0
_VALUE_BRANCH: Final = 2  # index 1, zigzag
_FIELDS_MAX: Final = 1664  # MaxTupleAttributeNumber
_OPEN_PARENTHESIS: Final = 40
_CLOSE_PARENTHESIS: Final = 41
_OPEN_BRACE: Final = 123
_CLOSE_BRACE: Final = 125
_COMMA: Final = 44


class Array(Codec):
    """T[] -> array of nullable T. Only one dimension counted from 1, or none at all: Avro has no other arrays."""

    def __init__(self, element: Codec, type_name: str, delimiter: str) -> None:
        super().__init__({"type": "array", "items": ["null", element.schema]})
        self.element = element
        self.type_name = type_name
        self.delimiter = delimiter
        self.delimiter_byte: i64 = ord(delimiter)

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
        if size >= 2 and data[at] == 91 and data[end - 1] == _CLOSE_BRACE:  # [: bounds, which are not all 1
            return False
        if size < 2 or data[at] != _OPEN_BRACE or data[end - 1] != _CLOSE_BRACE:
            raise wrong_text(self.type_name, "elements in braces", size)
        if size == 2:
            out.append(0)
            return True
        if data[at + 1] == _OPEN_BRACE:
            return False
        # The count comes first: walk twice.
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
        """The number of dimensions; whether there are nulls, and the element's type OID, the values show themselves."""
        dimensions: i64 = parts.int4(data)
        if dimensions < 0 or dimensions > _DIMENSIONS_MAX:
            raise malformed(self.type_name, f"0 to {_DIMENSIONS_MAX} dimensions", f"{dimensions}")
        parts.int4(data)
        parts.int4(data)
        return dimensions


class Composite(Codec):
    """A composite type -> record of nullable fields, in the type's order.

    A value may have other fields than the type has in the catalog, see `shapes`: null is written for those that came
    later, and a value whose fields cannot be told is unrepresentable.
    """

    def __init__(self, record_name: str, names: list[str], fields: list[Codec], shape: CompositeDefinition) -> None:
        avro_fields: list[AvroType] = [
            {"name": name, "type": ["null", field.schema], "default": None}
            for name, field in zip(names, fields, strict=True)
        ]
        super().__init__({"type": "record", "name": record_name, "fields": avro_fields})
        self.fields = fields
        self.oids = shape.oids
        self.shape = shape
        self.type_name = shape.type_name

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = LengthPrefixedReader(at, size, self.type_name)
        count: i64 = self._read_count(parts, data)
        known: i64 = len(self.fields)
        if count != known and not self.shape.grew_since(count):
            return False
        i: i64 = 0
        while i < count:
            oid: i64 = parts.int4(data) & 0xFFFF_FFFF
            if oid != self.oids[i]:
                self.shape.check_age()
                return False
            length: i64 = parts.size(data)
            if length < 0:
                out.append(_NULL_BRANCH)
            else:
                out.append(_VALUE_BRANCH)
                if not self.fields[i].binary(data, parts.at, length, out):
                    return False
                parts.skip(length)
            i += 1
        parts.finish()
        while i < known:
            out.append(_NULL_BRANCH)
            i += 1
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        if size < 2 or data[at] != _OPEN_PARENTHESIS or data[end - 1] != _CLOSE_PARENTHESIS:
            raise wrong_text(self.type_name, "fields in parentheses", size)
        known: i64 = len(self.fields)
        if known == 0 and size == 2:
            return True
        items = LiteralScanner(data, at + 1, end, self.type_name)
        count: i64 = 0
        while items.at < end:
            if count > 0 and data[items.at - 1] != _COMMA:
                raise wrong_text(self.type_name, "nothing after the last field", size)
            items.next(_COMMA, _CLOSE_PARENTHESIS)
            if count >= known:
                pass  # only counted
            elif items.size == 0 and not items.quoted:
                out.append(_NULL_BRANCH)
            else:
                out.append(_VALUE_BRANCH)
                if not self._write_field(count, items, out):
                    return False
            items.at += 1
            count += 1
        if data[items.at - 1] != _CLOSE_PARENTHESIS:
            raise wrong_text(self.type_name, "a parenthesis after the last field", size)
        if count != known and not self.shape.grew_since(count):
            return False
        while count < known:
            out.append(_NULL_BRANCH)
            count += 1
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        parts = LengthPrefixedReader(at, size, self.type_name)
        texts = []
        for i in range(int(self._read_count(parts, data))):
            oid: i64 = parts.int4(data) & 0xFFFF_FFFF
            length: i64 = parts.size(data)
            if length < 0:
                texts.append("")
            else:
                field = self.shape.codec_of(i, oid, self.fields)
                texts.append(quote_field(field.render(data, parts.at, length)))
                parts.skip(length)
        parts.finish()
        return "(" + ",".join(texts) + ")"

    def _write_field(self, i: i64, items: LiteralScanner, out: BytesWriter) -> bool:
        try:
            return self.fields[i].text(items.data, items.start, items.size, out)
        except DecodeError:
            # It may be a value of another type, that of an attribute which the type had before or has got since.
            self.shape.check_age()
            if self.shape.dropped:
                return False
            raise

    def _read_count(self, parts: LengthPrefixedReader, data: bytes) -> i64:
        count: i64 = parts.int4(data)
        if count < 0 or count > _FIELDS_MAX:
            raise malformed(self.type_name, f"0 to {_FIELDS_MAX} fields", f"{count}")
        return count
