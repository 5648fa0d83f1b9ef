"""The Avro schemas of tables, and of events that are of no table, in the format that the settings choose.

Before: the settings. `table_schemas` makes those of cdcd's own format.
After: the registry is asked for them; `cdcd schema` prints or registers them.
"""

from __future__ import annotations

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.config.format_choice import debezium_modes
from cdcd.config.settings import Settings
from cdcd.debezium.relation_schemas import avro_texts, transaction_texts
from cdcd.debezium.relation_schemas import message_texts as debezium_messages
from cdcd.debezium.values.lookup import ValueLookup
from cdcd.reading.table_schemas import Describe, SchemaTexts, message_texts
from cdcd.transaction.record_consumer import TRANSACTIONS
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


def tableless_schemas(settings: Settings) -> list[SchemaTexts]:
    """Return the schemas of events that are of no table: logical messages, and the metadata of transactions."""
    if settings.sink.format == "cdcd":
        return [message_texts()]
    modes = debezium_modes(settings)
    found = [SchemaTexts(MESSAGES.schema, MESSAGES.name, *debezium_messages(modes), "")]
    return [*found, SchemaTexts(*TRANSACTIONS, *transaction_texts(), "")] if modes.transactions else found
