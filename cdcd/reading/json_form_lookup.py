"""Builds the form that turns JSON into the values of an Avro schema, as `json_events.form_lookup` does the way there.

Before: the schema of a table. After: `json_translator` has the form of each of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cdcd.avro.avro_names import postgres_name
from cdcd.avro.envelope_fields import UNREPRESENTABLE
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
    Name,
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


def form_of(avro: Any, defined: dict[str, Form], names: Mapping[str, str]) -> Form:
    """The form of a type. `defined`: the records that have been met, by their names.

    `names`: Avro's names of the columns, by PostgreSQL's.
    """
    if isinstance(avro, list):
        return Nullable(form_of(avro[1], defined, names))
    if isinstance(avro, str):
        return defined[avro] if avro in defined else _SIMPLE[avro]()
    kind = avro["type"]
    if isinstance(kind, (dict, list)):
        return form_of(kind, defined, names)
    if kind == "record":
        made = Record()
        defined[avro["name"]] = made
        for field in avro["fields"]:
            form = form_of(field["type"], defined, names)
            if _is_name(avro["name"], field["name"]):
                form = Array(Name(names)) if isinstance(form, Array) else Name(names)
            made.add(postgres_name(field["name"]), form)
        return made
    if kind == "array":
        return Array(form_of(avro["items"], defined, names))
    if kind == "map":
        return Map(form_of(avro["values"], defined, names))
    kind = avro.get("logicalType", kind)
    if kind == "decimal":
        return Decimal(int(avro["precision"]), int(avro["scale"]))
    return form_of(kind, defined, names)


def _is_name(record: str, field: str) -> bool:
    """Whether a field of the envelope, or of a key, has names of columns."""
    return (record, field) in (("Envelope", "unchanged"), (UNREPRESENTABLE.name, "column"))
