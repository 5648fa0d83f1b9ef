"""The MERGE statement that brings a table from one LSN to the next: the same for Delta and Iceberg.

Before: `collapse` gives one row a key. After: `table_merge` runs the statement.
Source: Spark SQL, "MERGE INTO".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

from cdcd.spark.reading.missing_values import MissingValue
from cdcd.spark.reading.sql_texts import plain_start, sql_text
from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, OP, SEQ, UNCHANGED, UNREPRESENTABLE, with_unknown
from cdcd.spark.state.key_bounds import Bounds

Deletes: TypeAlias = Literal["hard", "soft"]

DELETED: Final = "_is_deleted"
"""Not `_deleted`: that is a metadata column of Iceberg."""

_META: Final = (COMMIT_LSN, SEQ, COMMIT_TS)
_NEWER: Final = (
    f"coalesce(s.{COMMIT_LSN} > t.{COMMIT_LSN} OR (s.{COMMIT_LSN} = t.{COMMIT_LSN} AND s.{SEQ} >= t.{SEQ}), true)"
)
"""A second guard: a row never goes back, even if its events are merged again. A row that a person made has no LSN."""

_LAST_CHARACTER: Final = "\U0010ffff"
"""Of Unicode, and by the order of bytes."""
_EMPTY: Final = "cast(map() as map<string,string>)"


@dataclass(frozen=True)
class MergeSource:
    """The rows to merge: one a key."""

    view: str
    """The name of the temporary view that holds them."""
    key: Sequence[str]
    fallible_key: Sequence[str]
    """The key's columns that may hold values which Avro cannot."""
    columns: Sequence[str]
    """All columns but the META ones."""
    unchanged: Sequence[str] = ()
    """The columns that a row may lack."""
    bounds: Bounds = field(default_factory=dict)
    """Of the rows' keys: the target's files outside are not read."""


def merge(
    table: str,
    source: MergeSource,
    *,
    deletes: Deletes,
    truncates: bool = False,
    has_deleted_column: bool = False,
    missing: Mapping[str, MissingValue | None] | None = None,
) -> str:
    """The statement that merges `source` into `table`.

    `truncates`: the table was truncated before the source's events, so rows that the source does not name go.
    `has_deleted_column`: the table has DELETED, perhaps from a time with soft deletes.
    `missing`: by new column, what the rows hold that the source does not name (None: null). The MERGE that brings the
    column fills it: a statement of its own could be lost between the two, or be made twice.
    """
    soft = deletes == "soft"
    values = {name: f"s.`{name}`" for name in source.columns}
    meta = {name: f"s.{name}" for name in _META}
    deleted = {DELETED: "true"} if soft else {}
    exists = {DELETED: "false"} if soft or has_deleted_column else {}
    inserted = values | meta | {UNREPRESENTABLE: unrepresentable_if_new(source, "s.")} | exists
    kept = {
        name: f"CASE WHEN array_contains(s.{UNCHANGED}, '{name}') THEN t.`{name}` ELSE s.`{name}` END"
        for name in source.unchanged
    }
    lost = {UNREPRESENTABLE: _unrepresentable() if source.unchanged else f"s.{UNREPRESENTABLE}"}
    updated = _set(values | kept | meta | lost | exists)
    names = ", ".join(f"`{name}`" for name in inserted)
    delete = f"UPDATE SET {_set(meta | deleted)}" if soft else "DELETE"
    clauses = [
        f"MERGE INTO {table} t USING {source.view} s ON {condition(source)}",
        f"WHEN MATCHED AND s.{OP} = 'd' AND {_NEWER} THEN {delete}",
        f"WHEN MATCHED AND s.{OP} <> 'd' AND {_NEWER} THEN UPDATE SET {updated}",
        f"WHEN NOT MATCHED AND s.{OP} <> 'd' THEN INSERT ({names}) VALUES ({', '.join(inserted.values())})",
    ]
    if truncates:
        rest = f"AND NOT coalesce(t.{DELETED}, false) THEN UPDATE SET {_set(deleted)}" if soft else "THEN DELETE"
        clauses.append(f"WHEN NOT MATCHED BY SOURCE {rest}")
    elif missing:
        clauses.append(f"WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {_set(filled(missing))}")
    return "\n".join(clauses)


def unrepresentable_if_new(source: MergeSource, prefix: str = "") -> str:
    """UNREPRESENTABLE of a source's row that the target does not have yet, in SQL. `prefix`: what names the source."""
    return with_unknown(prefix) if source.unchanged else f"{prefix}{UNREPRESENTABLE}"


def condition(source: MergeSource) -> str:
    """Whether a row `t` of the target has the key of a row `s` of the source, in SQL."""
    parts = _bounds(source.bounds)
    for name in source.key:
        if name in source.fallible_key:
            parts.append(f"t.`{name}` <=> s.`{name}`")
            parts.append(f"t.{UNREPRESENTABLE}['{name}'] <=> s.{UNREPRESENTABLE}['{name}']")
        else:
            parts.append(f"t.`{name}` = s.`{name}`")
    return " AND ".join(parts)


def _bounds(bounds: Bounds) -> list[str]:
    wide = ((name, *_widened(*each)) for name, each in bounds.items())
    return [f"t.`{name}` BETWEEN {_literal(low)} AND {_literal(high, is_most=True)}" for name, low, high in wide]


def _widened(low: Any, high: Any) -> tuple[Any, Any]:
    """Bounds that many runs have in common, though their keys differ: whole numbers, up to a quarter wider at each end.

    Spark writes whole numbers of a statement into the classes that it generates. So other numbers make other classes,
    which Java has not compiled. They end at multiples of a power of two, so they stay in their type.
    """
    if not isinstance(low, int):
        return low, high
    step = max(high - low, 4).bit_length() - 3  # a quarter to an eighth of the way from the lowest to the highest
    return low >> step << step, (((high >> step) + 1) << step) - 1


def _literal(value: int | Decimal | date | str, *, is_most: bool = False) -> str:
    """A bound as a literal: formats know no other constants. A text that `sql_text` gives as bytes becomes a wider one.

    `is_most`: it is the upper one.
    """
    if isinstance(value, str):
        plain = plain_start(value)
        return sql_text(plain + _LAST_CHARACTER if is_most and plain != value else plain)
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return f"{value:f}BD" if isinstance(value, Decimal) else str(value)


def _set(values: dict[str, str]) -> str:
    return ", ".join(f"t.`{name}` = {value}" for name, value in values.items())


def filled(missing: Mapping[str, MissingValue | None]) -> dict[str, str]:
    """The new columns of a row that the source does not name, and UNREPRESENTABLE if Avro cannot hold one of them."""
    values = {
        name: "NULL" if each is None else each.sql()
        for name, each in missing.items()
        if each is None or each.avro is not None
    }
    lost = [
        f"'{name}', {sql_text(each.text)}" for name, each in missing.items() if each is not None and each.avro is None
    ]
    if not lost:
        return values
    both = f"map_concat(coalesce(t.{UNREPRESENTABLE}, {_EMPTY}), map({', '.join(lost)}))"
    return values | {UNREPRESENTABLE: both}


def _unrepresentable() -> str:
    """UNREPRESENTABLE after the update: the source's, and the target's for the columns that the source row lacks."""
    kept = f"map_filter(t.{UNREPRESENTABLE}, (k, v) -> array_contains(s.{UNCHANGED}, k))"
    both = f"map_concat(coalesce({kept}, {_EMPTY}), coalesce(s.{UNREPRESENTABLE}, {_EMPTY}))"
    return (
        f"CASE WHEN size(s.{UNCHANGED}) = 0 OR t.{UNREPRESENTABLE} IS NULL THEN s.{UNREPRESENTABLE}"
        f" WHEN size({both}) = 0 THEN NULL ELSE {both} END"
    )
