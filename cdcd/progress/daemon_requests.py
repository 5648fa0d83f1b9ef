"""What people ask of the daemon: a logical message of prefix `cdcd`, which names what is wanted, and the table.

Before: `daemon_request` writes one into the WAL.
After: the daemon that has the slot finds it in its stream, and takes it into
the progress in the Kafka transaction that passes its place: it is neither lost nor taken twice.

Every slot of the database has it in its stream. So it names the slot that it is for.
"""

from __future__ import annotations

import json
from typing import Final

SNAPSHOT: Final = "snapshot"
"""Copy a table afresh."""
UNPARK: Final = "unpark"
"""Replay a table's parked events."""
DISCARD: Final = "discard"
"""Give a table's parked events up, and copy it afresh."""


def request(what: str, schema: str, table: str, slot: str = "") -> str:
    """The content of the message that asks the daemon of `slot` for `what`; without `slot`, all of them."""
    to = {"slot": slot} if slot else {}
    return json.dumps({what: {"schema": schema, "table": table}, **to}, ensure_ascii=False)


def is_for(slot: str, content: bytes) -> bool:
    """Whether such a message asks the daemon of `slot` for something, and not that of another."""
    try:
        to = json.loads(content)["slot"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return True
    return bool(to == slot)


def to_copy(content: bytes) -> tuple[str, str] | None:
    """Schema and name of the table of which such a message asks for a fresh copy; None if it does not."""
    return table_of(SNAPSHOT, content) or table_of(DISCARD, content)


def table_of(what: str, content: bytes) -> tuple[str, str] | None:
    """Schema and name of the table for which such a message asks for `what`; None if it asks for something else."""
    try:
        wanted = json.loads(content)[what]
        schema, table = wanted["schema"], wanted["table"]
        names = schema.encode(), table.encode()  # half a character has no bytes, and no table such a name
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return (schema, table) if all(names) else None
