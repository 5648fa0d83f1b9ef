"""Requests of people to the daemon: rows of the table cdcd.requests. Each names an action and a table.

Before: a command (`cli.commands.daemon_request`) inserts the row.
After: the daemon finds the row in the slot's stream, and stores the request in the progress, in the Kafka transaction
that passes the position of its commit. So no request is lost, and none is taken twice.

Every slot of the database has the row in its stream. The row therefore names the slot that it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SNAPSHOT: Final = "snapshot"
"""Take a new snapshot of a table."""
UNPARK: Final = "unpark"
"""Replay a table's parked events."""
DISCARD: Final = "discard"
"""Give a table's parked events up, and take a new snapshot of it."""

MESSAGES: Final = ("", "messages")
"""Schema and name that stand for the logical messages: no table has this schema."""


@dataclass(frozen=True)
class Request:
    """A request that can be understood."""

    action: str
    """SNAPSHOT, UNPARK or DISCARD."""
    table: tuple[str, str]
    """Schema and name."""
    requested_by: str = ""
    """The role, as the row says."""

    @property
    def wants_snapshot(self) -> bool:
        """The table is to get a new snapshot."""
        return self.action == SNAPSHOT or (self.action == DISCARD and self.table != MESSAGES)


def read_request(row: Mapping[str, str]) -> Request:
    """Return the request of a row: its columns and their values. Raises ValueError, with the reason, if it is none."""
    for column in ("action", "table_schema", "table_name"):
        if column not in row:
            raise ValueError(f"it has no {column}, or one that is too long")
    action, table = row["action"], (row["table_schema"], row["table_name"])
    if action not in (SNAPSHOT, UNPARK, DISCARD):
        raise ValueError("its action is unknown")
    if not all(table) and (table != MESSAGES or action == SNAPSHOT):
        raise ValueError("it names no table")
    return Request(action, table, row.get("requested_by", ""))
