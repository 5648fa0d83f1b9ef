"""How far the copy of each table has come, as it stands in Kafka on `{prefix}.snapshots`: a record a table.

Before: `snapshot.copier` says what it has read. After: `sink.publisher` writes it in the Kafka transaction that has the
rows; at start it says what is left to copy.

The topic is compacted and small, so that it is read whole: the progress topic keeps a week of every commit, and what
is said there of a table that nobody touches is far back. What readers need (the consistent point, and whether the copy
is whole) is in the table's progress record as well, see `record.SnapshotState`.

A copy is read in ranges of blocks of the table's heap, under a snapshot that is gone when the daemon dies. The next
snapshot is a later one. So that ranges which are done need not be read again, the record keeps what tells which of
their rows were changed since: the first snapshot's xmin, and each heap's file node (a rewrite moves every row).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from cdcd.errors import GapError
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.records import SnapshotState, table_key

VERSION: Final = 1

WANTED: Final = "wanted"
"""Nothing of it is in Kafka that counts: it is to be copied from the start."""
COPYING: Final = "copying"
DONE: Final = "done"


@dataclass(frozen=True)
class CompletedRange:
    """Blocks of one heap (a table's, or a partition's) that are in Kafka."""

    heap: int
    """The OID of the table or partition."""
    file_node: int
    """What it was stored in: `pg_class.relfilenode`."""
    first: int
    end: int
    """Block numbers, end-exclusive."""


@dataclass(frozen=True)
class TableSnapshot:
    """The copy of one table."""

    slot: str
    topic: str
    schema: str
    table: str
    state: str
    """WANTED, COPYING or DONE."""
    lsn: int
    """The consistent point of the newest snapshot that rows come from; 0 before the first row."""
    rows: int = 0
    """Rows published, those that were read twice included."""
    xmin: int = 0
    """Of the first snapshot (64 bits): what later transactions wrote may not be in the ranges that are done."""
    done: tuple[CompletedRange, ...] = ()
    starts_with_truncate: bool = False
    """Rows of an earlier snapshot are in the topic: this one starts with a truncate event."""

    def key(self) -> bytes:
        """The record's key."""
        return table_key(self.slot, self.topic)

    def value(self) -> bytes:
        """The record's value: JSON with sorted keys."""
        document = {
            "version": VERSION,
            "slot": self.slot,
            "topic": self.topic,
            "schema": self.schema,
            "table": self.table,
            "state": self.state,
            "lsn": format_lsn(self.lsn),
            "rows": self.rows,
            "xmin": self.xmin,
            "done": [[d.heap, d.file_node, d.first, d.end] for d in self.done],
            "starts_with_truncate": self.starts_with_truncate,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @property
    def snapshot(self) -> SnapshotState:
        """What the table's progress record says of it."""
        return SnapshotState(self.lsn, self.state == DONE, self.rows)

    def with_range(self, added: CompletedRange) -> TableSnapshot:
        """Return the same with one more range; adjacent ranges become one."""
        merged: list[CompletedRange] = []
        for each in sorted([*self.done, added], key=lambda d: (d.heap, d.file_node, d.first)):
            last = merged[-1] if merged else None
            if last and (last.heap, last.file_node) == (each.heap, each.file_node) and each.first <= last.end:
                merged[-1] = replace(last, end=max(last.end, each.end))
            else:
                merged.append(each)
        return replace(self, done=tuple(merged))


def parse_copy(key: bytes, value: bytes) -> TableSnapshot:
    """Read one record; raises GapError if it cannot be understood: guessing could leave rows out."""
    try:
        document = json.loads(value)
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']}; this cdcd reads version {VERSION}")
        if document["state"] not in (WANTED, COPYING, DONE):
            raise ValueError(f"state {document['state']!r}")
        return TableSnapshot(
            slot=document["slot"],
            topic=document["topic"],
            schema=document["schema"],
            table=document["table"],
            state=document["state"],
            lsn=parse_lsn(document["lsn"]),
            rows=int(document["rows"]),
            xmin=int(document["xmin"]),
            done=tuple(CompletedRange(*map(int, numbers)) for numbers in document["done"]),
            starts_with_truncate=bool(document["starts_with_truncate"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise GapError(
            f"the snapshot record with the key {key.decode(errors='replace')!r} cannot be read: {error}",
            "Run the cdcd version that wrote it, and keep other producers off the snapshots topic",
        ) from None


def wanted_again(slot: str, topic: str, schema: str, table: str) -> TableSnapshot:
    """A table that is to be copied afresh: the copy replaces what its topic says of it."""
    return TableSnapshot(slot, topic, schema, table, WANTED, 0, starts_with_truncate=True)
