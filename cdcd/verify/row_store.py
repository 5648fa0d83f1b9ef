"""Replays a table's events into its rows, in a file: what is kept of a row is enough to compare it, not to show it.

Before: `commit_order` hands on events in the order of their commits. After: `verify` compares the rows by checksums.

Of a value stands a *piece*: its length and text while it is short, else its digest. So a row takes as much room as it
has columns, however large its values are, and the server makes the same pieces in SQL (`source.checksums`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHORT: Final = 40
"""Bytes of a value, in UTF-8, up to which it is its own piece."""
BUCKET_DIGITS: Final = 3
"""Hex digits of the key's digest that say which part of the table a row is in: 4,096 parts."""
SUM_DIGITS: Final = 15
"""Hex digits of a row's digest that are summed up: a number below 2**60."""

NULL: Final = "-"
UNKNOWN: Final = "?"
"""The topic does not hold the value, because it does not reach back far enough. Equal to nothing."""


def piece(text: str | None) -> str:
    """What stands for a value, by its text; None is null."""
    if text is None:
        return NULL
    size = len(_bytes(text))
    return f"{size}:{text}" if size <= SHORT else f"#{_md5(text)}"


def shown(piece_: str) -> str | None:
    """A piece for people: the value while it is short; None is null."""
    if piece_ == NULL:
        return None
    return f"md5 {piece_[1:]}" if piece_[0] == "#" else piece_.partition(":")[2]


def bucket_of(key: str) -> str:
    """Which part of the table a row with this key (its pieces, joined) is in."""
    return _md5(key)[:BUCKET_DIGITS]


def digest(pieces: Sequence[str]) -> str:
    """The digest of a row or of a key."""
    return _md5("".join(pieces))


def _md5(text: str) -> str:
    return hashlib.md5(_bytes(text), usedforsecurity=False).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Part:
    """The checksum of a part of a table."""

    rows: int
    sum: int


class RowStore:
    """The rows of one table. `key`: which of the columns are the key, none where rows are told apart by all of them."""

    def __init__(self, path: Path, key: Sequence[int]) -> None:
        """Make the file; it must not exist."""
        self._key = tuple(key)
        self._sql = sqlite3.connect(path, isolation_level=None)
        self._sql.executescript(
            """
            PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;
            CREATE TABLE rows (key TEXT PRIMARY KEY, place INT, pieces TEXT, times INT) WITHOUT ROWID;
            BEGIN;
            """
        )
        self._gone: tuple[tuple[int, int, int], list[str] | None] = ((0, 0, 0), None)
        """The last row that was removed, and by what: LSN and seq of the event, LSN of the change."""

    @property
    def keyed(self) -> bool:
        """Whether rows are told apart by a key."""
        return bool(self._key)

    def put(
        self, place: int, lsn: int, seq: int, pieces: list[str | None], *, fresh: bool, change_lsn: int = 0
    ) -> None:
        """A row is as it says after a change at (`lsn`, `seq`); what is None, the change left as it was.

        `fresh`: there was none with this key before; what was left is then the value of the row deleted just before, if
        it was by the same change, the one at `change_lsn`; else nobody knows it.
        """
        if not self._key:
            self._count(place, [piece or UNKNOWN for piece in pieces], 1)
            return
        key = "".join(pieces[index] or UNKNOWN for index in self._key)
        if None in pieces:
            by, gone = self._gone
            before = self._pieces(key) if not fresh else gone if by == (lsn, seq - 1, change_lsn) else None
            known = before or [UNKNOWN] * len(pieces)
            pieces = [part or known[index] for index, part in enumerate(pieces)]
        self._sql.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, 1)", (key, place, json.dumps(pieces)))

    def remove(self, place: int, lsn: int, seq: int, pieces: list[str], *, change_lsn: int = 0) -> None:
        """A row is gone; of `pieces` only the key need be right, where there is one."""
        if not self._key:
            self._count(place, pieces, -1)
            return
        key = "".join(pieces[index] for index in self._key)
        self._gone = (lsn, seq, change_lsn), self._pieces(key)
        self._sql.execute("DELETE FROM rows WHERE key = ?", (key,))

    def truncate(self, place: int) -> None:
        """All rows of a partition are gone: a truncate comes in every partition."""
        self._sql.execute("DELETE FROM rows WHERE place = ?", (place,))

    def finish(self) -> dict[str, Part]:
        """Everything was read: returns the checksum of each part that has rows."""
        self._sql.execute("DELETE FROM rows WHERE times = 0")
        self._sql.create_function("bucket_of", 1, bucket_of, deterministic=True)
        self._sql.execute("ALTER TABLE rows ADD COLUMN bucket TEXT")
        self._sql.execute("UPDATE rows SET bucket = bucket_of(key)")
        self._sql.execute("CREATE INDEX buckets ON rows (bucket)")
        self._sql.execute("COMMIT")
        parts: dict[str, Part] = {}
        for bucket, text, times in self._sql.execute("SELECT bucket, pieces, times FROM rows"):
            before = parts.get(bucket, Part(0, 0))
            number = int(digest(json.loads(text))[:SUM_DIGITS], 16)
            parts[bucket] = Part(before.rows + times, before.sum + times * number)
        return parts

    def rows(self, bucket: str) -> Iterator[tuple[str, list[str], str, int]]:
        """The rows of a part: key, the key's pieces, digest, and how often it is there (once, where there is a key)."""
        for key, text, times in self._sql.execute("SELECT key, pieces, times FROM rows WHERE bucket = ?", (bucket,)):
            pieces = json.loads(text)
            yield key, [pieces[index] for index in self._key] or pieces, digest(pieces), times

    def close(self) -> None:
        """Close the file; its directory is the caller's to remove."""
        self._sql.close()

    def _count(self, place: int, pieces: list[str], times: int) -> None:
        self._sql.execute(
            "INSERT INTO rows VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET times = times + excluded.times",
            (digest(pieces), place, json.dumps(pieces), times),
        )

    def _pieces(self, key: str) -> list[str] | None:
        found = self._sql.execute("SELECT pieces FROM rows WHERE key = ?", (key,)).fetchone()
        return None if found is None else list(json.loads(found[0]))
