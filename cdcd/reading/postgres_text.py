"""Avro values back to PostgreSQL's text, as its output functions write it under the pinned settings.

Before: `decoder` has read an event without its logical types: numbers are numbers, decimals bytes.
After: `verify` compares with what the server writes.
Source: PostgreSQL's output functions; the manual's table of types, read from right to left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from cdcd.avro.codecs.calendar import date_text, time_text
from cdcd.avro.codecs.floats import float4_text, float8_text
from cdcd.avro.codecs.interval import interval_text
from cdcd.avro.codecs.literals import quote_bound, quote_element, quote_field

Render: TypeAlias = "Callable[[Any], str]"

DAY_MICROS: Final = 86_400_000_000
_RANGE: Final = ["lower", "upper", "lower_inc", "upper_inc", "empty"]
_INTERVAL: Final = ["months", "days", "micros"]


def without_logical_types(schema: Any) -> Any:
    """The schema with which fastavro reads what stands in the bytes, and makes no objects of it."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        return {key: without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def renderers(row: Mapping[str, Any], named: dict[str, Any]) -> list[tuple[str, str, Render]]:
    """The columns of a record `Row`: Avro's name, PostgreSQL's name, and how a value that is not null is written.

    `named` collects the schemas of named types, which Avro defines only where they come first.
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
    if isinstance(avro_type, str):
        return _simple(avro_type, pg_type)
    if logical := avro_type.get("logicalType"):
        return _logical(logical, avro_type)
    kind = avro_type["type"]
    if kind == "record":
        named[avro_type["name"]] = avro_type
        return _record(avro_type, named)
    if kind == "map":
        return _hstore
    if kind == "array":
        return _array(avro_type["items"], pg_type, named)
    return _renderer(kind, pg_type, named)


def _simple(avro_type: str, pg_type: str) -> Render:
    match avro_type:
        case "boolean":
            return lambda value: "t" if value else "f"
        case "float":
            return float4_text
        case "double":
            return float8_text
        case "bytes" if pg_type.rpartition(".")[2] in ("geometry", "geography"):
            return lambda value: str(value.hex().upper())
        case "bytes":
            return lambda value: f"\\x{value.hex()}"
        case _:
            return str


def _logical(logical: str, avro_type: Mapping[str, Any]) -> Render:
    match logical:
        case "decimal":
            scale = int(avro_type.get("scale", 0))
            return lambda value: _decimal(int.from_bytes(value, "big", signed=True), scale)
        case "date":
            return date_text
        case "time-micros":
            return time_text
        case "timestamp-micros":
            return lambda value: _timestamp(value) + "+00"
        case "local-timestamp-micros":
            return _timestamp
        case _:
            return str


def _decimal(unscaled: int, scale: int) -> str:
    if not scale:
        return str(unscaled)
    digits = f"{abs(unscaled):0{scale + 1}}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _timestamp(micros: int) -> str:
    days, rest = divmod(micros, DAY_MICROS)
    return f"{date_text(days)} {time_text(rest)}"


def _record(avro_type: Mapping[str, Any], named: dict[str, Any]) -> Render:
    names = [field["name"] for field in avro_type["fields"]]
    nullable = any(isinstance(field["type"], list) for field in avro_type["fields"][-1:])  # as a composite's all are
    if names == _INTERVAL and not nullable:
        return lambda value: interval_text(value["months"], value["days"], value["micros"])
    parts = {
        field["name"]: _renderer(next(b for b in _branches(field["type"]) if b != "null"), "", named)
        for field in avro_type["fields"]
    }
    if names == _RANGE and not nullable:
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


def _array(items: Any, pg_type: str, named: dict[str, Any]) -> Render:
    if items == "float":  # pgvector
        return lambda value: "[" + ",".join(map(float4_text, value)) + "]"
    of = pg_type.rpartition(".")[2].removesuffix("[]").removeprefix("_")  # PostgreSQL's name of text[] is _text
    element = _renderer(next(b for b in _branches(items) if b != "null"), of, named)
    if not isinstance(items, list):  # a multirange: its ranges are never null
        return lambda value: "{" + ",".join(map(element, value)) + "}"
    delimiter = {"box": ";", "geometry": ":", "geography": ":"}.get(of, ",")
    return lambda value: (
        "{" + delimiter.join("NULL" if v is None else quote_element(element(v), delimiter) for v in value) + "}"
    )


def _hstore(value: Mapping[str, str | None]) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return ", ".join(f"{quoted(k)}=>{'NULL' if v is None else quoted(v)}" for k, v in value.items())
