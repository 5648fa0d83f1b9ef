"""Walks an Avro type, and makes something of each of its parts.

Before: a codec or a schema says the type. After: `json_events.form_lookup` makes the forms that write JSON, and
`reading.json_form_lookup` those that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cdcd.avro.avro_names import postgres_name

Made = TypeVar("Made")


@dataclass(frozen=True)
class Makers(Generic[Made]):
    """What is made of each kind of type."""

    simple: Mapping[str, Callable[[], Made]]
    """By Avro's logical type where there is one, else by Avro's type."""
    decimal: Callable[[int, int], Made]
    """Of precision and scale."""
    nullable: Callable[[Made], Made]
    array: Callable[[Made], Made]
    map: Callable[[Made], Made]
    record: Callable[[], tuple[Made, Callable[[str, Made], None]]]
    """A record without fields, and what adds one: its name is PostgreSQL's."""


def made_of(avro: Any, makers: Makers[Made]) -> Made:
    """What these makers make of a type, as Python values for JSON have it."""
    return _made(avro, makers, {})


def _made(avro: Any, makers: Makers[Made], defined: dict[str, Made]) -> Made:
    """`defined`: the records that have been met, by their names."""
    if isinstance(avro, list):
        return makers.nullable(_made(avro[1], makers, defined))
    if isinstance(avro, str):
        return defined[avro] if avro in defined else makers.simple[avro]()
    kind = avro["type"]
    if isinstance(kind, (dict, list)):
        return _made(kind, makers, defined)
    if kind == "record":
        made, add = makers.record()
        defined[avro["name"]] = made
        for field in avro["fields"]:
            add(postgres_name(field["name"]), _made(field["type"], makers, defined))
        return made
    if kind == "array":
        return makers.array(_made(avro["items"], makers, defined))
    if kind == "map":
        return makers.map(_made(avro["values"], makers, defined))
    kind = avro.get("logicalType", kind)
    if kind == "decimal":
        return makers.decimal(int(avro["precision"]), int(avro["scale"]))
    return _made(kind, makers, defined)
