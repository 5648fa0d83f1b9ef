"""Connect's schemas and values in Avro, as its AvroConverter writes them: those parts that are made once a schema.

Before: `connect_schema` has the schemas, `values` the JSON of values.
After: a SchemaStore makes the schemas known; the values stand where a row has none of its own.
Source: Confluent's and Apicurio's `AvroData`; Apache Avro specification, "Binary Encoding" and "Names".
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from typing import Final

from librt.strings import BytesWriter

from cdcd.avro.codecs.varint import write_bytes, write_long, write_text
from cdcd.debezium.connect_schema import Schema
from cdcd.debezium.java_maps import hash_map_order

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_LOGICAL_TYPES: Final = {
    _DECIMAL: "decimal",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
_PRECISION_OF_NONE: Final = "64"
"""AvroData's precision of a Decimal that says none."""
_TYPES: Final = {"int16": "int", "int32": "int", "int64": "long"}
"""Avro's names of types that Connect calls otherwise."""


def avro_schema(schema: Schema) -> str:
    """JSON of the Avro schema of keys or events."""
    return json.dumps(_type(schema, "", set()), ensure_ascii=False, separators=(",", ":"))


def _type(schema: Schema, namespace: str, defined: set[str]) -> object:
    """The Avro type of the values of a schema that are not null. `defined`: the full names of records so far."""
    if schema.type == "array" and schema.items is not None:
        return {"type": "array", "items": _nullable(schema.items, namespace, defined)}
    if schema.type == "map" and schema.items is not None:
        return {"type": "map", "values": _nullable(schema.items, namespace, defined)}
    made: dict[str, object] = {"type": _TYPES.get(schema.type, schema.type)}
    if schema.type == "struct":
        own, _, name = schema.name.rpartition(".")
        if schema.name in defined:
            return name if own == namespace else schema.name
        defined.add(schema.name)
        made = {"type": "record", "name": name}
        if own != namespace:
            made["namespace"] = own
        made["fields"] = [_field(field, each, own, defined) for field, each in schema.fields]
    made |= _properties(schema)
    return made["type"] if len(made) == 1 else made


def _properties(schema: Schema) -> dict[str, object]:
    """What Avro keeps of Connect's schema next to the type."""
    parameters = dict(schema.parameters)
    made: dict[str, object] = {}
    if schema.name == _DECIMAL:
        made["scale"] = int(parameters["scale"])
        made["precision"] = int(parameters.get("connect.decimal.precision", _PRECISION_OF_NONE))
    if schema.doc:
        made["connect.doc"] = schema.doc
    if schema.version:
        made["connect.version"] = schema.version
    if parameters:
        made["connect.parameters"] = {**parameters}
    if schema.default:
        made["connect.default"] = _default(schema)
    if schema.type == "int16":
        made["connect.type"] = "int16"
    if schema.name:
        made["connect.name"] = schema.name
    if schema.name in _LOGICAL_TYPES:
        made["logicalType"] = _LOGICAL_TYPES[schema.name]
    return made


def _default(schema: Schema) -> object:
    """The default as Avro's JSON has it: bytes are text, a character for each byte."""
    default: object = json.loads(schema.default)
    return b64decode(default).decode("latin-1") if schema.type == "bytes" and isinstance(default, str) else default


def _nullable(schema: Schema, namespace: str, defined: set[str]) -> object:
    """The type, or the union of it with null. The type of a field's default comes first in the union."""
    found = _type(schema, namespace, defined)
    if not schema.is_optional:
        return found
    return [found, "null"] if schema.default else ["null", found]


def _field(name: str, schema: Schema, namespace: str, defined: set[str]) -> object:
    made: dict[str, object] = {"name": name, "type": _nullable(schema, namespace, defined)}
    if schema.default:
        made["default"] = _default(schema)
    elif schema.is_optional:
        made["default"] = None
    return made


def branch_of_value(schema: Schema) -> int:
    """The byte that stands before a value that is not null; -1: none does."""
    if not schema.is_optional:
        return -1
    return 0 if schema.default else 2


def avro_of_json(schema: Schema, value: bytes) -> bytes:
    """Avro of a value that is not null, from its JSON."""
    out = BytesWriter()
    _write(schema, json.loads(value), out)
    return out.getvalue()


def avro_or_null(schema: Schema, value: bytes) -> bytes:
    """Avro of a field with this JSON, which may be null, with the branch of its union."""
    out = BytesWriter()
    _write_nullable(schema, json.loads(value), out)
    return out.getvalue()


def _write_nullable(schema: Schema, value: object, out: BytesWriter) -> None:
    branch = branch_of_value(schema)
    if value is None:
        if branch < 0:
            raise ValueError(f"{schema.name or schema.type} is required, and has no value")
        out.append(2 if branch == 0 else 0)
        return
    if branch >= 0:
        out.append(branch)
    _write(schema, value, out)


def _write(schema: Schema, value: object, out: BytesWriter) -> None:
    kind = schema.type
    if kind == "boolean":
        out.append(1 if value else 0)
    elif kind in _TYPES:
        assert isinstance(value, int)
        write_long(out, value)
    elif kind == "float" or kind == "double":
        assert isinstance(value, (int, float, str))  # text: NaN, Infinity
        out.write(struct.pack("<f" if kind == "float" else "<d", float(value)))
    elif kind == "string":
        assert isinstance(value, str)
        write_text(out, value)
    elif kind == "bytes":
        assert isinstance(value, str)
        raw = b64decode(value)
        write_bytes(out, raw, 0, len(raw))
    elif kind == "struct":
        assert isinstance(value, dict)
        for name, field in schema.fields:
            _write_nullable(field, value[name], out)
    else:
        _write_many(schema, value, out)


def _write_many(schema: Schema, value: object, out: BytesWriter) -> None:
    """Append an array or a map: the count, the items, and 0."""
    assert isinstance(value, (list, dict))
    assert schema.items is not None
    if value:
        write_long(out, len(value))
    if isinstance(value, dict):
        for key in hash_map_order(list(value)):  # AvroData copies the map
            write_text(out, key)
            _write_nullable(schema.items, value[key], out)
    else:
        for item in value:
            _write_nullable(schema.items, item, out)
    out.append(0)
