"""The MERGE that brings a table from one LSN to the next: one statement, the same for Delta and Iceberg.

Before: `collapse` gives one row a key. After: `table_merge` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, OP, SEQ, UNCHANGED, UNREPRESENTABLE

Deletes: TypeAlias = Literal["hard", "soft"]

DELETED: Final = "_is_deleted"
"""`_deleted` is Iceberg's own: a metadata column."""
INSERTED: Final = "_unrepresentable_if_new"
"""In the source: what UNREPRESENTABLE is in a row that the target does not have yet."""

_META: Final = (COMMIT_LSN, SEQ, COMMIT_TS)
_NEWER: Final = f"(s.{COMMIT_LSN} > t.{COMMIT_LSN} OR (s.{COMMIT_LSN} = t.{COMMIT_LSN} AND s.{SEQ} >= t.{SEQ}))"
"""A second guard: whatever is merged again never goes back."""

_EMPTY: Final = "cast(map() as map<string,string>)"


def merge(
    table: str,
    source: str,
    key: Sequence[str],
    fallible: Sequence[str],
    columns: Sequence[str],
    unchanged: Sequence[str],
    *,
    deletes: Deletes,
    emptied: bool = False,
    marked: bool = False,
) -> str:
    """The statement. `columns` are all but the META ones; `fallible` are the key's columns that may be unrepresentable.

    `unchanged`: columns that a source row may lack. `emptied`: the table was truncated before what the source has, so
    that rows which the source does not name go. `marked`: the table has DELETED, be it of a time with soft deletes.
    """
    soft = deletes == "soft"
    marked = marked or soft
    values = {name: f"s.`{name}`" for name in columns}
    meta = {name: f"s.{name}" for name in _META}
    gone = {DELETED: "true"} if soft else {}
    there = {DELETED: "false"} if marked else {}
    inserted = values | meta | {UNREPRESENTABLE: f"s.{INSERTED}"} | there
    kept = {
        name: f"CASE WHEN array_contains(s.{UNCHANGED}, '{name}') THEN t.`{name}` ELSE s.`{name}` END"
        for name in unchanged
    }
    lost = {UNREPRESENTABLE: _lost() if unchanged else f"s.{UNREPRESENTABLE}"}
    updated = _set(values | kept | meta | lost | there)
    names = ", ".join(f"`{name}`" for name in inserted)
    clauses = [
        f"MERGE INTO {table} t USING {source} s ON {_condition(key, fallible)}",
        f"WHEN MATCHED AND s.{OP} = 'd' AND {_NEWER} THEN {f'UPDATE SET {_set(meta | gone)}' if soft else 'DELETE'}",
        f"WHEN MATCHED AND s.{OP} <> 'd' AND {_NEWER} THEN UPDATE SET {updated}",
        f"WHEN NOT MATCHED AND s.{OP} <> 'd' THEN INSERT ({names}) VALUES ({', '.join(inserted.values())})",
    ]
    if emptied:
        rest = f"AND NOT coalesce(t.{DELETED}, false) THEN UPDATE SET {_set(gone)}" if soft else "THEN DELETE"
        clauses.append(f"WHEN NOT MATCHED BY SOURCE {rest}")
    return "\n".join(clauses)


def _condition(key: Sequence[str], fallible: Sequence[str]) -> str:
    parts = []
    for name in key:
        if name in fallible:
            parts.append(f"t.`{name}` <=> s.`{name}`")
            parts.append(f"t.{UNREPRESENTABLE}['{name}'] <=> s.{UNREPRESENTABLE}['{name}']")
        else:
            parts.append(f"t.`{name}` = s.`{name}`")
    return " AND ".join(parts)


def _set(values: dict[str, str]) -> str:
    return ", ".join(f"t.`{name}` = {value}" for name, value in values.items())


def _lost() -> str:
    """What is unrepresentable now: the source's, and the target's for the columns that stay."""
    kept = f"map_filter(t.{UNREPRESENTABLE}, (k, v) -> array_contains(s.{UNCHANGED}, k))"
    both = f"map_concat(coalesce({kept}, {_EMPTY}), coalesce(s.{UNREPRESENTABLE}, {_EMPTY}))"
    return (
        f"CASE WHEN size(s.{UNCHANGED}) = 0 OR t.{UNREPRESENTABLE} IS NULL THEN s.{UNREPRESENTABLE}"
        f" WHEN size({both}) = 0 THEN NULL ELSE {both} END"
    )
