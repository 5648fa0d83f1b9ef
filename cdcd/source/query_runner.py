"""The interface of an object that runs queries: a session, or a connection inside a snapshot.

Before: `session` and `snapshot.reader` implement it.
After: `published_tables`, `heaps`, `privileges` and others run their queries through it, so each fact has one query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class QueryRunner(Protocol):
    """Runs statements, one at a time."""

    def rows(self, query: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement, with `values` for its placeholders (%s), and return its rows; empty if it returns none."""
