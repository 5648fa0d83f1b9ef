"""Chooses the value of a column.

Before: `source.catalog` describes the type as a `PgType`.
After: `event_encoder` asks for the values of a relation's columns. None: Debezium's events have no such column.
Source: Debezium's `PostgresValueConverter` and `PostgresSchema`.
"""

from __future__ import annotations

from hashlib import md5
from uuid import UUID

from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.codecs.registry import ENUM
from cdcd.avro.codecs.text import Char as CharCodec
from cdcd.avro.codecs.text_encoding import EscapingColumn
from cdcd.debezium.connect_schema import STRING, Schema
from cdcd.debezium.json_text import quoted
from cdcd.debezium.modes import Modes
from cdcd.debezium.values.base import ByText, Escaped, Null, Value, named
from cdcd.debezium.values.decimals import Money, decimal_value
from cdcd.debezium.values.intervals import Interval
from cdcd.debezium.values.nested import Array, Hstore, UnknownArray
from cdcd.debezium.values.scalars import (
    Bool,
    Bytea,
    Bytes,
    Float4,
    Float8,
    Int2,
    Int4,
    Int8,
    Oid,
    Text,
    Uuid,
    VersionedText,
)
from cdcd.debezium.values.shapes import Bits, Box, Circle, Line, OneBit, Path, Point, Polygon, Segment
from cdcd.debezium.values.temporal import Date, Time, Timestamp, ZonedTimestamp, zoned_time
from cdcd.source.pg_types import DOMAIN, PgType

_TEXTS = {
    "text": "", "varchar": "", "bpchar": "", "name": "", "inet": "", "cidr": "", "macaddr": "", "macaddr8": "",
    "int4range": "", "int8range": "", "numrange": "", "tsrange": "", "tstzrange": "", "daterange": "",
    "json": "io.debezium.data.Json", "xml": "io.debezium.data.Xml", "tsvector": "io.debezium.data.Tsvector",
}  # fmt: skip
"""Types whose value is PostgreSQL's text, with the names of their schemas."""
_OF_EXTENSIONS = {
    "citext": "", "isbn": "", "isbn13": "", "issn": "", "issn13": "", "ismn": "", "ismn13": "", "ean13": "", "upc": "",
    "ltree": "io.debezium.data.Ltree",
}  # fmt: skip
_NUMBERS = {
    "bool": Bool, "int2": Int2, "int4": Int4, "int8": Int8, "oid": Oid, "float4": Float4, "float8": Float8
}  # fmt: skip
_TEXT_IN_BINARY = frozenset({"text", "varchar", "bpchar", "name", "json", "xml", "citext"})
_SHAPES = {
    "point": Point, "line": Line, "lseg": Segment, "box": Box, "path": Path, "polygon": Polygon, "circle": Circle
}  # fmt: skip
_ARRAYS = frozenset({
    "int2", "int4", "int8", "oid", "text", "varchar", "bpchar", "char", "numeric", "float4", "float8", "bool", "date",
    "time", "timetz", "timestamp", "timestamptz", "inet", "cidr", "macaddr", "macaddr8", "int4range", "int8range",
    "numrange", "tsrange", "tstzrange", "daterange", "uuid", "json", "jsonb", "bytea", "citext", "ltree", "hstore",
})  # fmt: skip
"""The elements of arrays for which Debezium has an array of optional elements."""
_NO_ARRAYS = frozenset({"money", "name", "interval", "varbit", "xml", "point"})
_ONE_TEXT = frozenset({"text", "varchar", "bpchar", "json", "jsonb"})
_BITS_MAX = 2_147_483_647


class ValueLookup:
    """Makes the values of columns, by the modes and the database's encoding."""

    def __init__(self, modes: Modes, options: TypeOptions) -> None:
        self._modes = modes
        self.options = options

    def value(self, pgtype: PgType, typmod: int) -> Value | None:
        """The value of a column of this type. None: events have no such column."""
        while pgtype.kind == DOMAIN and pgtype.base is not None:
            pgtype, typmod = pgtype.base, pgtype.base_typmod
        codec = codec_for(pgtype, typmod, self.options)
        value = self._value(pgtype, typmod)
        if value is None and self._modes.unknown_types and not _is_left_out(pgtype):
            value = self._unknown(pgtype)
        if value is None or isinstance(value, Null) or not isinstance(codec, EscapingColumn):
            return value
        return Escaped(value, codec)

    def lost(self, pgtype: PgType, typmod: int) -> tuple[str, str]:
        """As Value has it. A column that events do not have loses all its values."""
        value = self.value(pgtype, typmod)
        if value is not None:
            return value.lost()
        while pgtype.kind == DOMAIN and pgtype.base is not None:
            pgtype = pgtype.base
        cure = "" if pgtype.is_array else "include_unknown_datatypes = true"
        return f"all: events do not have columns of type {pgtype.name}", cure

    def _unknown(self, pgtype: PgType) -> Value:
        if pgtype.is_array:
            items = Bytes(self._modes.binary, self._modes.placeholder).schema
            return UnknownArray(items)
        codec = codec_for(pgtype, -1, self.options)
        return ByText(Bytes(self._modes.binary, self._modes.placeholder), codec)

    def _value(self, pgtype: PgType, typmod: int) -> Value | None:
        if pgtype.kind == ENUM:
            parameters = (("allowed", ",".join(pgtype.labels)),)
            return Text(Schema("string", "io.debezium.data.Enum", 1, parameters=parameters), self._modes.placeholder)
        if pgtype.is_array and pgtype.element is not None:
            return self._array(pgtype, pgtype.element, typmod)
        if pgtype.schema == "pg_catalog":
            return self._built_in(pgtype, typmod)
        return self._of_extension(pgtype)

    def _built_in(self, pgtype: PgType, typmod: int, *, is_element: bool = False) -> Value | None:
        modes, name, placeholder = self._modes, pgtype.name, self._modes.placeholder
        if name in _NUMBERS:
            return _NUMBERS[name]()
        if name in _TEXTS:
            value = Text(named(_TEXTS[name]) if _TEXTS[name] else STRING, placeholder)
            return value if name in _TEXT_IN_BINARY else self._by_text(value, pgtype)
        if name in _SHAPES:
            return _SHAPES[name]()
        if name == "char":
            return ByText(Text(STRING, placeholder), CharCodec())
        if name == "uuid":
            return Uuid(named("io.debezium.data.Uuid"), placeholder)
        if name == "jsonb":
            return VersionedText(named("io.debezium.data.Json"), placeholder, name)
        if name == "bytea":
            return Bytea(modes.binary, placeholder)
        if name == "numeric":
            return decimal_value(modes.decimal, typmod, placeholder)
        if name == "money":
            return Money(modes.decimal)
        if name == "interval":
            return Interval(modes.interval, placeholder)
        if name in ("bit", "varbit"):
            length = typmod if typmod > 0 else (1 if name == "bit" else _BITS_MAX)
            return self._by_text(OneBit() if length == 1 else Bits(length, is_varying=name == "varbit"), pgtype)
        return self._temporal(name, typmod if 0 <= typmod <= 6 else 6, is_element=is_element)

    def _temporal(self, name: str, precision: int, *, is_element: bool) -> Value | None:
        mode, placeholder = self._modes.time, self._modes.placeholder
        if name == "date":
            return Date(mode, is_element=is_element)
        if name == "time":
            return Time(mode, precision, placeholder, is_element=is_element)
        if name == "timestamp":
            return Timestamp(mode, precision, placeholder)
        if name == "timestamptz":
            return ZonedTimestamp(precision, placeholder, is_element=is_element)
        return zoned_time(placeholder) if name == "timetz" else None

    def _of_extension(self, pgtype: PgType) -> Value | None:
        placeholder = self._modes.placeholder
        if pgtype.kind != "b":
            return None
        if pgtype.name == "hstore":
            return self._by_text(Hstore(self._modes.hstore, placeholder), pgtype)
        if pgtype.name not in _OF_EXTENSIONS:
            return None
        name = _OF_EXTENSIONS[pgtype.name]
        if pgtype.name == "ltree":
            return VersionedText(named(name), placeholder, "ltree")
        value = Text(STRING, placeholder)
        return value if pgtype.name in _TEXT_IN_BINARY else self._by_text(value, pgtype)

    def _by_text(self, value: Value, pgtype: PgType) -> Value:
        return ByText(value, codec_for(pgtype, -1, self.options))

    # Arrays

    def _array(self, pgtype: PgType, element: PgType, typmod: int) -> Value | None:
        name = element.name
        if element.kind in (DOMAIN, "c") or (name in _NO_ARRAYS and element.schema == "pg_catalog"):
            return None
        if name == "bit" and element.schema == "pg_catalog":
            bits = OneBit() if typmod in (-1, 1) else Bits(typmod)
            return Null(bits.schema)
        value = self._element(element, typmod)
        if value is None:
            return None
        is_known = element.kind != ENUM and name in _ARRAYS
        if not is_known and element.kind != ENUM and name == "box":
            return Null(Schema("array", items=value.schema), b"[]")
        return Array(
            value,
            element.delimiter,
            pgtype.qualified,
            self._placeholder(name, element.schema),
            takes_nulls=is_known,
            is_lost=name == "numeric" or name == "ltree",
        )

    def _element(self, element: PgType, typmod: int) -> Value | None:
        if element.kind != ENUM and element.schema == "pg_catalog":
            return self._built_in(element, typmod, is_element=True)
        return self._value(element, typmod)

    def _placeholder(self, name: str, schema: str) -> bytes:
        """The array that stands for an unchanged one; empty: null."""
        text = self._modes.placeholder
        if schema != "pg_catalog":
            return b""
        if name in _ONE_TEXT:
            return b"[" + quoted(text) + b"]"
        has_numbers = name in ("int4", "int8") or (name == "date" and self._modes.time not in ("connect", "isostring"))
        if has_numbers:
            return b"[" + b",".join(str(byte).encode() for byte in text.encode()) + b"]"
        if name == "bytea" and self._modes.binary == "bytes":
            return b"[" + Bytes("bytes", text).placeholder + b"]"
        if name == "uuid":
            return b"[" + quoted(str(_uuid_of(text))) + b"]"
        return b""


def _is_left_out(pgtype: PgType) -> bool:
    """An array that Debezium leaves out even if it is to write what it does not know."""
    element = pgtype.element
    return pgtype.is_array and element is not None and element.schema == "pg_catalog" and element.name in _NO_ARRAYS


def _uuid_of(text: str) -> UUID:
    """Java's UUID.nameUUIDFromBytes: version 3 without a namespace."""
    digest = bytearray(md5(text.encode(), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    return UUID(bytes=bytes(digest))
