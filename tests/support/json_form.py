"""What an event's JSON must be, by the value that fastavro reads from its Avro bytes: the oracle of `json_events`."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from typing import Any

from librt.strings import BytesWriter

from cdcd.json_events.form_lookup import form_of
from cdcd.json_events.forms import AvroReader
from cdcd.reading import json_form_lookup


def translated(schema: Any, avro: bytes) -> bytes:
    """The JSON that `json_events` makes of Avro bytes, which must all be used."""
    reader, out = AvroReader(), BytesWriter()
    reader.begin(avro, 0)
    form_of(schema).write(reader, out)
    assert reader.at == len(avro)
    return out.getvalue()


def read_back(schema: Any, shown: bytes) -> bytes:
    """The Avro bytes that `cdcd.reading` makes of JSON."""
    out = BytesWriter()
    json_form_lookup.form_of(schema).write(json.loads(shown), out)
    return out.getvalue()


def check(schema: Any, avro: bytes, value: Any) -> None:
    """The JSON of these bytes has all of `value`, which fastavro has read from them, in the same order."""
    found = translated(schema, avro)
    assert read_back(schema, found) == avro
    assert json.dumps(json.loads(found)) == json.dumps(expected(value, schema))
    assert b"\n" not in found  # one event a line, for whoever keeps files of them


def expected(value: Any, schema: Any) -> Any:
    """The value of JSON."""
    return _expected(value, schema, _records(schema))


def _records(schema: Any) -> dict[str, Any]:
    """All records in the schema, by their names."""
    if isinstance(schema, list):
        return {name: record for each in schema for name, record in _records(each).items()}
    if not isinstance(schema, dict):
        return {}
    own = {schema["name"]: schema} if schema.get("type") == "record" else {}
    return own | {name: record for each in schema.values() for name, record in _records(each).items()}


def _expected(value: Any, schema: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return None if value is None else _expected(value, schema[1], named)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema.get("logicalType", schema["type"])
    if kind == "record":
        fields = {
            _name(field["name"]): _expected(value[field["name"]], field["type"], named) for field in schema["fields"]
        }
        names = {"Envelope": "unchanged", "Unrepresentable": "column"}.get(schema["name"], "")
        if names in fields:
            shown = fields[names]
            fields[names] = _name(shown) if isinstance(shown, str) else [_name(each) for each in shown]
        return fields
    if kind == "array":
        return [_expected(each, schema["items"], named) for each in value]
    if kind == "map":
        return {key: _expected(each, schema["values"], named) for key, each in value.items()}
    if kind in ("float", "double"):
        if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        return _shown_float4(value) if kind == "float" else value
    if kind == "decimal":
        return f"{value:f}"
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "date":
        return value.isoformat()
    if kind in ("time-micros", "local-timestamp-micros", "timestamp-micros"):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value) if kind == "uuid" else value


def _shown_float4(value: float) -> float:
    """The number in JSON: any that reads back as the same float4, and that one is short is tested elsewhere."""
    bits = struct.pack("<f", value)
    shown = json.loads(translated("float", bits))
    assert struct.pack("<f", shown) == bits
    return float(shown)


def _name(avro: str) -> str:
    return re.sub("_x([0-9a-f]+)_", lambda found: chr(int(found[1], 16)), avro)
