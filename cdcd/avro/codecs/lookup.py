"""Picks the codec of a column: by its type's schema and name, as OIDs of extensions differ from server to server.

Before: `source.catalog` describes the type as a `PgType`.
After: `schema` and `event_encoder` use the codec, which holds the Avro schema and transcodes both modes.

The table of which PostgreSQL type becomes which Avro type is in the manual; this module is that table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from cdcd.avro.avro_names import avro_name, field_names
from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.composite_changes import CompositeDefinition, at_the_start
from cdcd.avro.codecs.datetimes import Date, Time, Timestamp, TimeTz
from cdcd.avro.codecs.extensions import ConvertedHstore, Hstore, Vector
from cdcd.avro.codecs.floats import Float4, Float8
from cdcd.avro.codecs.integers import Bool, Int2, Int4, Int8, Unsigned4, Xid8
from cdcd.avro.codecs.interval import Interval
from cdcd.avro.codecs.nested import Array, Composite
from cdcd.avro.codecs.network import Bit, Inet, Macaddr, PgLsn, Tsvector
from cdcd.avro.codecs.numeric import PRECISION_MAX, Decimal, NumericText, typmod_precision, typmod_scale
from cdcd.avro.codecs.ranges import Multirange, Range
from cdcd.avro.codecs.text import Bytea, Char, Ewkb, Text, TextFallback, Uuid, VersionedText
from cdcd.avro.codecs.text_encoding import EscapingColumn, TextCodec, Utf8Checked
from cdcd.source.pg_types import PgType

# The types that a value of a composite type may have had once; their OIDs are the same on every server.
_BUILT_IN: Final[dict[int, str]] = {
    16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid",
    114: "json", 142: "xml", 650: "cidr", 700: "float4", 701: "float8", 774: "macaddr8", 829: "macaddr", 869: "inet",
    1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz",
    1186: "interval", 1266: "timetz", 1560: "bit", 1562: "varbit", 1700: "numeric", 2950: "uuid", 3220: "pg_lsn",
    3614: "tsvector", 3802: "jsonb", 5069: "xid8",
}  # fmt: skip


@dataclass(frozen=True)
class TypeOptions:
    """What the settings and the database say about types."""

    numeric: Literal["decimal", "string"] = "decimal"
    """numeric(p,s) as an Avro decimal, or as a string as all other numerics are."""
    json: Literal["string"] = "string"
    any_encoding: bool = False
    """The database has no encoding (SQL_ASCII): its text is checked, what is no UTF-8 is unrepresentable."""
    converted: bool = False
    """The database is neither UTF8 nor SQL_ASCII: the server converts its text."""
    position: Callable[[], int] = at_the_start
    """The commit LSN of the transaction at hand: whether a type may have been altered since the catalog was asked."""


def codec_for(pgtype: PgType, typmod: int, options: TypeOptions) -> Codec:
    """The codec of a column of type `pgtype` with `typmod` (-1: none). Never fails."""
    codec = _codec(pgtype, typmod, options)
    return EscapingColumn(codec) if options.any_encoding and _has_text(codec) else codec


def _codec(pgtype: PgType, typmod: int, options: TypeOptions) -> Codec:
    """The codec of a column, or of an element, field or bound."""
    if pgtype.kind == "d" and pgtype.base is not None:
        return _codec(pgtype.base, pgtype.base_typmod, options)
    if pgtype.kind == "e":
        return _of_encoding(Text(), options)
    if pgtype.kind == "c":
        names = field_names([name for name, _, _ in pgtype.fields])
        fields = [_codec(field, field_typmod, options) for _, field, field_typmod in pgtype.fields]
        return Composite(avro_name(pgtype.qualified), names, fields, _shape(pgtype, options))
    if pgtype.element is not None:
        if _is_true_array(pgtype):
            element = _codec(pgtype.element, typmod, options)
            return Array(element, pgtype.qualified, pgtype.element.delimiter)
        if pgtype.kind == "r":
            subtype = _codec(pgtype.element, -1, options)
            return Range(avro_name(pgtype.qualified), subtype, pgtype.qualified)
        if pgtype.kind == "m":
            return Multirange(_codec(pgtype.element, -1, options), pgtype.qualified)
    return _of_encoding(_base_codec(pgtype, typmod, options), options)


def _of_encoding(codec: Codec, options: TypeOptions) -> Codec:
    return Utf8Checked(codec) if options.any_encoding and isinstance(codec, TextCodec) else codec


def _shape(pgtype: PgType, options: TypeOptions) -> CompositeDefinition:
    def built_in(oid: int) -> Codec | None:
        name = _BUILT_IN.get(oid)
        return None if name is None else _codec(PgType(oid, "pg_catalog", name), -1, options)

    oids = [field.oid for _, field, _ in pgtype.fields]
    return CompositeDefinition(pgtype.qualified, oids, pgtype.dropped, pgtype.asked_lsn, options.position, built_in)


def has_known_binary(pgtype: PgType, encoding: str = "UTF8") -> bool:
    """Values of this type can be read in binary, from a database of this encoding; if not, the stream must run in text
    mode.
    """
    return _is_known(_codec(pgtype, -1, TypeOptions(converted=is_converted(encoding))))


def is_converted(encoding: str) -> bool:
    """Whether the server converts the text of a database of this encoding to UTF-8."""
    return encoding not in ("UTF8", "SQL_ASCII")


def _is_known(codec: Codec) -> bool:
    if isinstance(codec, (TextFallback, ConvertedHstore)):
        return False
    if isinstance(codec, (Array, Multirange)):
        return _is_known(codec.element)
    if isinstance(codec, Range):
        return _is_known(codec.subtype)
    if isinstance(codec, Composite):
        return all(_is_known(field) for field in codec.fields)
    return True


def _has_text(codec: Codec) -> bool:
    if isinstance(codec, (Array, Multirange)):
        return _has_text(codec.element)
    if isinstance(codec, Range):
        return _has_text(codec.subtype)
    if isinstance(codec, Composite):
        return any(_has_text(field) for field in codec.fields)
    return isinstance(codec, Utf8Checked)


def _is_true_array(pgtype: PgType) -> bool:
    # These two count from 0, and their text is not an array's.
    return pgtype.is_array and pgtype.name not in ("int2vector", "oidvector")


def _base_codec(pgtype: PgType, typmod: int, options: TypeOptions) -> Codec:
    codec = None
    if pgtype.schema == "pg_catalog":
        codec = _numeric_codec(typmod, options) if pgtype.name == "numeric" else _catalog_codec(pgtype.name)
    elif pgtype.kind == "b":
        codec = _extension_codec(pgtype.name, options)
    return codec or TextFallback(pgtype.qualified)


def _numeric_codec(typmod: int, options: TypeOptions) -> Codec:
    if typmod >= 0 and options.numeric == "decimal":
        codec = Decimal(typmod_precision(typmod), typmod_scale(typmod))
        if codec.precision <= PRECISION_MAX:
            return codec
    return NumericText()


def _catalog_codec(name: str) -> Codec | None:
    match name:
        case "int2":
            return Int2()
        case "int4":
            return Int4()
        case "int8":
            return Int8()
        case "oid" | "xid" | "cid":
            return Unsigned4(name)
        case "xid8":
            return Xid8()
        case "bool":
            return Bool()
        case "float4":
            return Float4()
        case "float8":
            return Float8()
        case "text" | "varchar" | "bpchar" | "name" | "xml" | "json":
            return Text()
        case "char":
            return Char()
        case "jsonb":
            return VersionedText(name)
        case "uuid":
            return Uuid()
        case "bytea":
            return Bytea()
        case "date":
            return Date()
        case "time":
            return Time()
        case "timetz":
            return TimeTz()
        case "timestamp" | "timestamptz":
            return Timestamp(with_zone=name == "timestamptz")
        case "interval":
            return Interval()
        case "inet" | "cidr":
            return Inet(name)
        case "macaddr":
            return Macaddr(name, 6)
        case "macaddr8":
            return Macaddr(name, 8)
        case "bit" | "varbit":
            return Bit()
        case "pg_lsn":
            return PgLsn()
        case "tsvector":
            return Tsvector()
        case _:
            return None


def _extension_codec(name: str, options: TypeOptions) -> Codec | None:
    match name:
        case "citext":
            return Text()
        case "ltree" | "lquery" | "ltxtquery":
            return VersionedText(name)
        case "hstore":
            return ConvertedHstore() if options.converted else Hstore()
        case "vector":
            return Vector()
        case "geometry" | "geography":
            return Ewkb(name)
        case _:
            return None
