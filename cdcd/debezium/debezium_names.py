"""The names in Debezium's schemas.

Before: the prefix, and PostgreSQL's names of a table.
After: `event_schema` puts them into the schemas.
Source: Debezium's `DefaultTopicNamingStrategy` and `TopicNamingStrategy` (characters that a topic may not have).

Debezium gives two tables the same name if they differ only in characters that a topic may not have. cdcd's topics do
not (`sink.topics`): only the names of schemas follow Debezium.
"""

from __future__ import annotations

import re
from typing import Final

_SIZE_MAX: Final = 249
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")


def table_name(prefix: str, schema: str, table: str) -> str:
    """Debezium's name of a table's topic, which begins the names of its schemas."""
    return _FORBIDDEN.sub(_underscores, f"{prefix}.{schema}.{table}")[:_SIZE_MAX]


def _underscores(found: re.Match[str]) -> str:
    return "__" if found[0] > "\uffff" else "_"
