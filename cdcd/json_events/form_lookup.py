"""Builds the JSON form of an Avro schema.

Before: `avro.schema` has made the schema's text. After: `json_records` has the form of each schema.

The fields of JSON have PostgreSQL's names, which JSON can hold as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from cdcd.avro.avro_names import postgres_name
from cdcd.avro.envelope_fields import SOURCE, UNREPRESENTABLE
from cdcd.json_events.envelope import Envelope
from cdcd.json_events.forms import (
    Array,
    Ascii,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Double,
    Float,
    Form,
    Int,
    Map,
    Name,
    Nullable,
    Record,
    Text,
    Time,
    Timestamp,
)

_SIMPLE: Final[dict[str, Callable[[], Form]]] = {
    "int": Int, "long": Int, "boolean": Boolean, "float": Float, "double": Double, "string": Text, "bytes": Bytes,
    "date": Date, "time-micros": Time, "timestamp-micros": lambda: Timestamp(with_zone=True),
    "local-timestamp-micros": lambda: Timestamp(with_zone=False), "uuid": Ascii,
}  # fmt: skip
"""By Avro's logical type where there is one, else by Avro's type."""


def form_of(schema: str) -> Form:
    """The form of the schema of this text, of a key or an event of cdcd."""
    return _form(json.loads(schema), {})


def _form(avro: Any, defined: dict[str, Form]) -> Form:
    """`defined`: the records that have been met, by their names."""
    if isinstance(avro, list):
        return Nullable(_form(avro[1], defined))
    if isinstance(avro, str):
        return defined[avro] if avro in defined else _SIMPLE[avro]()
    kind = avro["type"]
    if isinstance(kind, (dict, list)):
        return _form(kind, defined)
    if kind == "record":
        return _record(avro, defined)
    if kind == "array":
        return Array(_form(avro["items"], defined))
    if kind == "map":
        return Map(_form(avro["values"], defined))
    kind = avro.get("logicalType", kind)
    return Decimal(int(avro["scale"])) if kind == "decimal" else _form(kind, defined)


def _record(avro: Any, defined: dict[str, Form]) -> Form:
    made = Record()
    defined[avro["name"]] = made
    for field in avro["fields"]:
        form = _form(field["type"], defined)
        if is_name(avro["name"], field["name"]):
            form = Array(Name()) if isinstance(form, Array) else Name()
        made.add(postgres_name(field["name"]), form)
    source = defined.get(SOURCE.name)
    if avro["name"] == "Envelope" and isinstance(source, Record):
        return Envelope(made.fields, source.fields)
    return made


def is_name(record: str, field: str) -> bool:
    """Whether a field of the envelope, or of a key, has names of columns."""
    return (record, field) in (("Envelope", "unchanged"), (UNREPRESENTABLE.name, "column"))
