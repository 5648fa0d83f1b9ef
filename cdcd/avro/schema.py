"""The Avro schemas of a relation: its key record and its event envelope, as JSON text.

Before: `transaction.relations` has resolved the relation; `codecs.lookup` has chosen the codecs of its columns.
After: a SchemaStore makes the text known to readers; `event_encoder` writes records of this schema.
Source: Apache Avro specification, "Schema Declaration".

Every field of a row has the properties `pg_type` and `pg_typmod`, and `pg_name` if Avro's name differs from
PostgreSQL's. From these a reader can rebuild the table's DDL. Every union is of null and one type: Spark reads it as a
nullable column.

A column that was added with a default has `pg_missing_value`, too: the default at that moment, as PostgreSQL's text.
Older rows hold it, and no event says so: it is the value in each row whose last event lacks the column.

A column whose values are masked has `pg_masked`, and the type of the masked values. A row that lacks columns of the
table has `pg_left_out`. So a reader knows that the table itself has other values.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

from cdcd.avro.avro_names import field_names, namespace
from cdcd.avro.codecs.base import AvroType, Codec
from cdcd.avro.envelope_fields import (
    ENVELOPE,
    KEY_UNREPRESENTABLE,
    ROW,
    SHARING_SOURCE,
    TABLE,
    TIMESTAMP,
    TRUNCATE_ENVELOPE,
    EnvelopeField,
    FieldType,
    ListType,
    RecordType,
)
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

Fields: TypeAlias = "list[dict[str, object]]"


def envelope_schema(relation: ResolvedRelation, codecs: list[Codec], *, of_truncate: bool = False) -> str:
    """JSON of the event's schema: record `Envelope` in the namespace of the table.

    The schema of truncates has one more field, `truncate`, with the default null. So a reader with either schema can
    read the events of both, and a registry accepts both in any order.
    """
    names = field_names([column.name for column in relation.columns])
    row: Fields = []
    for column, name, codec in zip(relation.columns, names, codecs, strict=True):
        row.append(_nullable(name, codec.schema) | _postgres_properties(column, name) | _missing_value(column))
    left_out: dict[str, object] = {"pg_left_out": True} if relation.leaves_out else {}
    envelope: Sequence[EnvelopeField] = TRUNCATE_ENVELOPE if of_truncate else ENVELOPE
    if relation.shared_topic:
        envelope = [each._replace(type=SHARING_SOURCE) if each.name == "source" else each for each in envelope]
    fields = _fields(envelope, _record(ROW, row) | left_out)
    return _json(relation, _record("Envelope", fields))


def key_schema(relation: ResolvedRelation, codecs: list[Codec]) -> str:
    """JSON of the key's schema: a record `Key` of the key's columns, in the table's order.

    If Avro cannot hold every value of a column (`is_fallible`), the column is nullable, and the key ends with the field
    `unrepresentable`. So two keys differ even if Avro can hold neither value. If other tables share the topic, the key
    begins with the fields `__schema` and `__table`.
    """
    fields: Fields = []
    for column, name, codec in _key_columns(relation, codecs):
        field = _nullable(name, codec.schema) if codec.is_fallible else _field(name, codec.schema)
        fields.append(field | _postgres_properties(column, name))
    others = other_fields(relation, codecs)
    if others.losses:
        fields.append(_field(others.losses, _avro_type(ListType(KEY_UNREPRESENTABLE), {})))
    if others.table:
        fields = [_field(n, _avro_type(each.type, {})) for n, each in zip(others.table, TABLE, strict=True)] + fields
    return _json(relation, _record("Key", fields))


class OtherFields(NamedTuple):
    """The names of a key's fields that are no columns: no column of the key has them."""

    losses: str
    """Of the field `unrepresentable`; empty: Avro can hold every key."""
    table: tuple[str, ...]
    """Of those that name the table; empty: no other table shares the topic."""


def other_fields(relation: ResolvedRelation, codecs: list[Codec]) -> OtherFields:
    """The fields of the relation's key that are no columns."""
    key = _key_columns(relation, codecs)
    columns = {name.lower() for _, name, _ in key}
    is_fallible = any(codec.is_fallible for _, _, codec in key)
    return OtherFields(
        _other_name("unrepresentable", columns) if is_fallible else "",
        tuple([_other_name(f"__{each.name}", columns) for each in TABLE]) if relation.shared_topic else (),
    )


def _other_name(name: str, columns: Collection[str]) -> str:
    """A name for a field that is no column, which no column (in lower case) has."""
    while name in columns:
        name = f"_{name}"
    return name


def _key_columns(relation: ResolvedRelation, codecs: list[Codec]) -> list[tuple[ResolvedColumn, str, Codec]]:
    """The columns of the key, with their Avro names."""
    names = field_names([column.name for column in relation.columns])
    return [each for each in zip(relation.columns, names, codecs, strict=True) if each[0].in_key]


def _fields(fields: Sequence[EnvelopeField], row: dict[str, object]) -> Fields:
    """Avro's form of `fields`, which `envelope_fields` lists. `row` is the record of the table's columns."""
    return [
        _nullable(field.name, _avro_type(field.type, row))
        if field.is_nullable
        else _field(field.name, _avro_type(field.type, row))
        for field in fields
    ]


def _avro_type(kind: FieldType, row: dict[str, object]) -> AvroType:
    if isinstance(kind, RecordType):
        return _record(kind.name, _fields(kind.fields, row))
    if isinstance(kind, ListType):
        return {"type": "array", "items": _avro_type(kind.items, row)}
    if kind == ROW:
        return row
    return {"type": "long", "logicalType": TIMESTAMP} if kind == TIMESTAMP else kind


def _field(name: str, avro_type: AvroType) -> dict[str, object]:
    return {"name": name, "type": avro_type}


def _nullable(name: str, avro_type: AvroType) -> dict[str, object]:
    return {"name": name, "type": ["null", avro_type], "default": None}


def _postgres_properties(column: ResolvedColumn, name: str) -> dict[str, object]:
    """The properties from which a reader can rebuild the column's DDL."""
    properties: dict[str, object] = {"pg_type": column.pgtype.qualified, "pg_typmod": column.typmod}
    if column.is_masked:
        properties["pg_masked"] = True
    return properties if name == column.name else properties | {"pg_name": column.name}


def _missing_value(column: ResolvedColumn) -> dict[str, object]:
    """The property of a column that is younger than rows of its table."""
    return {} if column.missing_value is None else {"pg_missing_value": column.missing_value}


def _record(name: str, fields: Fields) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": fields}


def _json(relation: ResolvedRelation, record: dict[str, object]) -> str:
    record = {"type": "record", "name": record["name"], "namespace": namespace(relation.schema, relation.name)} | record
    return json.dumps(define_once(record, {}), ensure_ascii=False, separators=(",", ":"))


def define_once(avro_type: object, defined: dict[str, object]) -> object:
    """Keep the first definition of each named type, and replace the others by its name, as Avro demands.

    Different types may share a name (`a.b`.`c` and `a`.`b.c`). Then the second type gets another name.
    """
    if isinstance(avro_type, list):
        return [define_once(branch, defined) for branch in avro_type]
    if not isinstance(avro_type, dict):
        return avro_type
    kind = avro_type.get("type")
    if kind in ("record", "enum", "fixed"):
        name = str(avro_type["name"])
        while name in defined and defined[name] != avro_type:
            name += "_"
        if name in defined:
            return name
        defined[name] = avro_type
        avro_type = avro_type | {"name": name}
        if kind == "record":
            fields = [field | {"type": define_once(field["type"], defined)} for field in avro_type["fields"]]
            return avro_type | {"fields": fields}
        return avro_type
    nested = {part: define_once(avro_type[part], defined) for part in ("items", "values") if part in avro_type}
    if isinstance(kind, (dict, list)):
        nested["type"] = define_once(kind, defined)
    return avro_type | nested
