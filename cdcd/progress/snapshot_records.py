"""How far the snapshot of each table is, on the topic `{prefix}.snapshots`: one record a table.

Before: `snapshot.encoder` says which rows it has encoded.
After: `sink.publisher` writes the record in the Kafka transaction that has the rows. At a start the record says what is
left to read.

The topic is compacted and small, and read whole. (The progress topic keeps a week of every commit, so the record of an
unchanged table is far back there.) The table's progress record repeats what readers need: the consistent point, and
whether the snapshot is finished. See `records.SnapshotState`.

A snapshot reads a table in ranges of blocks of its heap. PostgreSQL's exported snapshot is gone when the daemon dies;
the next one is later. A later start must know which finished ranges have changed rows. So the record keeps the xmin of
the first exported snapshot, and the file node of each heap (a rewrite moves every row). It also keeps which table had
the name: see `source.incarnations`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from cdcd.errors import GapError
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.records import SnapshotState, table_key
from cdcd.source.incarnations import Incarnation, parse_incarnation
from cdcd.source.pg_types import Attribute

VERSION: Final = 2

WANTED: Final = "wanted"
"""Kafka has no rows that count: the snapshot begins at the start."""
RUNNING: Final = "running"
DONE: Final = "done"
STOPPED: Final = "stopped"
"""A person has stopped it: Kafka has some of the rows, or none. It stays so until somebody asks for a new snapshot."""

COMPARE: Final = "compare"
"""Kafka's rows count, but some may differ: the table has to be compared with them."""
ROWS: Final = "rows"
"""The rows that differ are known: their repairs are recorded (`repair_records`)."""


@dataclass(frozen=True)
class CompletedRange:
    """Blocks of one heap (a table's, or a partition's) that are in Kafka."""

    heap: int
    """The OID of the table or partition."""
    file_node: int
    """The heap's file when the range was read: `pg_class.relfilenode`."""
    first: int
    end: int
    """Block numbers, end-exclusive."""


@dataclass(frozen=True)
class TableSnapshot:
    """The snapshot of one table."""

    slot: str
    topic: str
    schema: str
    table: str
    state: str
    """WANTED, RUNNING, DONE or STOPPED."""
    lsn: int
    """The consistent point of the newest snapshot that rows come from; 0 before the first row."""
    rows: int = 0
    """Rows published; a row that was read twice counts twice."""
    xmin: int = 0
    """The xmin of the first exported snapshot (64 bits): finished ranges may lack what later transactions wrote."""
    done: tuple[CompletedRange, ...] = ()
    starts_with_truncate: bool = False
    """The topic has rows of an earlier snapshot: this one starts with a truncate event."""
    key_columns: tuple[str, ...] | None = None
    """The key of the table's last events; empty: they have none; None: not known."""
    incarnation: Incarnation | None = None
    """The table that the rows in Kafka are from; None: not known."""
    added: Mapping[str, Attribute] = field(default_factory=dict)
    """By name, the columns of the last events that were added with a default. PostgreSQL forgets the default."""
    where: str = ""
    """The SQL condition of the rows that it publishes; empty: all rows."""
    repair: str = ""
    """COMPARE or ROWS, if the state is WANTED and the topic is to get only what differs. A cdcd that does not know this
    takes the snapshot, which is right, too."""

    def key(self) -> bytes:
        """Return the record's key."""
        return table_key(self.slot, self.topic)

    def value(self) -> bytes:
        """Return the record's value: JSON with sorted keys."""
        document: dict[str, object] = {
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
        if self.key_columns is not None:
            document["key_columns"] = list(self.key_columns)
        if self.incarnation is not None:
            document["incarnation"] = self.incarnation.document()
        if self.added:
            document["added"] = {
                name: [each.number, each.type_oid, each.missing_value] for name, each in self.added.items()
            }
        if self.where:
            document["where"] = self.where
        if self.repair:
            document["repair"] = self.repair
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @property
    def wants_all_rows(self) -> bool:
        """A new snapshot is wanted, and has not begun."""
        return self.state == WANTED and not self.repair

    @property
    def has_ended(self) -> bool:
        """No more rows come: it is complete, or a person has stopped it."""
        return self.state in (DONE, STOPPED)

    @property
    def snapshot(self) -> SnapshotState:
        """The part of it that the table's progress record repeats."""
        return SnapshotState(self.lsn, self.state == DONE, self.rows, self.state == STOPPED, self.where)

    def stopped(self) -> TableSnapshot:
        """Return the record of this snapshot once a person has stopped it."""
        return replace(self, state=STOPPED, done=(), starts_with_truncate=False, repair="")

    def with_range(self, added: CompletedRange) -> TableSnapshot:
        """Return this record with one more finished range; adjacent ranges become one."""
        merged: list[CompletedRange] = []
        for each in sorted([*self.done, added], key=lambda d: (d.heap, d.file_node, d.first)):
            last = merged[-1] if merged else None
            if last and (last.heap, last.file_node) == (each.heap, each.file_node) and each.first <= last.end:
                merged[-1] = replace(last, end=max(last.end, each.end))
            else:
                merged.append(each)
        return replace(self, done=tuple(merged))


PublishedTables: TypeAlias = "Mapping[tuple[str, str], Incarnation]"
"""The published tables as the catalog describes them, by schema and name."""

Choose: TypeAlias = "Callable[[str, str, Incarnation | None], TableSnapshot | None]"
"""Takes schema and name, and the table as the catalog describes it. Returns how far the table's snapshot is in Kafka;
None if a snapshot leaves the table out."""


def parse_snapshot_record(key: bytes, value: bytes) -> TableSnapshot:
    """Read one record; raises GapError if it cannot be understood: to guess could leave rows out."""
    try:
        document = json.loads(value)
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']}; this cdcd reads version {VERSION}")
        if document["state"] not in (WANTED, RUNNING, DONE, STOPPED):
            raise ValueError(f"state {document['state']!r}")
        if document.get("repair", "") not in ("", COMPARE, ROWS):
            raise ValueError(f"repair {document['repair']!r}")
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
            key_columns=tuple(map(str, document["key_columns"])) if "key_columns" in document else None,
            incarnation=parse_incarnation(document["incarnation"]) if "incarnation" in document else None,
            added={
                str(name): Attribute(int(number), int(type_oid), str(value))
                for name, (number, type_oid, value) in document.get("added", {}).items()
            },
            where=str(document.get("where", "")),
            repair=str(document.get("repair", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GapError(
            f"the snapshot record with the key {key.decode(errors='replace')!r} cannot be read: {error}",
            "Run the cdcd version that wrote it, and keep other producers off the snapshots topic",
            code="record-unreadable",
        ) from None


def wanted_snapshot(slot: str, topic: str, schema: str, table: str) -> TableSnapshot:
    """Return the record that asks for a new snapshot, which replaces all rows that the topic has."""
    return TableSnapshot(slot, topic, schema, table, WANTED, 0, starts_with_truncate=True)
