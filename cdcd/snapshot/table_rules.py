"""Which tables get a first snapshot, of which rows, in which order, when and how fast: the settings `[[table]]`. Pure.

Before: the settings have the rules, and whether a table without one is copied.
After: `daemon.snapshot_requests` asks whether a table wants a snapshot, and whether it is time for it;
`daemon.exported_tables` asks for rows and order, and `copy_rate` for the rates.

The first rule that matches a table and has a property decides this property.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from cdcd.snapshot.copy_hours import CopyHours
from cdcd.source.table_selection import TablePattern

T = TypeVar("T")


@dataclass(frozen=True)
class SnapshotRule:
    """One rule for the tables that a pattern matches. What is None says nothing."""

    match: str
    is_taken: bool | None = None
    """A table gets a snapshot by itself."""
    where: str | None = None
    """The SQL condition of the rows that its snapshots publish."""
    order: int | None = None
    """Tables with a lower number are read before others."""
    hours: str | None = None
    """As CopyHours has them; empty: always."""
    time_zone: str | None = None
    """That of the hours."""
    rows_per_second: int | None = None
    bytes_per_second: int | None = None
    """0: no limit but that of all snapshots."""

    @cached_property
    def pattern(self) -> TablePattern:
        """The tables."""
        return TablePattern(self.match)


class SnapshotRules:
    """The rules of all tables, in their order."""

    def __init__(
        self, rules: Sequence[SnapshotRule] = (), *, takes_others: bool = True, hours: CopyHours | None = None
    ) -> None:
        """`takes_others`: a table of which no rule says whether it is copied gets a snapshot by itself.

        `hours`: those of tables of which no rule says them, and their time zone; None: always.
        """
        self._hours = hours or CopyHours()
        self._rules = tuple(rules)
        self._takes_others = takes_others

    def takes(self, schema: str, table: str) -> bool:
        """Whether a table gets a snapshot by itself."""
        return self._first(schema, table, lambda rule: rule.is_taken, self._takes_others)

    def forbids(self, schema: str, table: str) -> bool:
        """Whether a rule says that a table is not copied: not after a gap, either."""
        return not self.takes(schema, table) and any(each.is_taken is False for each in self._of(schema, table))

    @property
    def takes_any(self) -> bool:
        """Whether a table may get a snapshot by itself."""
        return self._takes_others or any(each.is_taken for each in self._rules)

    def where(self, schema: str, table: str) -> str:
        """The SQL condition of the rows that snapshots of a table publish; empty: all rows."""
        return self._first(schema, table, lambda rule: rule.where, "")

    def order(self, schema: str, table: str) -> int:
        """Tables with a lower number are read before others."""
        return self._first(schema, table, lambda rule: rule.order, 0)

    def hours(self, schema: str, table: str) -> CopyHours:
        """The hours of each day in which the rows of a table are read."""
        text = self._first(schema, table, lambda rule: rule.hours, self._hours.text)
        return CopyHours(text, self._first(schema, table, lambda rule: rule.time_zone, self._hours.time_zone))

    def rate(self, schema: str, table: str) -> tuple[int, int]:
        """How many rows and bytes of a table are read a second at most, whatever all tables may; 0: no such limit."""
        return (
            self._first(schema, table, lambda rule: rule.rows_per_second, 0),
            self._first(schema, table, lambda rule: rule.bytes_per_second, 0),
        )

    def _first(self, schema: str, table: str, said: Callable[[SnapshotRule], T | None], otherwise: T) -> T:
        """What the first rule says that matches a table and says it."""
        found = (said(each) for each in self._of(schema, table))
        return next((each for each in found if each is not None), otherwise)

    def _of(self, schema: str, table: str) -> Iterator[SnapshotRule]:
        return (each for each in self._rules if each.pattern.matches(schema, table))


NO_SNAPSHOT_RULES: Final = SnapshotRules()
"""All rows of every table are copied, in any order."""
