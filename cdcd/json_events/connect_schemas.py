"""Connect's schema of an Avro schema, for the encoding "json-schema".

Before: `form_lookup` builds the form of the same schema. After: `envelope` has it before each key and event.
Source: apache/kafka `connect/json` (JsonConverter).

What is a string in JSON (decimals, dates, times) is a string for Connect: its own types would be numbers.
"""

from __future__ import annotations

import json
from typing import Any, Final

from cdcd.avro.avro_names import postgres_name
from cdcd.debezium.connect_schema import BOOLEAN, BYTES, DOUBLE, FLOAT, INT32, INT64, STRING, Schema

_SIMPLE: Final = {
    "int": INT32, "long": INT64, "boolean": BOOLEAN, "float": FLOAT, "double": DOUBLE, "string": STRING, "bytes": BYTES
}  # fmt: skip


def connect_schema(schema: str) -> Schema:
    """The schema of the keys or events whose Avro schema has this text."""
    return _connect(json.loads(schema), {})


def _connect(avro: Any, defined: dict[str, Schema]) -> Schema:
    """`defined`: the records that have been met, by their names."""
    if isinstance(avro, list):
        return _connect(avro[1], defined).optional
    if isinstance(avro, str):
        return defined[avro] if avro in defined else _SIMPLE[avro]
    kind = avro["type"]
    if isinstance(kind, (dict, list)):
        return _connect(kind, defined)
    if kind == "record":
        fields = tuple((postgres_name(each["name"]), _connect(each["type"], defined)) for each in avro["fields"])
        name = ".".join(filter(None, (avro.get("namespace"), avro["name"])))
        defined[avro["name"]] = made = Schema("struct", name, fields=fields)
        return made
    if kind in ("array", "map"):
        return Schema(kind, items=_connect(avro["items" if kind == "array" else "values"], defined))
    return STRING if "logicalType" in avro else _SIMPLE[kind]
