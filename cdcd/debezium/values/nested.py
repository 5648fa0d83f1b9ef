"""Arrays and hstore.

Before: `lookup` builds an array around its element.
After: `field_writer` calls it once a value. `avro.codecs` has the rules for PostgreSQL's text of both.
Source: Debezium's `PostgresValueConverter` (arrays, hstore); Java's HashMap and String.hashCode.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.errors import malformed, wrong_text
from cdcd.avro.codecs.length_prefixed import LengthPrefixedReader
from cdcd.avro.codecs.literals import LiteralScanner
from cdcd.debezium.connect_schema import STRING, Schema
from cdcd.debezium.json_text import quoted
from cdcd.debezium.modes import HstoreMode
from cdcd.debezium.values.base import Value, named

_COMMA: Final = 44
_EQUALS: Final = 61
_OPEN_BRACE: Final = 123
_CLOSE_BRACE: Final = 125
_DIMENSIONS_MAX: Final = 6
_TABLE_MIN: Final = 16


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

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        if size >= 2 and data[at] == 91:  # explicit bounds
            while at < end and data[at] != _EQUALS:
                at += 1
            at += 1
        if end - at < 2 or data[at] != _OPEN_BRACE or data[end - 1] != _CLOSE_BRACE:
            raise wrong_text(self.type_name, "elements in braces", size)
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
        dimensions: i64 = parts.int4(data)
        if dimensions < 0 or dimensions > _DIMENSIONS_MAX:
            raise malformed(self.type_name, f"0 to {_DIMENSIONS_MAX} dimensions", f"{dimensions}")
        parts.int4(data)
        parts.int4(data)
        if dimensions == 0:
            parts.finish()
            out.write(b"[]")
            return True
        count: i64 = parts.int4(data)
        if count < 0:
            raise malformed(self.type_name, "a count of elements", f"{count}")
        parts.int4(data)
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

    def _lose(self, mark: i64, out: BytesWriter) -> bool:
        """Write null for an element that cannot be held, if the array is not lost with it."""
        if self.is_lost or not self.takes_nulls:
            return False
        out.truncate(mark)
        out.write(b"null")
        return True


class UnknownArray(Value):
    """An array of what Debezium does not know: it has a field for it, and no values but the empty array."""

    def __init__(self, element: Schema) -> None:
        super().__init__(Schema("array", items=element), b"[]")

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


def hash_map_order(keys: list[str]) -> list[str]:
    """Return the keys in the order in which Java's HashMap has them, if none of its buckets has more than eight."""
    capacity = _TABLE_MIN
    while len(keys) > capacity * 3 // 4:
        capacity *= 2
    return sorted(keys, key=lambda key: _spread_hash(key) & (capacity - 1))


def _spread_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (code * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return code ^ code >> 16
