"""The lowest and the highest key of some rows: files of a table that lie outside need not be read.

Before: `collapse` and the mirror's `new_rows` compute the values in a Spark job that they have anyway.
After: the mirror's MERGE and its look-up of keys name the bounds, so that Delta and Iceberg skip files by statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Bounds: TypeAlias = "Mapping[str, tuple[Any, Any]]"
"""By column of a key: its lowest and highest value. A column that is null in some row has none."""

PARTS: Final = 3
"""Values that `least_and_most` computes of a column."""

Groups: TypeAlias = "Sequence[tuple[int, Sequence[Any]]]"
"""Groups of rows. Each has its number of rows, and the values that `least_and_most` finds in it, column by column."""

_TEXT_MAX: Final = 200
"""Characters of a text that may be a bound."""


@dataclass(frozen=True)
class Keys:
    """The keys of some rows."""

    rows: int
    bounds: Bounds

    def __or__(self, other: Keys) -> Keys:
        """The keys of both."""
        if not self.rows or not other.rows:
            return self if self.rows else other
        values = {name: (*self.bounds[name], *other.bounds[name]) for name in self.bounds if name in other.bounds}
        return Keys(self.rows + other.rows, {name: (min(each), max(each)) for name, each in values.items()})

    def of_one(self, key: Sequence[str]) -> tuple[Any, Any]:
        """The lowest and the highest key; (None, None) unless the key is one column, and has bounds."""
        return self.bounds.get(key[0], (None, None)) if len(key) == 1 else (None, None)


def least_and_most(values: Sequence[str]) -> list[str]:
    """Aggregates in SQL of each value: its lowest, its highest, and in how many rows it is not null."""
    return [f"{each}({value})" for value in values for each in ("min", "max", "count")]


def keys_of_groups(names: Sequence[str], groups: Groups) -> Keys:
    """The keys in groups of rows, of these columns."""
    rows = sum(count for count, _ in groups)
    return Keys(rows, _bounds(names, [found for _, found in groups], rows))


def _bounds(names: Sequence[str], found: Sequence[Sequence[Any]], rows: int) -> Bounds:
    known = {}
    for index, name in enumerate(names):
        parts = [group[PARTS * index : PARTS * (index + 1)] for group in found]
        parts = [part for part in parts if part[2]]
        if not parts or sum(part[2] for part in parts) < rows:
            continue
        low, high = min(part[0] for part in parts), max(part[1] for part in parts)
        if len(str(low)) <= _TEXT_MAX and len(str(high)) <= _TEXT_MAX:
            known[name] = (low, high)
    return known
