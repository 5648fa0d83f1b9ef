"""What people ask of the daemon: a logical message of prefix `cdcd`, which names what is wanted, and the table.

Before: `asking` writes one into the WAL. After: the daemon that has the slot finds it in its stream, and takes it into
the progress in the Kafka transaction that passes its place: it is neither lost nor taken twice.
"""

from __future__ import annotations

import json
from typing import Final

SNAPSHOT: Final = "snapshot"
"""Copy a table afresh."""
UNPARK: Final = "unpark"
"""Replay a table's parked events."""


def request(what: str, schema: str, table: str) -> str:
    """The content of the message that asks for `what`."""
    return json.dumps({what: {"schema": schema, "table": table}}, ensure_ascii=False)


def table_of(what: str, content: bytes) -> tuple[str, str] | None:
    """Schema and name of the table for which such a message asks for `what`; None if it asks for something else."""
    try:
        wanted = json.loads(content)[what]
        schema, table = wanted["schema"], wanted["table"]
    except (ValueError, KeyError, TypeError):
        return None
    return (schema, table) if isinstance(schema, str) and isinstance(table, str) else None
