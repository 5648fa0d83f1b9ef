"""Builds the form that turns JSON into the values of an Avro schema, as `json_events.form_lookup` does the way there.

Before: the schema of a table. After: `json_translator` has the form of each of its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cdcd.avro.avro_names import postgres_name
from cdcd.reading.json_forms import (
    Array,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Double,
    Float,
    Form,
    Int,
    Map,
    Nullable,
    Record,
    Text,
    Time,
    Timestamp,
)

_SIMPLE: Final[dict[str, Callable[[], Form]]] = {
    "int": lambda: Int(32), "long": lambda: Int(64), "boolean": Boolean, "float": Float, "double": Double,
    "string": Text, "bytes": Bytes, "date": Date, "time-micros": Time,
    "timestamp-micros": lambda: Timestamp(with_zone=True), "local-timestamp-micros": lambda: Timestamp(with_zone=False),
    "uuid": Text,
}  # fmt: skip
"""By Avro's logical type where there is one, else by Avro's type."""


def form_of(avro: Any, defined: dict[str, Form]) -> Form:
    """The form of a type. `defined`: the records that have been met, by their names."""
    if isinstance(avro, list):
        return Nullable(form_of(avro[1], defined))
    if isinstance(avro, str):
        return defined[avro] if avro in defined else _SIMPLE[avro]()
    kind = avro["type"]
    if isinstance(kind, (dict, list)):
        return form_of(kind, defined)
    if kind == "record":
        made = Record()
        defined[avro["name"]] = made
        for field in avro["fields"]:
            made.add(postgres_name(field["name"]), form_of(field["type"], defined))
        return made
    if kind == "array":
        return Array(form_of(avro["items"], defined))
    if kind == "map":
        return Map(form_of(avro["values"], defined))
    kind = avro.get("logicalType", kind)
    if kind == "decimal":
        return Decimal(int(avro["precision"]), int(avro["scale"]))
    return form_of(kind, defined)
