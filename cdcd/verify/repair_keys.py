"""Names the rows that differ in the form in which the daemon repairs them. Pure.

Before: `comparison` has compared a table with its topic.
After: `cdcd verify --repair` asks the daemon to repair these rows; after a gap the daemon does so by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcd.errors import RequestRejected
from cdcd.progress.repair_records import RepairKeys, divided
from cdcd.source.table_selection import shell_word
from cdcd.verify.comparison import Difference, TableResult


def check_repairable(result: TableResult) -> None:
    """Raise RequestRejected, with what to do instead, if rows of a table that differ cannot be repaired one by one."""
    name, copy = result.table, f"Run: cdcd snapshot {shell_word(result.table)}"
    if not result.key:
        raise RequestRejected(
            f"{name} has no key, so its rows cannot be repaired one by one", copy, code="repair-impossible"
        )
    if result.has_masked_key:
        raise RequestRejected(
            f"a column of the key of {name} is masked, so PostgreSQL cannot find the rows that differ",
            copy,
            code="repair-impossible",
        )
    if result.other_keys:
        raise RequestRejected(
            f"the key of {name} has changed, so rows lie under another key", copy, code="repair-impossible"
        )
    if any(None in each.key.values() for each in result.differences):
        raise RequestRejected(
            f"{name}: a row without a key differs, and cannot be repaired by itself", copy, code="repair-impossible"
        )


def repair_keys(result: TableResult, differences: Iterable[Difference]) -> list[RepairKeys]:
    """The keys of these differences, divided so that one request can name each part.

    Raises RequestRejected if a key is too long.
    """
    keys = (tuple(value or "" for value in each.key.values()) for each in differences)
    try:
        return list(divided(result.key, keys))
    except ValueError as error:
        raise RequestRejected(
            f"a key of {result.table} is too long for a request: {error}", code="repair-impossible"
        ) from error
