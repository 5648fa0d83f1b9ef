"""Turns PostgreSQL's text into Avro by what a schema alone tells: the way back from `postgres_text`.

Before: the schema of an event has the default of an added column, as PostgreSQL's text.
After: `spark.reading.missing_values` fills it into older rows.

The daemon's codecs do the work. They are chosen by PostgreSQL's type, of which a schema has the name only. So this
module names a type that has the same text and the same Avro type.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import BytesWriter

from cdcd.avro.codecs.base import AvroType
from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.type_forms import INTERVAL_FIELDS, RANGE_FIELDS, TYPE_FORMS, form_of, kind_of
from cdcd.errors import DecodeError
from cdcd.source.pg_types import RANGE, PgType

_BUILT_IN: Final = "pg_catalog"
_EXTENSION: Final = "extension"
_NUMERIC_HEADER: Final = 4
_TYPES: Final = {
    "boolean": "bool", "int": "int4", "long": "int8", "float": "float4", "double": "float8", "decimal": "numeric",
    "string": "text", "uuid": "uuid", "bytes": "bytea", "date": "date", "time-micros": "time",
    "timestamp-micros": "timestamptz", "local-timestamp-micros": "timestamp",
}  # fmt: skip
"""By the kind of an Avro type: a type of PostgreSQL whose text the daemon turns into it."""


def avro_value(text: str, pg_type: str, avro: str | dict[str, Any]) -> tuple[bytes, AvroType] | None:
    """The value as Avro, and the schema of these bytes; None if Avro cannot hold it.

    `pg_type`: the property of the column's field. `avro`: its type, without names and without the unions of null.
    """
    found = _postgres_type(avro, pg_type)
    if found is None:
        return None
    codec = codec_for(*found, TypeOptions())
    value, out = text.encode("utf-8", "surrogateescape"), BytesWriter()
    try:
        fits = codec.text(value, 0, len(value), out)
    except DecodeError:  # another program may have written the schema
        return None
    return (out.getvalue(), codec.schema) if fits else None


def _postgres_type(avro: str | dict[str, Any], pg_type: str) -> tuple[PgType, int] | None:
    """A type with its typmod, whose codec makes this Avro type of the text; None: there is none.

    `pg_type`: the name in the schema; "" inside a composite, which does not tell it.
    """
    kind, name = kind_of(avro), pg_type.rpartition(".")[2]
    if kind == "map":
        return PgType(0, _EXTENSION, "hstore"), -1
    if not isinstance(avro, dict) or kind not in ("array", "record", "decimal"):
        if form_of(kind, pg_type).text == "ewkb":
            return PgType(0, _EXTENSION, name), -1
        return (PgType(0, _BUILT_IN, _TYPES[kind]), -1) if kind in _TYPES else None
    if kind == "decimal":
        return PgType(0, _BUILT_IN, "numeric"), (int(avro["precision"]) << 16 | int(avro["scale"])) + _NUMERIC_HEADER
    if kind == "record":
        return _record_type(avro)
    if name == "vector":
        return PgType(0, _EXTENSION, name), -1
    element = name.removesuffix("[]").removeprefix("_")
    found = _postgres_type(avro["items"], element)
    if found is None:
        return None
    if found[0].kind == RANGE and name == element:
        return PgType(0, _BUILT_IN, name, "m", element=found[0]), -1
    delimiter = TYPE_FORMS[element].delimiter if element in TYPE_FORMS else ","
    return PgType(0, _BUILT_IN, name, element=found[0], is_array=True, delimiter=delimiter), found[1]


def _record_type(avro: dict[str, Any]) -> tuple[PgType, int] | None:
    names = tuple(field["name"] for field in avro["fields"])
    if names == INTERVAL_FIELDS:
        return PgType(0, _BUILT_IN, "interval"), -1
    if names == RANGE_FIELDS:
        bound = _postgres_type(avro["fields"][0]["type"], "")
        return None if bound is None else (PgType(0, _BUILT_IN, "range", RANGE, element=bound[0]), -1)
    parts = [_postgres_type(field["type"], "") for field in avro["fields"]]
    fields = tuple((name, *part) for name, part in zip(names, parts, strict=True) if part is not None)
    return (PgType(0, _BUILT_IN, "composite", "c", fields=fields), -1) if len(fields) == len(names) else None
