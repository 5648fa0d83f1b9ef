"""What tables hold after so many transactions, and where it lies in their files.

Before: `sql` keeps the ledger. After: `snapshots` reads rows off the files as a COPY would; `snapshots_checker` folds
what is in Kafka by the same rules, and compares.

An update or delete of a row that is not there changes no row, but an update of a keyed one makes it: the sessions of
`sql` invent their rows, and this is how the invented ones become a table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any
from zlib import crc32

from sim.sql import Database

Row = dict[str, Any]
Identity = tuple[Any, ...] | int
"""Of a row: the values of its key, or a number where the table has none."""


class Fold:
    """The rows of one table, event by event."""

    def __init__(self) -> None:
        self.rows: dict[Identity, Row] = {}
        self._numbers = count()
        self._deleted: Row = {}
        """The row of the last delete: an update of the key is that, and then an insert that may name columns of it."""

    def apply(
        self, op: str, key: Mapping[str, Any] | None, before: Row | None, after: Row | None, same: list[str]
    ) -> None:
        """Take an event; `same` are the columns of `after` that are as they were."""
        if op == "t":
            self.rows.clear()
            return
        identity: Identity = next(self._numbers) if key is None else tuple(key.values())
        old = self._find(before) if key is None and before is not None else identity
        if op == "d":
            self._deleted = self.rows.pop(old, {})
            return
        base = self.rows.get(old, {}) if op == "u" else self._deleted
        row = {name: base.get(name) if name in same else value for name, value in (after or {}).items()}
        if old != identity:
            self.rows.pop(old, None)
        self.rows[identity] = row

    def _find(self, before: Row) -> Identity:
        return next((number for number, row in self.rows.items() if row == before), -1)


@dataclass(frozen=True)
class Place:
    """Of a row in its file: the block, and the transaction that wrote it there."""

    block: int
    xid: int


class File:
    """The rows of one table as they lie on disk."""

    ROWS = 3
    """In a block, about."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.node = 1
        self.places: dict[Identity, Place] = {}
        self._chance = 0

    def apply(self, xid: int, event: Any) -> None:
        """Take an event of a transaction."""
        before = dict(self.fold.rows)
        self.fold.apply(event.op, event.key, event.before, event.after, event.unchanged)
        if event.op == "t":
            self.node += 1
        for identity, row in self.fold.rows.items():
            if before.get(identity) is not row:
                self.places[identity] = Place(self._block(identity), xid)
        self.places = {identity: self.places[identity] for identity in self.fold.rows}

    def rewrite(self) -> None:
        """Into another file, in another order."""
        self.node += 1
        self.places = {identity: Place(self._anywhere(), place.xid) for identity, place in self.places.items()}

    @property
    def blocks(self) -> int:
        return max((place.block for place in self.places.values()), default=-1) + 1

    def _block(self, identity: Identity) -> int:
        """Where it was, or anywhere where there may be room: by chance, but the same whoever asks."""
        known = self.places.get(identity)
        block = self._anywhere()
        return known.block if known is not None and self._chance % 2 else block

    def _anywhere(self) -> int:
        self._chance += 1
        return crc32(b"%d" % self._chance) % (len(self.places) // self.ROWS + 1)


def table_of(name: tuple[str, str]) -> tuple[str, str]:
    """The first name of a table that may have been renamed: see `sql`, which only appends to it."""
    return name[0], name[1].rstrip("x")


def files(database: Database) -> dict[tuple[str, str], File]:
    """The files as everything that has committed left them, by the first name of their table."""
    found: dict[tuple[str, str], File] = {}
    rewrites = deque(database.rewrites)
    for committed in database.ledger:
        while rewrites and rewrites[0][0] <= committed.commit_lsn:
            found.setdefault(table_of(rewrites.popleft()[1]), File()).rewrite()
        for event in committed.events:
            if event.op != "m":
                found.setdefault(table_of(event.table), File()).apply(committed.xid, event)
    for _, name in rewrites:
        found.setdefault(table_of(name), File()).rewrite()
    return found


def rows_of(file: File, first: int, end: int | None, since: int | None) -> Iterator[Row]:
    """The rows in blocks `first` to `end` (exclusive; None: all behind), written by `since` or later."""
    for identity, place in sorted(file.places.items(), key=lambda each: (each[1].block, str(each[0]))):
        if first <= place.block and (end is None or place.block < end) and (since is None or place.xid >= since):
            yield file.fold.rows[identity]
