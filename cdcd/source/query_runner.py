"""What can ask the server a question: a session, or a connection inside a snapshot.

Before: `session` and `snapshot.reader` implement it.
After: `published_tables`, `heaps`, `privileges` and their like ask through it, so that each fact has one query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class QueryRunner(Protocol):
    """Runs statements, one at a time."""

    def rows(self, query: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement, with `values` for its placeholders (%s), and return its rows; none if it gives none."""
