"""Requests of people to the daemon: logical messages with the prefix `cdcd`. Each names an action and a table.

Before: a command (`cli.commands.daemon_request`) writes the message into the WAL.
After: the daemon finds the message in the slot's stream, and stores the request in the progress, in the Kafka
transaction that passes the position of the message. So no request is lost, and none is taken twice.

Every slot of the database has the message in its stream. The message therefore names the slot that it is for.
"""

from __future__ import annotations

import json
from typing import Final

SNAPSHOT: Final = "snapshot"
"""Take a new snapshot of a table."""
UNPARK: Final = "unpark"
"""Replay a table's parked events."""
DISCARD: Final = "discard"
"""Give a table's parked events up, and take a new snapshot of it."""


def request(what: str, schema: str, table: str, slot: str = "") -> str:
    """Return the content of the message that asks the daemon of `slot`, or without `slot` every daemon, for `what`."""
    to = {"slot": slot} if slot else {}
    return json.dumps({what: {"schema": schema, "table": table}, **to}, ensure_ascii=False)


def is_for(slot: str, content: bytes) -> bool:
    """Whether a message with this content is for the daemon of `slot`: it names the slot, or none."""
    try:
        to = json.loads(content)["slot"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return True
    return bool(to == slot)


def table_to_snapshot(content: bytes) -> tuple[str, str] | None:
    """Return schema and name of the table that is to get a new snapshot; None if the message asks for none."""
    return table_of(SNAPSHOT, content) or table_of(DISCARD, content)


def table_of(what: str, content: bytes) -> tuple[str, str] | None:
    """Return schema and name of the table for which the message asks `what`; None if it asks for something else."""
    try:
        wanted = json.loads(content)[what]
        schema, table = wanted["schema"], wanted["table"]
        names = schema.encode(), table.encode()  # a lone surrogate has no bytes: no table has such a name
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return (schema, table) if all(names) else None
