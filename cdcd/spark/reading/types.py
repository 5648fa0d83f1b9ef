"""Types of columns: Avro's as a writer declares it, the type that holds all versions of a column, and Spark's.

Before: `writer_schemas` has parsed the schemas; `type_table` has one line for each kind of type.
After: `decoding` casts to these types, `schema_evolution` alters tables to them.
Source: Avro specification, "Schema Resolution"; Spark, "Apache Avro Data Source Guide".

A type here is Avro's JSON with names resolved and without the unions of null: "long", {"type": "bytes", "logicalType":
"decimal", ...}, {"type": "array", "items": ...}, {"type": "record", "fields": [...]}.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as f

from cdcd.avro.type_forms import kind_of
from cdcd.spark.reading.type_table import KINDS

Avro: TypeAlias = "str | dict[str, Any]"

PRECISION_MAX: Final = 38
"""Digits of Spark's widest decimal."""

_INTEGER_DIGITS: Final = {"int": 10, "long": 19}


def resolved(avro: Any, named: dict[str, Any]) -> Avro:
    """A type of a schema's JSON in this module's form; `named` collects the records that later parts name."""
    if isinstance(avro, list):
        (avro,) = (branch for branch in avro if branch != "null")
    if isinstance(avro, str):
        return named.get(avro, avro)  # type: ignore[no-any-return]
    kind = avro["type"]
    if isinstance(kind, (dict, list)):
        return resolved(kind, named)
    if kind == "record":
        fields = [{"name": field["name"], "type": resolved(field["type"], named)} for field in avro["fields"]]
        named[avro["name"]] = {"type": "record", "fields": fields}
        return named[avro["name"]]  # type: ignore[no-any-return]
    if kind == "array":
        return {"type": "array", "items": resolved(avro["items"], named)}
    if kind == "map":
        return {"type": "map", "values": resolved(avro["values"], named)}
    logical = avro.get("logicalType")
    if logical == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": avro["precision"], "scale": avro["scale"]}
    return {"type": kind, "logicalType": logical} if logical in KINDS else str(kind)


def ddl(avro: Avro) -> str:
    """The type as Spark SQL writes it."""
    kind = kind_of(avro)
    if isinstance(avro, str):
        return KINDS[avro].spark
    if kind == "decimal":
        return f"decimal({avro['precision']},{avro['scale']})"
    if kind == "array":
        return f"array<{ddl(avro['items'])}>"
    if kind == "map":
        return f"map<string,{ddl(avro['values'])}>"
    if kind == "record":
        fields = [f"{field['name']}:{ddl(field['type'])}" for field in avro["fields"]]
        return f"struct<{','.join(fields)}>"
    return KINDS[kind].spark


def from_ddl(kind: str) -> Avro | None:
    """Spark SQL's type (of one word) as Avro's; None for a type that has no Avro type of its own here."""
    return _FROM_SPARK.get(kind)


def common(one: Avro, other: Avro) -> Avro:
    """The narrowest type that holds every value of both: one of them, a wider type, or else string."""
    if one == other:
        return one
    kinds = {kind_of(one), kind_of(other)}
    if kinds <= {"int", "long"}:
        return "long"
    if kinds <= {"float", "double"} or kinds in ({"int", "double"}, {"int", "float"}):
        return "double"
    if kinds <= {"string", "uuid"}:
        return "string"
    if "decimal" in kinds and kinds <= {"decimal", "int", "long"}:
        return _common_decimal(one, other)
    if kinds == {"date", "local-timestamp-micros"}:
        return {"type": "long", "logicalType": "local-timestamp-micros"}
    if kinds == {"array"} and isinstance(one, dict) and isinstance(other, dict):
        return {"type": "array", "items": common(one["items"], other["items"])}
    if kinds == {"record"} and isinstance(one, dict) and isinstance(other, dict):
        return {"type": "record", "fields": common_fields(one["fields"], other["fields"])}
    return "string"


def common_fields(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fields of both, first in the order of `one`, then of `other`, each of the common type."""
    types = {field["name"]: field["type"] for field in one}
    for field in other:
        types[field["name"]] = common(types.get(field["name"], field["type"]), field["type"])
    return [{"name": name, "type": avro} for name, avro in types.items()]


def _common_decimal(one: Avro, other: Avro) -> Avro:
    scale = max(_scale(one), _scale(other))
    precision = max(_integer_digits(one), _integer_digits(other)) + scale
    if precision > PRECISION_MAX:
        return "string"
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _scale(avro: Avro) -> int:
    return int(avro["scale"]) if isinstance(avro, dict) else 0


def _integer_digits(avro: Avro) -> int:
    return int(avro["precision"]) - int(avro["scale"]) if isinstance(avro, dict) else _INTEGER_DIGITS[avro]


def avro_resolves(writer: Avro, reader: Avro) -> bool:
    """Whether Avro's own resolution gives the right values: for one logical type, or a promotion that Spark does, too.

    Spark ignores logical types when it resolves: decimal(10,2) read as decimal(12,4) turns 1.23 into 0.0123.
    """
    if writer == reader:
        return True
    if (writer, reader) in (("int", "long"), ("float", "double")):
        return True
    if isinstance(writer, dict) and isinstance(reader, dict) and writer["type"] == reader["type"] == "array":
        return avro_resolves(writer["items"], reader["items"])
    if isinstance(writer, dict) and isinstance(reader, dict) and writer["type"] == reader["type"] == "record":
        types = {field["name"]: field["type"] for field in reader["fields"]}
        return all(
            avro_resolves(field["type"], types[field["name"]]) for field in writer["fields"] if field["name"] in types
        )
    return False


def cast(column: Column, writer: Avro, wanted: Avro) -> Column:
    """`column` of the writer's type, cast to the type that `common` gave: no value is lost."""
    if writer == wanted or ddl(writer) == ddl(wanted):
        return column
    if wanted == "string":
        return as_text(column, writer)
    if isinstance(writer, dict) and isinstance(wanted, dict) and writer["type"] == "array" == wanted["type"]:
        return f.transform(column, lambda item: cast(item, writer["items"], wanted["items"]))
    if isinstance(writer, dict) and isinstance(wanted, dict) and writer["type"] == "record" == wanted["type"]:
        return f.when(column.isNotNull(), row(column, writer["fields"], wanted["fields"]))
    return column.cast(ddl(wanted))


def row(column: Column, writer: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> Column:
    """A struct of the wanted fields from the writer's struct; a field that the writer does not have is null."""
    types = {field["name"]: field["type"] for field in writer}
    return f.struct(
        *(
            (
                cast(column.getField(field["name"]), types[field["name"]], field["type"])
                if field["name"] in types
                else f.lit(None).cast(ddl(field["type"]))
            ).alias(field["name"])
            for field in wanted
        )
    )


def as_text(column: Column, avro: Avro) -> Column:
    """A value as text: as PostgreSQL writes it where Spark easily can, else as JSON."""
    kind = kind_of(avro)
    if kind == "bytes":
        return f.concat(f.lit("\\x"), f.lower(f.hex(column)))
    if kind == "decimal" and isinstance(avro, dict):
        return plain_decimal(column, avro)
    if kind in ("array", "map", "record"):
        return f.to_json(column)
    return column.cast("string")


def plain_decimal(column: Column, avro: dict[str, Any]) -> Column:
    """A decimal with all digits of its scale, never in scientific notation, whatever spark.sql.ansi.enabled says."""
    return f.translate(f.format_number(column, int(avro["scale"])), ",", "")


def envelope(row_fields: list[dict[str, Any]], of: Mapping[str, Any], names: Collection[str]) -> str:
    """A reader's schema: of the writer's schema `of` the fields of these names, with `row_fields` as the row."""
    named = iter(range(1_000_000))

    def declared(avro: Avro) -> Any:
        if isinstance(avro, str):
            return avro
        if avro["type"] == "array":
            return {"type": "array", "items": ["null", declared(avro["items"])]}
        if avro["type"] == "map":
            return {"type": "map", "values": ["null", declared(avro["values"])]}
        if avro["type"] == "record":
            fields = [_nullable(field["name"], declared(field["type"])) for field in avro["fields"]]
            return {"type": "record", "name": f"R{next(named)}", "fields": fields}
        # Spark 4.2 has a type for times of day, which no table format has.
        has_own_type = KINDS[avro["logicalType"]].spark != KINDS[avro["type"]].spark
        return avro if has_own_type else avro["type"]

    reader = {
        "type": "record",
        "name": "Row",
        "fields": [_nullable(c["name"], declared(c["type"])) for c in row_fields],
    }
    fields = [
        field | {"type": ["null", reader]} if field["name"] == "before" else field
        for field in of["fields"]
        if field["name"] in names
    ]
    return json.dumps({"type": "record", "name": "Envelope", "namespace": of["namespace"], "fields": fields})


def _nullable(name: str, avro: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro], "default": None}


def _primitives_first() -> dict[str, Avro]:
    """By Spark's type: Avro's. A plain Avro type comes before a logical type of the same Spark type."""
    found: dict[str, Avro] = {}
    for name, kind in KINDS.items():
        if kind.spark:
            found.setdefault(kind.spark, {"type": kind.base, "logicalType": name} if kind.base else name)
    return found


_FROM_SPARK: Final = _primitives_first()
