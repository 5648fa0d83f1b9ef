"""The Avro schemas of tables and messages in the format that the settings choose.

Before: the settings. `table_schemas` makes those of cdcd's own format.
After: the registry is asked for them; `cdcd schema` prints or registers them.
"""

from __future__ import annotations

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.config.format_choice import debezium_modes
from cdcd.config.settings import Settings
from cdcd.debezium.relation_schemas import avro_texts
from cdcd.debezium.relation_schemas import message_texts as debezium_messages
from cdcd.debezium.values.lookup import ValueLookup
from cdcd.reading.table_schemas import Describe, SchemaTexts, message_texts
from cdcd.transaction.relations import MESSAGES, ResolvedRelation


def schema_describer(settings: Settings) -> Describe | None:
    """Return what makes the schemas of relations; None: `table_schemas` itself does."""
    if settings.sink.format == "cdcd":
        return None
    modes, prefix = debezium_modes(settings), settings.sink.prefix

    def describe(relation: ResolvedRelation, encoding: str) -> tuple[str, str, str]:
        key, value = avro_texts(
            relation, ValueLookup(modes, TypeOptions.of_database("string", encoding)), prefix, modes
        )
        return key, value, ""

    return describe


def message_schemas(settings: Settings) -> SchemaTexts:
    """Return the schemas of logical messages."""
    if settings.sink.format == "cdcd":
        return message_texts()
    return SchemaTexts(MESSAGES.schema, MESSAGES.name, *debezium_messages(debezium_modes(settings)), "")
