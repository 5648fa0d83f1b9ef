"""Turns Avro values into PostgreSQL's text, as its output functions write it under the pinned settings.

Before: `decoder` has decoded an event without logical types: a date is an integer, a decimal is bytes.
After: `verify` compares the text with that of the server.
Source: PostgreSQL's output functions. `avro.type_forms` has the text form of each type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from cdcd.avro.codecs.calendar import date_text, time_text
from cdcd.avro.codecs.floats import float4_text, float8_text
from cdcd.avro.codecs.interval import interval_text
from cdcd.avro.codecs.literals import quote_bound, quote_element, quote_field
from cdcd.avro.type_forms import INTERVAL_FIELDS, RANGE_FIELDS, TextForm, form_of, kind_of

Render: TypeAlias = "Callable[[Any], str]"

DAY_MICROS: Final = 86_400_000_000


def without_logical_types(schema: Any) -> Any:
    """The schema without its logical types: fastavro then gives plain numbers and bytes, and makes no objects."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        return {key: without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def renderers(row: Mapping[str, Any], named: dict[str, Any]) -> list[tuple[str, str, Render]]:
    """The columns of a record `Row`: Avro's name, PostgreSQL's name, and the function that renders a non-null value.

    `named` collects the schemas of named types, because Avro defines each one only at its first use.
    """
    columns = []
    for field in row["fields"]:
        value = next(branch for branch in _branches(field["type"]) if branch != "null")
        render = _renderer(value, str(field["pg_type"]), named)
        columns.append((str(field["name"]), str(field.get("pg_name", field["name"])), render))
    return columns


def _branches(avro_type: Any) -> list[Any]:
    return avro_type if isinstance(avro_type, list) else [avro_type]


def _renderer(avro_type: Any, pg_type: str, named: dict[str, Any]) -> Render:
    if isinstance(avro_type, str) and avro_type in named:
        avro_type = named[avro_type]
    if isinstance(avro_type, dict) and isinstance(avro_type["type"], (dict, list)):
        return _renderer(avro_type["type"], pg_type, named)
    kind = kind_of(avro_type)
    if isinstance(avro_type, dict):
        pg_type = str(avro_type.get("pg_type", pg_type))  # the type's own name, not that of a domain over it
    if kind == "record":
        named[avro_type["name"]] = avro_type
        return _record(avro_type, named)
    if kind == "map":
        return _TEXTS["hstore"]
    if kind == "array":
        return _array(avro_type, pg_type, named)
    if kind == "decimal":
        scale = int(avro_type.get("scale", 0))
        return lambda value: _decimal(int.from_bytes(value, "big", signed=True), scale)
    return _TEXTS[form_of(kind, pg_type).text]


def _decimal(unscaled: int, scale: int) -> str:
    if not scale:
        return str(unscaled)
    digits = f"{abs(unscaled):0{scale + 1}}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _timestamp(micros: int) -> str:
    days, rest = divmod(micros, DAY_MICROS)
    return f"{date_text(days)} {time_text(rest)}"


def _record(avro_type: Mapping[str, Any], named: dict[str, Any]) -> Render:
    names = tuple(field["name"] for field in avro_type["fields"])
    nullable = any(isinstance(field["type"], list) for field in avro_type["fields"][-1:])  # as in every composite
    if names == INTERVAL_FIELDS and not nullable:
        return _TEXTS["interval"]
    parts = {
        field["name"]: _renderer(next(b for b in _branches(field["type"]) if b != "null"), "", named)
        for field in avro_type["fields"]
    }
    if names == RANGE_FIELDS and not nullable:
        bound = parts["lower"]
        return lambda value: _range(value, bound)
    return lambda value: (
        "(" + ",".join("" if value[n] is None else quote_field(render(value[n])) for n, render in parts.items()) + ")"
    )


def _range(value: Mapping[str, Any], bound: Render) -> str:
    if value["empty"]:
        return "empty"
    lower, upper = ("" if value[b] is None else quote_bound(bound(value[b])) for b in ("lower", "upper"))
    return f"{'[' if value['lower_inc'] else '('}{lower},{upper}{']' if value['upper_inc'] else ')'}"


def _array(avro_type: Mapping[str, Any], pg_type: str, named: dict[str, Any]) -> Render:
    items = avro_type["items"]
    if items == "float":
        return _TEXTS["vector"]
    element_type = pg_type.rpartition(".")[2].removesuffix("[]").removeprefix("_")  # PostgreSQL calls text[] _text
    element = _renderer(next(b for b in _branches(items) if b != "null"), element_type, named)
    if not isinstance(items, list):  # a multirange: none of its ranges is null
        return lambda value: "{" + ",".join(map(element, value)) + "}"
    delimiter = str(avro_type.get("pg_delimiter", ","))
    return lambda value: (
        "{" + delimiter.join("NULL" if v is None else quote_element(element(v), delimiter) for v in value) + "}"
    )


def _hstore(value: Mapping[str, str | None]) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return ", ".join(f"{quoted(k)}=>{'NULL' if v is None else quoted(v)}" for k, v in value.items())


_TEXTS: Final[dict[TextForm, Render]] = {
    "plain": str,
    "boolean": lambda value: "t" if value else "f",
    "float4": float4_text,
    "float8": float8_text,
    "hex": lambda value: f"\\x{value.hex()}",
    "ewkb": lambda value: str(value.hex().upper()),
    "date": date_text,
    "time": time_text,
    "timestamp": _timestamp,
    "timestamptz": lambda value: _timestamp(value) + "+00",
    "interval": lambda value: interval_text(value["months"], value["days"], value["micros"]),
    "vector": lambda value: "[" + ",".join(map(float4_text, value)) + "]",
    "hstore": _hstore,
}
"""The output functions, by text form. `_renderer` makes that of a decimal, which depends on the scale."""
