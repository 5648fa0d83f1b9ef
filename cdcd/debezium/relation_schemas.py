"""The schemas of a relation's events and keys.

Before: `field_writer` knows the columns of the relation.
After: `row_encoder` makes them known with the first event; `reading.table_schemas` asks for them without an event.
Source: Debezium's `TableSchemaBuilder`, and `ByLogicalTableRouter` for tables that share a topic.
"""

from __future__ import annotations

from cdcd.debezium.added_fields import AddedFields
from cdcd.debezium.avro_data import avro_schema
from cdcd.debezium.connect_schema import STRING, Schema
from cdcd.debezium.debezium_names import adjusted_field, adjusted_name, table_name
from cdcd.debezium.event_schema import (
    MESSAGE_KEY,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
    envelope_schema,
    key_schema,
    message_schema,
    row_schema,
)
from cdcd.debezium.field_writer import Field, fields_of, key_fields, table_field
from cdcd.debezium.modes import Modes
from cdcd.debezium.values.lookup import ValueLookup
from cdcd.debezium.values.scalars import Bytes
from cdcd.transaction.relations import ResolvedRelation


def relation_schemas(
    relation: ResolvedRelation, fields: list[Field], keys: list[Field], prefix: str, modes: Modes
) -> tuple[Schema, Schema]:
    """Connect's schemas of the events, or flat rows, and of the keys.

    `fields`: the relation's columns. `keys`: those of its key. If other tables share the topic, the schemas are named
    after it, so those of tables with equal columns are equal.
    """
    topic = relation.shared_topic or table_name(prefix, relation.schema, relation.name)
    name = adjusted_name(topic, modes.schema_names)
    shown = [field for field in fields if field.is_shown]
    columns, of_key = (
        [(adjusted_field(field.name, modes.field_names), field.schema) for field in each] for each in (shown, keys)
    )
    if named := table_field(relation, keys, modes):
        of_key.append((named, STRING))
    if modes.rows is not None:
        return row_schema(name, columns + AddedFields(modes.rows).schemas()), key_schema(name, of_key)
    return envelope_schema(name, columns), key_schema(name, of_key)


def header_schema(relation: ResolvedRelation, keys: list[Field], prefix: str, modes: Modes) -> Schema:
    """Connect's schema of a key in a header, which Debezium's router leaves as it is. `keys`: the key's columns."""
    name = adjusted_name(table_name(prefix, relation.schema, relation.name), modes.schema_names)
    return key_schema(name, [(adjusted_field(field.name, modes.field_names), field.schema) for field in keys])


def avro_texts(relation: ResolvedRelation, lookup: ValueLookup, prefix: str, modes: Modes) -> tuple[str, str]:
    """Return JSON of the Avro schemas of the keys and of the events; the former is empty if the relation has no key."""
    fields = fields_of(relation, lookup, modes, is_avro=True)
    keys = key_fields(relation, fields)
    envelope, key = relation_schemas(relation, fields, keys, prefix, modes)
    return avro_schema(key) if keys else "", avro_schema(envelope)


def message_texts(modes: Modes) -> tuple[str, str]:
    """As `avro_texts`, of logical messages."""
    return avro_schema(MESSAGE_KEY), avro_schema(message_schema(Bytes(modes.binary, "").schema))


def transaction_texts() -> tuple[str, str]:
    """As `avro_texts`, of the metadata of transactions."""
    return avro_schema(TRANSACTION_KEY), avro_schema(TRANSACTION_VALUE)
