"""The highest key of each table, as long as this process alone changes the table: keys above it need no look-up.

Before: `table_write` asks whether a table lacks keys, and tells of its commits. After: it looks up the others.

Most tables number their rows, so the new keys of a batch lie above all others. One look-up finds that no row has a
higher key than the batch. From then on each commit of the process tells its keys, and moves the known version on by
one. A table of another version was changed by somebody else, and nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.state.key_bounds import Keys


@dataclass(frozen=True)
class _Highest:
    """No row that a table has at this version has a higher value in this column."""

    version: int
    column: str
    value: Any


class HighestKeys:
    """Remembers the highest keys. Several threads may use it, one for each table."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[str, _Highest] = {}

    def are_below(self, table: str, key: Sequence[str], keys: Keys) -> bool:
        """Whether all rows of the table surely have lower keys than these."""
        known = self._known.get(table)
        low, _ = _bounds(key, keys)
        if known is None or type(known.value) is not type(low) or known.column != key[0]:
            return False
        return bool(known.value < low) and self._target.version(table) == known.version

    def learn(self, table: str, key: Sequence[str], keys: Keys, spark: SparkSession) -> None:
        """Look whether a row of the table has a higher key than these."""
        _, high = _bounds(key, keys)
        version = self._target.version(table)  # before Spark looks: rows that come later have another one
        if high is None or version is None:
            return
        if spark.table(table).where(f.col(f"`{key[0]}`") > f.lit(high)).isEmpty():
            self._known[table] = _Highest(version, key[0], high)

    def note_commit(self, table: str, key: Sequence[str], keys: Keys) -> None:
        """Know that this process has made a commit, of rows with some of these keys."""
        known = self._known.pop(table, None)
        _, high = _bounds(key, keys)
        if known is None or type(known.value) is not type(high) or known.column != key[0]:
            return
        if (version := self._target.follower(table, known.version)) is not None:
            self._known[table] = _Highest(version, known.column, max(known.value, high))


def _bounds(key: Sequence[str], keys: Keys) -> tuple[Any, Any]:
    """The lowest and the highest key; (None, None) unless the key is one column of numbers or dates.

    A person may have made a table with another order of texts.
    """
    low, high = keys.of_one(key)
    return (low, high) if isinstance(low, (int, Decimal, date)) else (None, None)
