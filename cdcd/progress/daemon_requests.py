"""Requests of people to the daemon: rows of the table cdcd.requests. Each names an action, and a table or all.

Before: a command (`cli.commands.daemon_request`) inserts the row.
After: the daemon finds the row in the slot's stream, and stores the request in the progress, in the Kafka transaction
that passes the position of its commit. So no request is lost, and none is taken twice.

Every slot of the database has the row in its stream. The row therefore names the slot that it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdcd.progress.repair_records import PendingRepair, RepairKeys, pending_repair, read_keys

SNAPSHOT: Final = "snapshot"
"""Take a new snapshot of a table."""
UNPARK: Final = "unpark"
"""Replay a table's parked events."""
DISCARD: Final = "discard"
"""Give a table's parked events up, and take a new snapshot of it."""
REPAIR: Final = "repair"
"""Publish the rows of some keys of a table as they are in PostgreSQL."""

PAUSE: Final = "pause"
"""Read no more rows of snapshots, until somebody asks to resume them."""
RESUME: Final = "resume"
"""Let the snapshots go on."""

STOP: Final = "stop"
"""Read no more rows of a table, and take no snapshot of it until somebody asks for one."""

ALL_TABLES: Final = ("", "")
"""Schema and name in a request that is about all tables: PAUSE or RESUME."""

MESSAGES: Final = ("", "messages")
"""Schema and name that stand for the logical messages. No table has this schema; topics of the outbox have it, too."""


@dataclass(frozen=True)
class Request:
    """A request that can be understood."""

    action: str
    """SNAPSHOT, UNPARK, DISCARD, REPAIR, PAUSE, RESUME or STOP."""
    table: tuple[str, str]
    """Schema and name, or ALL_TABLES."""
    requested_by: str = ""
    """The role, as the row says."""
    repair: RepairKeys | None = None
    """The rows to repair; None if the action is not REPAIR."""

    def repair_record(self, slot: str, topic: str) -> PendingRepair | None:
        """The record of the repair that it asks for, for the table's topic; None if it asks for none."""
        return None if self.repair is None else pending_repair(slot, topic, *self.table, self.repair)

    @property
    def needs_published_table(self) -> bool:
        """It is about rows of the table."""
        return self.wants_snapshot or self.action in (REPAIR, STOP)

    @property
    def is_about_a_topic_alone(self) -> bool:
        """It is about a topic of the outbox, which has no table."""
        return not self.table[0] and self.table not in (MESSAGES, ALL_TABLES)

    @property
    def pauses_snapshots(self) -> bool | None:
        """Whether the snapshots are paused from here on; None if it says nothing of that."""
        return self.action == PAUSE if self.action in (PAUSE, RESUME) else None

    @property
    def wants_snapshot(self) -> bool:
        """The table is to get a new snapshot."""
        return self.action == SNAPSHOT or (self.action == DISCARD and bool(self.table[0]))


def read_request(row: Mapping[str, str]) -> Request:
    """Return the request of a row: its columns and their values. Raises ValueError, with the reason, if it is none."""
    for column in ("action", "table_schema", "table_name"):
        if column not in row:
            raise ValueError(f"it has no {column}, or one that is too long")
    action, table = row["action"], (row["table_schema"], row["table_name"])
    if action not in (SNAPSHOT, UNPARK, DISCARD, REPAIR, PAUSE, RESUME, STOP):
        raise ValueError("its action is unknown")
    if action in (PAUSE, RESUME):
        if table != ALL_TABLES:
            raise ValueError("it names a table, and all snapshots are paused or resumed together")
    elif not table[1] or (not table[0] and action in (SNAPSHOT, REPAIR, STOP)):
        raise ValueError("it names no table")
    repair = None
    if action == REPAIR:
        if "keys" not in row:
            raise ValueError("it has no keys, or too many")
        repair = read_keys(row["keys"])
    return Request(action, table, row.get("requested_by", ""), repair)
