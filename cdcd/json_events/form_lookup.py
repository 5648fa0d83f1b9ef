"""Builds the JSON form of an Avro type.

Before: a codec of `avro.codecs` says its type. After: `values` has the form of each column.

The fields of JSON have PostgreSQL's names, which JSON can hold as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cdcd.avro.avro_names import postgres_name
from cdcd.json_events.forms import (
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
    "int": Int, "long": Int, "boolean": Boolean, "float": Float, "double": Double, "string": Text, "bytes": Bytes,
    "date": Date, "time-micros": Time, "timestamp-micros": lambda: Timestamp(with_zone=True),
    "local-timestamp-micros": lambda: Timestamp(with_zone=False), "uuid": Text,
}  # fmt: skip
"""By Avro's logical type where there is one, else by Avro's type."""


def form_of(avro: Any) -> Form:
    """The form of a type, as Python values for JSON have it."""
    return _form(avro, {})


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
        made.add(postgres_name(field["name"]), _form(field["type"], defined))
    return made
