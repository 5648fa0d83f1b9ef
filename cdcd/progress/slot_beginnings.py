"""Where a slot's stream begins, on the topic `{prefix}.snapshots`: one record a slot.

Before: `sink.publisher` writes the record in the Kafka transaction of the slot's first slot record.
After: a start that finds no slot record, but this one, knows that the progress is lost (`continuity`). It shows slots
of other databases that publish under the same prefix, too.

The key is the slot's name: no key of a table's snapshot is like it, because these have a `/`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from cdcd.errors import GapError
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.records import slot_key

VERSION: Final = 1


@dataclass(frozen=True)
class SlotBeginning:
    """The beginning of one slot's stream."""

    slot: str
    system_id: str
    """The PostgreSQL cluster's, as IDENTIFY_SYSTEM writes it."""
    database_oid: int
    """The slot's database; 0: not known."""
    lsn: int
    """The stream has every change that was committed from there on; snapshots have the earlier ones."""

    def key(self) -> bytes:
        """Return the record's key."""
        return slot_key(self.slot)

    def value(self) -> bytes:
        """Return the record's value: JSON with sorted keys."""
        document = {
            "version": VERSION,
            "slot": self.slot,
            "system_id": self.system_id,
            "database_oid": self.database_oid,
            "lsn": format_lsn(self.lsn),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def parse_beginning(key: bytes, value: bytes) -> SlotBeginning:
    """Read one record; raises GapError if it cannot be understood."""
    try:
        document = json.loads(value)
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']}; this cdcd reads version {VERSION}")
        return SlotBeginning(
            slot=document["slot"],
            system_id=document["system_id"],
            database_oid=int(document["database_oid"]),
            lsn=parse_lsn(document["lsn"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GapError(
            f"the record with the key {key.decode(errors='replace')!r} on the snapshots topic cannot be read: {error}",
            "Run the cdcd version that wrote it, and keep other producers off the snapshots topic",
            code="record-unreadable",
        ) from None
