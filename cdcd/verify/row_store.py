"""Keeps the rows of a table in a file while its events are replayed. It keeps digests of long values.

Before: `topic_replay` applies events in commit order. After: `comparison` compares the rows by checksums.

The token of a value is its length and text if it is short or part of the key, else its digest. So the size of a row
depends only on its key and its number of columns. `postgres_checksums` makes the same tokens in SQL.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INLINE_BYTES_MAX: Final = 40
"""The token of a value of at most this size (in UTF-8) has the text itself."""
BUCKET_DIGITS: Final = 3
"""So many hex digits of the key's digest are the bucket of a row: 4,096 parts."""
SUM_DIGITS: Final = 15
"""So many hex digits of a row's digest go into the sum: a number below 2**60."""

NULL: Final = "-"
ABSENT: Final = "+"
"""Token of a value of a column that the event does not know, because the column is younger."""
UNKNOWN: Final = "?"
"""Token of a value that the topic lacks, because its oldest events are gone. It equals no other token."""


def value_token(text: str | None, *, is_key: bool = False) -> str:
    """The token of a value, given as text; None is null. `is_key`: a value of a key, which is kept whole."""
    if text is None:
        return NULL
    size = len(_bytes(text))
    return f"{size}:{text}" if is_key or size <= INLINE_BYTES_MAX else f"#{_md5(text)}"


def display(token: str) -> str | None:
    """A token as text for people: the value if it is short, else its digest. None is null."""
    if token == NULL:
        return None
    return f"md5 {token[1:]}" if token[0] == "#" else token.partition(":")[2]


def bucket_of(key: str) -> str:
    """The part of the table to which a row belongs. `key`: the tokens of its key, joined."""
    return _md5(key)[:BUCKET_DIGITS]


def digest(tokens: Sequence[str]) -> str:
    """The digest of a row or of a key, from its tokens."""
    return _md5("".join(tokens))


def _md5(text: str) -> str:
    return hashlib.md5(_bytes(text), usedforsecurity=False).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Part:
    """The checksum of a part of a table: number of rows, and sum of their digests."""

    rows: int
    sum: int


class RowStore:
    """The rows of one table, by their key, or by all columns if the table has no key."""

    def __init__(self, path: Path, key: Sequence[int]) -> None:
        """Create the file, which must not exist. `key`: the indexes of the key columns; empty if there is no key."""
        self.key: Final = tuple(key)
        """The indexes of the key columns; empty if there is no key."""
        self._sql = sqlite3.connect(path, isolation_level=None)
        self._sql.executescript(
            """
            PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;
            CREATE TABLE rows (key TEXT PRIMARY KEY, place INT, tokens TEXT, times INT) WITHOUT ROWID;
            BEGIN;
            """
        )
        self._gone: tuple[tuple[int, int, int], list[str] | None] = ((0, 0, 0), None)
        """The last removed row, with its event: (commit LSN, seq, LSN of the change), tokens."""
        self._known: set[int] = set()
        """The indexes of the columns that some event has known."""
        self._last_known: Mapping[int, str] = {}
        """The last argument of `fill`."""
        self.has_lacked_value = False
        """A value was kept as unknown or absent, because no event that was put had it."""

    @property
    def has_key(self) -> bool:
        """Whether rows have a key."""
        return bool(self.key)

    def put(
        self, place: int, lsn: int, seq: int, tokens: list[str | None], *, is_new: bool, change_lsn: int = 0
    ) -> None:
        """Keep a row as the event at (`lsn`, `seq`) leaves it. A None among `tokens` is a value that did not change.

        `is_new`: no row had this key before. An unchanged value then comes from the row that the previous event
        removed, if both events belong to the same change (`change_lsn`); else the value is unknown.
        """
        if not self.key:
            self._count(place, [token or UNKNOWN for token in tokens], 1)
            return
        key = "".join(tokens[index] or UNKNOWN for index in self.key)
        if None in tokens:
            by, gone = self._gone
            before = self._tokens(key) if not is_new else gone if by == (lsn, seq - 1, change_lsn) else None
            known = before or [UNKNOWN] * len(tokens)
            tokens = [token or known[index] for index, token in enumerate(tokens)]
        self.has_lacked_value = self.has_lacked_value or UNKNOWN in tokens or ABSENT in tokens
        self._sql.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, 1)", (key, place, json.dumps(tokens)))

    def remove(self, place: int, lsn: int, seq: int, tokens: list[str], *, change_lsn: int = 0) -> None:
        """Remove a row. In a table with a key, only the key columns of `tokens` matter."""
        if not self.key:
            self._count(place, tokens, -1)
            return
        key = "".join(tokens[index] for index in self.key)
        self._gone = (lsn, seq, change_lsn), self._tokens(key)
        self._sql.execute("DELETE FROM rows WHERE key = ?", (key,))

    def clear(self) -> None:
        """Begin the replay anew, before `finish`."""
        self._sql.execute("DELETE FROM rows")
        self._known.clear()
        self._last_known = {}

    def truncate(self, place: int) -> None:
        """Remove all rows of a partition. Each partition has its own truncate event."""
        self._sql.execute("DELETE FROM rows WHERE place = ?", (place,))

    def fill(self, tokens: Mapping[int, str]) -> None:
        """Note that the rows have these columns, and fill in what older rows hold in those that are new.

        `tokens`: by the index of the column, the token of that value.
        """
        if tokens is self._last_known:
            return
        self._last_known = tokens
        added = tokens.keys() - self._known
        self._known |= added
        if not added:
            return
        rows = self._sql.execute("SELECT place, tokens, times FROM rows").fetchall()
        self._sql.execute("DELETE FROM rows")
        for place, text, times in rows:
            filled = [
                tokens[index] if token == ABSENT and index in added else token
                for index, token in enumerate(json.loads(text))
            ]
            if self.key:
                key = "".join(filled[index] for index in self.key)
                self._sql.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, 1)", (key, place, json.dumps(filled)))
            else:
                self._count(place, filled, times)

    def finish(self) -> dict[str, Part]:
        """End the replay; return the checksum of each part that has rows, by bucket."""
        self._sql.execute("DELETE FROM rows WHERE times = 0")
        self._sql.create_function("bucket_of", 1, bucket_of, deterministic=True)
        self._sql.execute("ALTER TABLE rows ADD COLUMN bucket TEXT")
        self._sql.execute("UPDATE rows SET bucket = bucket_of(key)")
        self._sql.execute("CREATE INDEX buckets ON rows (bucket)")
        self._sql.execute("COMMIT")
        parts: dict[str, Part] = {}
        for bucket, text, times in self._sql.execute("SELECT bucket, tokens, times FROM rows"):
            before = parts.get(bucket, Part(0, 0))
            number = int(digest(json.loads(text))[:SUM_DIGITS], 16)
            parts[bucket] = Part(before.rows + times, before.sum + times * number)
        return parts

    def rows(self, bucket: str) -> Iterator[tuple[str, list[str], str, int]]:
        """The rows of a part: key, tokens of the key, digest, and number of equal rows (1 if the table has a key)."""
        for key, text, times in self._sql.execute("SELECT key, tokens, times FROM rows WHERE bucket = ?", (bucket,)):
            tokens = json.loads(text)
            yield key, [tokens[index] for index in self.key] or tokens, digest(tokens), times

    def buckets(self) -> set[str]:
        """The parts that have rows."""
        return {bucket for (bucket,) in self._sql.execute("SELECT DISTINCT bucket FROM rows")}

    def close(self) -> None:
        """Close the file. The caller removes its directory."""
        self._sql.close()

    def _count(self, place: int, tokens: list[str], times: int) -> None:
        self._sql.execute(
            "INSERT INTO rows VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET times = times + excluded.times",
            (digest(tokens), place, json.dumps(tokens), times),
        )

    def _tokens(self, key: str) -> list[str] | None:
        found = self._sql.execute("SELECT tokens FROM rows WHERE key = ?", (key,)).fetchone()
        return None if found is None else list(json.loads(found[0]))
