"""The names in Debezium's schemas.

Before: the prefix, and PostgreSQL's names of a table.
After: `event_schema` puts them into the schemas.
Source: Debezium's `DefaultTopicNamingStrategy` and `TopicNamingStrategy` (characters that a topic may not have),
`SchemaNameAdjuster` and `FieldNameSelector` (names that Avro does not allow).

Debezium gives two tables the same name if they differ only in characters that a topic may not have. cdcd's topics do
not (`sink.topics`): only the names of schemas follow Debezium.
"""

from __future__ import annotations

import re
from typing import Final

from cdcd.debezium.modes import AdjustmentMode

_SIZE_MAX: Final = 249
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_NOT_OF_SCHEMAS = re.compile(r"[^A-Za-z0-9._]")
_NOT_OF_FIELDS = re.compile(r"[^A-Za-z0-9_]")


def table_name(prefix: str, schema: str, table: str) -> str:
    """Debezium's name of a table's topic, which begins the names of its schemas."""
    return _FORBIDDEN.sub(_underscores, f"{prefix}.{schema}.{table}")[:_SIZE_MAX]


def table_identifier(prefix: str, schema: str, table: str) -> str:
    """What tells a table from others that share its topic: Debezium's name of its own topic.

    No two tables have the same: names with characters for which Debezium writes `_`, or with a dot, stand in quotes.
    """
    if _PLAIN.fullmatch(schema) and _PLAIN.fullmatch(table):
        return f"{prefix}.{schema}.{table}"
    quoted = ['"' + name.replace('"', '""') + '"' for name in (schema, table)]
    return f"{prefix}.{'.'.join(quoted)}"


def adjusted_name(name: str, mode: AdjustmentMode) -> str:
    """The name of a schema, by `schema.name.adjustment.mode`: a part between dots may begin with a digit."""
    return _adjusted(name, mode, _NOT_OF_SCHEMAS)


def adjusted_field(name: str, mode: AdjustmentMode) -> str:
    """The name of a field, by `field.name.adjustment.mode`."""
    return _adjusted(name, mode, _NOT_OF_FIELDS)


def _adjusted(name: str, mode: AdjustmentMode, forbidden: re.Pattern[str]) -> str:
    if mode == "none":
        return name
    if mode == "avro":
        return ("_" if name[:1].isdigit() else "") + forbidden.sub(_underscores, name)
    made = "".join(_unit(char) if char == "_" or forbidden.match(char) else char for char in name)
    return _unit(made[0]) + made[1:] if made[:1].isdigit() else made


def _unit(char: str) -> str:
    """The UTF-16 units of a character, each as `_uXXXX`."""
    units = char.encode("utf-16-be")
    return "".join(f"_u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _underscores(found: re.Match[str]) -> str:
    return "__" if found[0] > "\uffff" else "_"
