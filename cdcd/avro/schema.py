"""The Avro schemas of a relation: its key record and its event envelope, as JSON text.

Before: `transaction.relations.Relation` and the codecs that `lookup` picked for its columns.
After: `registry` makes the text known to readers; `event_encoder` writes records of it, field by field in this order.
Source: Apache Avro specification; the design's section "The row event".

Every field of a row carries `pg_type` and `pg_typmod`, and `pg_name` where Avro's name is not PostgreSQL's: a reader
can rebuild the table's DDL. Only unions of null and one type occur, which Spark reads as nullable columns.
"""

from __future__ import annotations

import json
from typing import TypeAlias

from cdcd.avro.avro_names import field_names, namespace
from cdcd.avro.codecs.base import AvroType, Codec
from cdcd.avro.codecs.text_encoding import EscapingColumn
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

Fields: TypeAlias = "list[dict[str, object]]"

_FALLIBLE = ("decimal", "date", "time-micros", "timestamp-micros", "local-timestamp-micros")


def may_be_unrepresentable(codec: Codec) -> bool:
    """Some values of this type have no Avro form: NaN, infinity, 24:00, arrays of more than one dimension, ..."""
    if isinstance(codec, EscapingColumn):
        return True
    if isinstance(codec.schema, dict):
        return codec.schema.get("logicalType") in _FALLIBLE or codec.schema["type"] in ("array", "record", "map")
    return False


def envelope_schema(relation: ResolvedRelation, codecs: list[Codec], *, of_truncate: bool = False) -> str:
    """JSON of the event's schema: record `Envelope` in the namespace of the table.

    That of truncates has one field more, `truncate`. It is nullable, null if absent: either schema reads the other's
    events, and a registry takes both in any order.
    """
    row: Fields = []
    names = field_names([column.name for column in relation.columns])
    for column, name, codec in zip(relation.columns, names, codecs, strict=True):
        row.append(_nullable(name, codec.schema) | _of_postgresql(column, name))
    source: Fields = [
        _field("commit_lsn", "long"),
        _field("seq", "long"),
        _field("lsn", "long"),
        _field("xid", "long"),
        _field("commit_ts", {"type": "long", "logicalType": "timestamp-micros"}),
        _nullable("origin", "string"),
    ]
    envelope: Fields = [
        _field("op", "string"),
        _field("source", _record("Source", source)),
        _field("identity", "string"),
        _nullable("before", _record("Row", row)),
        _nullable("after", "Row"),
        _field("unchanged", {"type": "array", "items": "string"}),
        _field(
            "unrepresentable", {"type": "array", "items": _record("Unrepresentable", _texts("image", "column", "text"))}
        ),
    ]
    if of_truncate:
        options = [_field("cascade", "boolean"), _field("restart_identity", "boolean")]
        envelope.append(_nullable("truncate", _record("Truncate", options)))
    return _json(relation, _record("Envelope", envelope))


def key_schema(relation: ResolvedRelation, codecs: list[Codec]) -> str:
    """JSON of the key's schema: record `Key`, its fields the key's columns in the table's order.

    A column whose type has values that Avro cannot hold is nullable, and then the key ends in `unrepresentable`, so
    that even two such keys differ.
    """
    fields: Fields = []
    names = field_names([column.name for column in relation.columns])
    fallible = False
    for column, name, codec in zip(relation.columns, names, codecs, strict=True):
        if not column.in_key:
            continue
        field = _nullable(name, codec.schema) if may_be_unrepresentable(codec) else _field(name, codec.schema)
        fallible = fallible or may_be_unrepresentable(codec)
        fields.append(field | _of_postgresql(column, name))
    if fallible:
        items = _record("Unrepresentable", _texts("column", "text"))
        name = "unrepresentable"
        while name in {str(field["name"]).lower() for field in fields}:
            name = f"_{name}"
        fields.append(_field(name, {"type": "array", "items": items}))
    return _json(relation, _record("Key", fields))


def _field(name: str, avro_type: AvroType) -> dict[str, object]:
    return {"name": name, "type": avro_type}


def _nullable(name: str, avro_type: AvroType) -> dict[str, object]:
    return {"name": name, "type": ["null", avro_type], "default": None}


def _of_postgresql(column: ResolvedColumn, name: str) -> dict[str, object]:
    """What a reader needs to rebuild the column's DDL."""
    properties: dict[str, object] = {"pg_type": column.pgtype.qualified, "pg_typmod": column.typmod}
    return properties if name == column.name else properties | {"pg_name": column.name}


def _texts(*names: str) -> Fields:
    return [_field(name, "string") for name in names]


def _record(name: str, fields: Fields) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": fields}


def _json(relation: ResolvedRelation, record: dict[str, object]) -> str:
    record = {"type": "record", "name": record["name"], "namespace": namespace(relation.schema, relation.name)} | record
    return json.dumps(_define_once(record, {}), ensure_ascii=False, separators=(",", ":"))


def _define_once(avro_type: object, defined: dict[str, object]) -> object:
    """Replace every definition of a named type but the first by its name, as Avro demands.

    Another type of the same name (`a.b`.`c` and `a`.`b.c` are two) gets another one.
    """
    if isinstance(avro_type, list):
        return [_define_once(branch, defined) for branch in avro_type]
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
            fields = [field | {"type": _define_once(field["type"], defined)} for field in avro_type["fields"]]
            return avro_type | {"fields": fields}
        return avro_type
    nested = {part: _define_once(avro_type[part], defined) for part in ("items", "values") if part in avro_type}
    if isinstance(kind, (dict, list)):
        nested["type"] = _define_once(kind, defined)
    return avro_type | nested
