"""What people give to the functions of `cdcd.spark`: tables by patterns, and positions.

Before: a program, or `commands` with the settings file.
After: `reading.cuts` and `load` select tables by the patterns, `cuts` and the mirror find positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from operator import index
from typing import Protocol, SupportsIndex, TypeAlias

from cdcd.errors import SettingsError
from cdcd.lsn import parse_lsn
from cdcd.source.table_selection import TablePattern, nearest_table, shell_word

Position: TypeAlias = "int | str | datetime | date"
"""Where to cut: an LSN as a number or as PostgreSQL's text, or a time, also as ISO text (UTC if it has no zone)."""

Tables: TypeAlias = "str | Sequence[str]"
"""Patterns of schema.table, in order: the last one that matches a table counts. One that begins with `!` excludes."""


class Entry(Protocol):
    """An entry of `[[tables]]`: the tables that it names, and whether it leaves them out."""

    @property
    def match(self) -> str:
        """Its pattern of schema.table."""

    @property
    def exclude(self) -> bool | None:
        """Whether it leaves the tables out; None: it does not say."""


@dataclass(frozen=True)
class TableList:
    """Some patterns, as a test of tables."""

    patterns: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
    """The entries of `[[tables]]`. The patterns do not bring back a table that they leave out."""

    @classmethod
    def of(cls, tables: Tables | TableList) -> TableList:
        """A text is one pattern. Raises SettingsError for what is no text."""
        if isinstance(tables, TableList):
            return tables
        patterns = (tables,) if isinstance(tables, str) else tuple(tables)
        given: Iterable[object] = patterns
        for each in given:
            if not isinstance(each, str) or not each.removeprefix("!"):
                raise SettingsError(
                    f"{each!r} is no pattern of tables",
                    'Write schema.table, as in "public.*"',
                    code="arguments-invalid",
                )
        return cls(patterns)

    def matches(self, schema: str, table: str) -> bool:
        """Whether the patterns select this table."""
        said = (
            each.exclude
            for each in self.entries
            if each.exclude is not None and TablePattern(each.match).matches(schema, table)
        )
        if next(said, False):  # the first entry that says it counts
            return False
        for each in reversed(self.patterns):
            if TablePattern(each.removeprefix("!")).matches(schema, table):
                return not each.startswith("!")
        return False

    def idle(self, known: Iterable[tuple[str, str]]) -> list[str]:
        """The patterns that match none of these tables (schema, name), each with the table that is most like it."""
        tables = list(known)
        found = []
        for each in self._shown:
            pattern = TablePattern(each.removeprefix("!"))
            if not any(pattern.matches(*table) for table in tables):
                nearest = nearest_table(pattern, tables)
                found.append(f"{each} (did you mean {shell_word(nearest)}?)" if nearest else each)
        return found

    @property
    def _shown(self) -> tuple[str, ...]:
        return (*self.patterns, *(f"!{each.match}" for each in self.entries if each.exclude))

    def __str__(self) -> str:
        return ", ".join(self._shown)


def lsn_or_time(position: Position) -> int | datetime:
    """An LSN as a number, or a time with its zone. Raises SettingsError if the position is neither."""
    if isinstance(position, datetime):
        return position if position.tzinfo is not None else position.replace(tzinfo=UTC)
    if isinstance(position, date):
        return datetime(position.year, position.month, position.day, tzinfo=UTC)
    if isinstance(position, SupportsIndex) and not isinstance(position, bool) and index(position) >= 0:
        return index(position)
    if isinstance(position, str):
        for read in parse_lsn, lambda text: lsn_or_time(datetime.fromisoformat(text)):
            try:
                return read(position)
            except ValueError:
                continue
    raise SettingsError(
        f"{position!r} is neither an LSN nor a time",
        "Write an LSN as 16/B374D848 or as a number, a time as 2026-11-25 05:00:00+00:00 or as a datetime",
        code="arguments-invalid",
    )
