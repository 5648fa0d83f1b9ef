"""Arrays and hstore.

Before: `lookup` builds an array around its element.
After: `field_writer` calls it once a value. `avro.codecs` has the rules for PostgreSQL's text of both.
Source: Debezium's `PostgresValueConverter` (arrays, hstore).
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.avro.codecs.base import Transcoder
from cdcd.avro.codecs.errors import malformed, wrong_text
from cdcd.avro.codecs.length_prefixed import LengthPrefixedReader
from cdcd.avro.codecs.literals import LiteralScanner
from cdcd.avro.codecs.varint import write_long
from cdcd.debezium.avro_data import branch_of_value
from cdcd.debezium.connect_schema import STRING, Schema
from cdcd.debezium.java_maps import hash_map_order
from cdcd.debezium.json_text import quoted
from cdcd.debezium.modes import HstoreMode
from cdcd.debezium.values.base import Value, named

_COMMA: Final = 44
_EQUALS: Final = 61
_OPEN_BRACE: Final = 123
_CLOSE_BRACE: Final = 125
_DIMENSIONS_MAX: Final = 6


class Array(Value):
    """T[] -> array. Lower bounds are lost; of several dimensions only the count of the outer one stays, as nulls."""

    def __init__(
        self, element: Value, delimiter: str, type_name: str, placeholder: bytes, *, takes_nulls: bool, is_lost: bool
    ) -> None:
        """`takes_nulls`: elements may be null; else a null makes the whole array null.

        `is_lost`: an element that cannot be held makes the whole array null, else only itself.
        """
        items = element.schema.optional if takes_nulls else element.schema
        super().__init__(Schema("array", items=items), b"[]", placeholder)
        self.element = element
        self.delimiter: i64 = ord(delimiter)
        self.type_name = type_name
        self.takes_nulls = takes_nulls
        self.is_lost = is_lost
        self.has_near = True

    def avro(self) -> Transcoder:
        return ArrayInAvro(self)

    def lost(self) -> tuple[str, str]:
        what, cure = self.element.lost()
        return f"a second dimension{what and ', and of elements: '}{what}", cure

    def is_near(self, text: str) -> bool:
        raw = text.encode()
        end: i64 = len(raw)
        if raw[:1] == b"[" or raw[1:2] == b"{":  # bounds, and several dimensions
            return True
        items = LiteralScanner(raw, 1, end, self.type_name)
        scratch = BytesWriter()
        while end > 2 and items.at < end:
            items.next(self.delimiter, _CLOSE_BRACE)
            if not items.is_bare(b"NULL"):
                scratch.truncate(0)
                if not self.element.text(items.data, items.start, items.size, scratch):
                    return True
                if self.element.has_near and self.element.is_near(_item(items)):
                    return True
            items.at += 1
        return False

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        at = self.begin_of_text(data, at, end)
        if end - at == 2:
            out.write(b"[]")
            return True
        if data[at + 1] == _OPEN_BRACE:
            return _write_nulls(_rows(data[at + 1 : end - 1]), out)
        items = LiteralScanner(data, at + 1, end, self.type_name)
        out.append(91)
        is_first = True
        while items.at < end:
            items.next(self.delimiter, _CLOSE_BRACE)
            if not is_first:
                out.append(_COMMA)
            is_first = False
            if items.is_bare(b"NULL"):
                if not self.takes_nulls:
                    return False
                out.write(b"null")
            else:
                mark = len(out)
                if not self.element.text(items.data, items.start, items.size, out) and not self._lose(mark, out):
                    return False
            items.at += 1
        out.append(93)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = LengthPrefixedReader(at, size, self.type_name)
        count, dimensions = self.begin_of_binary(data, parts)
        if dimensions > 1:
            return _write_nulls(int(count), out)
        out.append(91)
        i: i64 = 0
        while i < count:
            if i > 0:
                out.append(_COMMA)
            length: i64 = parts.size(data)
            if length < 0:
                if not self.takes_nulls:
                    return False
                out.write(b"null")
            else:
                mark = len(out)
                if not self.element.binary(data, parts.at, length, out) and not self._lose(mark, out):
                    return False
                parts.skip(length)
            i += 1
        parts.finish()
        out.append(93)
        return True

    def begin_of_text(self, data: bytes, at: i64, end: i64) -> i64:
        """Where the brace before the elements is."""
        size: i64 = end - at
        if size >= 2 and data[at] == 91:  # explicit bounds
            while at < end and data[at] != _EQUALS:
                at += 1
            at += 1
        if end - at < 2 or data[at] != _OPEN_BRACE or data[end - 1] != _CLOSE_BRACE:
            raise wrong_text(self.type_name, "elements in braces", size)
        return at

    def begin_of_binary(self, data: bytes, parts: LengthPrefixedReader) -> tuple[i64, i64]:
        """Read what stands before the elements: the size of the outer dimension, and the number of dimensions."""
        dimensions: i64 = parts.int4(data)
        if dimensions < 0 or dimensions > _DIMENSIONS_MAX:
            raise malformed(self.type_name, f"0 to {_DIMENSIONS_MAX} dimensions", f"{dimensions}")
        parts.int4(data)
        parts.int4(data)
        if dimensions == 0:
            return 0, 0
        count: i64 = parts.int4(data)
        if count < 0:
            raise malformed(self.type_name, "a count of elements", f"{count}")
        parts.int4(data)
        return count, dimensions

    def _lose(self, mark: i64, out: BytesWriter) -> bool:
        """Write null for an element that cannot be held, if the array is not lost with it."""
        if self.is_lost or not self.takes_nulls:
            return False
        out.truncate(mark)
        out.write(b"null")
        return True


class ArrayInAvro(Transcoder):
    """The same array: the count of its elements, the elements, and 0. An element that may be null has a branch."""

    def __init__(self, value: Array) -> None:
        self.value = value
        self.element = value.element.avro()
        self.branch: i64 = branch_of_value(value.schema.items or value.schema)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        at = self.value.begin_of_text(data, at, end)
        if end - at == 2:
            out.append(0)
            return True
        if data[at + 1] == _OPEN_BRACE:
            return self._write_nulls(_rows(data[at + 1 : end - 1]), out)
        delimiter = self.value.delimiter
        items = LiteralScanner(data, at + 1, end, self.value.type_name)
        count: i64 = 0
        while items.at < end:
            items.next(delimiter, _CLOSE_BRACE)
            items.at += 1
            count += 1
        write_long(out, count)
        items = LiteralScanner(data, at + 1, end, self.value.type_name)
        while items.at < end:
            items.next(delimiter, _CLOSE_BRACE)
            if items.is_bare(b"NULL"):
                if self.branch < 0:
                    return False
                out.append(0)
            else:
                mark = self._begin(out)
                if not self.element.text(items.data, items.start, items.size, out) and not self._lose(mark, out):
                    return False
            items.at += 1
        out.append(0)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = LengthPrefixedReader(at, size, self.value.type_name)
        count, dimensions = self.value.begin_of_binary(data, parts)
        if dimensions > 1:
            return self._write_nulls(count, out)
        if count > 0:
            write_long(out, count)
        i: i64 = 0
        while i < count:
            length: i64 = parts.size(data)
            if length < 0:
                if self.branch < 0:
                    return False
                out.append(0)
            else:
                mark = self._begin(out)
                if not self.element.binary(data, parts.at, length, out) and not self._lose(mark, out):
                    return False
                parts.skip(length)
            i += 1
        parts.finish()
        out.append(0)
        return True

    def _begin(self, out: BytesWriter) -> i64:
        """Begin an element that is not null; returns where."""
        mark = len(out)
        if self.branch >= 0:
            out.append(u8(self.branch))
        return mark

    def _lose(self, mark: i64, out: BytesWriter) -> bool:
        """Write null for an element that cannot be held, if the array is not lost with it."""
        if self.value.is_lost or self.branch < 0:
            return False
        out.truncate(mark)
        out.append(0)
        return True

    def _write_nulls(self, count: i64, out: BytesWriter) -> bool:
        if self.branch < 0:
            return False
        write_long(out, count)
        while count > 0:
            out.append(0)
            count -= 1
        out.append(0)
        return True


class UnknownArray(Value):
    """An array of what Debezium does not know: it has a field for it, and no values but the empty array."""

    def __init__(self, element: Schema) -> None:
        super().__init__(Schema("array", items=element), b"[]")

    def lost(self) -> tuple[str, str]:
        return "all elements", ""

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 2:
            return False
        out.write(b"[]")
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if LengthPrefixedReader(at, size, "array").int4(data) != 0:
            return False
        out.write(b"[]")
        return True


def _rows(text: bytes) -> int:
    """How many parts the outer dimension of an array has, by the text inside its braces."""
    depth, count, is_quoted, is_escaped = 0, 1, False, False
    for byte in text:
        if is_escaped:
            is_escaped = False
        elif byte == 92:
            is_escaped = True
        elif byte == 34:
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += (byte == _OPEN_BRACE) - (byte == _CLOSE_BRACE)
            count += byte == _COMMA and depth == 0
    return count


def _write_nulls(count: int, out: BytesWriter) -> bool:
    out.write(b"[" + b",".join([b"null"] * count) + b"]")
    return True


class Hstore(Value):
    """hstore -> JSON in a string, or a map; in the order of Java's HashMap, which consumers may have seen."""

    def __init__(self, mode: HstoreMode, placeholder: str) -> None:
        self.is_map = mode == "map"
        schema = named("io.debezium.data.Json")
        if self.is_map:
            schema = Schema("map", items=STRING.optional)
        super().__init__(schema, b"{}" if self.is_map else b'"{}"')
        self.placeholder = self._shown({placeholder: placeholder})

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        pairs: dict[str, str | None] = {}
        # Append a comma, so that the last pair ends like all others.
        items = LiteralScanner(data[at : at + size] + b",", 0, size + 1, "hstore")
        while size > 0 and items.at <= size:
            items.next(_EQUALS, _EQUALS)
            if not items.quoted or items.at + 2 > size:
                raise wrong_text("hstore", '"key"=>"value"', size)
            key = _item(items)
            items.at += 2
            items.next(_COMMA, _COMMA)
            pairs[key] = None if items.is_bare(b"NULL") else _item(items)
            items.at += 2  # a comma and a blank
        out.write(self._shown(pairs))
        return True

    def _shown(self, pairs: dict[str, str | None]) -> bytes:
        order = hash_map_order(list(pairs))
        shown = (quoted(key) + b":" + _or_null(pairs[key]) for key in order)
        if self.is_map:
            return b"{" + b",".join(shown) + b"}"
        inner = ",".join(f"{_java_quoted(key)}:{_java_quoted(pairs[key])}" for key in order)
        return quoted("{" + inner + "}")


def _item(items: LiteralScanner) -> str:
    return items.data[items.start : items.start + items.size].decode()


def _java_quoted(text: str | None) -> str:
    """The text as Jackson writes it into a Java string: without escapes for what lies beyond the BMP."""
    if text is None:
        return "null"
    return '"' + "".join(char if char > "\uffff" else quoted(char)[1:-1].decode() for char in text) + '"'


def _or_null(text: str | None) -> bytes:
    return b"null" if text is None else quoted(text)
