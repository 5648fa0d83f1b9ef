"""What tables hold after so many transactions, and where it lies in their files.

Before: `sql` keeps the ledger. After: `snapshots` reads rows off the files as a COPY would; `snapshots_checker` folds
what is in Kafka by the same rules, and compares.

An update or delete of a row that is not there changes no row, but an update of a keyed one makes it: the sessions of
`sql` invent their rows, and this is how the invented ones become a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from zlib import crc32

from sim.sql import Committed, Database, Event, Rekeyed

Row = dict[str, Any]
Identity = tuple[Any, ...] | int
"""Of a row: the values of its key, or a number where the table has none."""


DEFAULT: Final = "default"
"""Of the columns that are added with a new key."""


class Fold:
    """The rows of one table, event by event."""

    def __init__(self) -> None:
        self.rows: dict[Identity, Row] = {}
        self._numbers = count()
        self._deleted: Row = {}
        """The row of the last delete: an update of the key is that, and then an insert that may name columns of it."""

    def apply(
        self, op: str, key: Mapping[str, Any] | None, before: Row | None, after: Row | None, same: list[str]
    ) -> Identity | None:
        """Take an event; `same` are the columns of `after` that are as they were. Returns the row that it has made."""
        if op == "t":
            self.rows.clear()
            return None
        identity: Identity = next(self._numbers) if key is None else tuple(key.values())
        old = self._find(before) if key is None and before is not None else identity
        if op == "d":
            self._deleted = self.rows.pop(old, {})
            return None
        base = self.rows.get(old, {}) if op == "u" else self._deleted
        row = {name: base.get(name) if name in same else value for name, value in (after or {}).items()}
        if old != identity:
            self.rows.pop(old, None)
        self.rows[identity] = row
        return identity

    def rekey(self, key: tuple[str, ...]) -> dict[Identity, Identity]:
        """Give the rows another key: a column that is new has a default. Returns the identities of before, by those of
        now.
        """
        before: dict[Identity, Identity] = {}
        rows: dict[Identity, Row] = {}
        for identity, row in self.rows.items():
            filled = row | {name: DEFAULT for name in key if row.get(name) is None}
            now = tuple(filled[name] for name in key)
            rows[now], before[now] = filled, identity
        self.rows = rows
        return before

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
        rows = self.fold.rows
        made = self.fold.apply(event.op, event.key, event.before, event.after, event.unchanged)
        if event.op == "t":
            self.node += 1
            self.places.clear()
        if made is not None:
            self.places[made] = Place(self._block(made), xid)
        if len(self.places) > len(rows):
            self.places = {identity: self.places[identity] for identity in rows}

    def rekey(self, key: tuple[str, ...]) -> None:
        """The table gets another key. Its rows stay where they are."""
        before = self.fold.rekey(key)
        self.places = {identity: self.places[before[identity]] for identity in self.fold.rows}

    def rewrite(self) -> None:
        """Into another file, in another order."""
        self.node += 1
        self.places = {identity: Place(self._anywhere(), self.places[identity].xid) for identity in self.fold.rows}

    def copy(self) -> File:
        """As it is now; only to be read."""
        found = File()
        found.fold.rows.update(self.fold.rows)
        found.node = self.node
        found.places.update(self.places)
        return found

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


class Steps:
    """What transactions do to tables, in order: events, and ALTER TABLEs that change the key."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._at = 0

    def of(self, committed: Committed) -> Iterator[Event | Rekeyed]:
        """The steps of the next transaction of the ledger, after those of transactions that have no events."""
        for number, event in enumerate(committed.events):
            yield from self._rekeyed(committed.commit_lsn, number)
            if event.op != "m":
                yield event
        yield from self._rekeyed(committed.commit_lsn, len(committed.events))

    def left(self, before_lsn: int = 1 << 64) -> Iterator[Rekeyed]:
        """The steps after the last transaction of the ledger, of transactions that committed before this LSN."""
        yield from self._rekeyed(before_lsn, 0)

    def _rekeyed(self, lsn: int, at: int) -> Iterator[Rekeyed]:
        rekeyed = self._database.rekeyed
        while self._at < len(rekeyed) and (rekeyed[self._at].commit_lsn, rekeyed[self._at].at) <= (lsn, at):
            self._at += 1
            yield rekeyed[self._at - 1]


class Files:
    """The files of all tables, by OID."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._files: dict[int, File] = {}
        self._committed = 0
        self._rewritten = 0
        """How many transactions of the ledger, and how many rewrites, they hold."""
        self._steps = Steps(database)

    def now(self) -> Mapping[int, File]:
        """As everything that has committed left them: only until the next one commits."""
        ledger, rewrites = self._database.ledger, self._database.rewrites
        while self._committed < len(ledger):
            committed = ledger[self._committed]
            self._committed += 1
            while self._rewritten < len(rewrites) and rewrites[self._rewritten][0] <= committed.commit_lsn:
                self._rewrite_next()
            for step in self._steps.of(committed):
                if isinstance(step, Rekeyed):
                    self._file(step.oid).rekey(step.key)
                else:
                    self._file(step.oid).apply(committed.xid, step)
        for rekeyed in self._steps.left():
            self._file(rekeyed.oid).rekey(rekeyed.key)
        while self._rewritten < len(rewrites):
            self._rewrite_next()
        return self._files

    def _rewrite_next(self) -> None:
        self._file(self._database.rewrites[self._rewritten][1]).rewrite()
        self._rewritten += 1

    def _file(self, oid: int) -> File:
        return self._files.setdefault(oid, File())


def rows_of(file: File, first: int, end: int | None, since: int | None) -> Iterator[Row]:
    """The rows in blocks `first` to `end` (exclusive; None: all behind), written by `since` or later."""
    for identity, place in sorted(file.places.items(), key=lambda each: (each[1].block, str(each[0]))):
        if first <= place.block and (end is None or place.block < end) and (since is None or place.xid >= since):
            yield file.fold.rows[identity]
