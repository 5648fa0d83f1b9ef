"""The SQL condition of the rows that a snapshot reads (`where` of `[[table]]`), and whether PostgreSQL takes it.

Before: `snapshot.table_rules` has the condition.
After: COPY has it beside the range of blocks (`snapshot.reader`). A table whose condition is broken is left out of
snapshots.

A condition is SQL of the settings, and so of whoever may write them. `CASE` takes one expression and nothing else: so
nothing in it can reach the conditions beside it by accident.
"""

from __future__ import annotations

from typing import Final

from cdcd.source.identifiers import identifier
from cdcd.source.privileges import MissingPrivilege
from cdcd.source.session import Session, StatementRejected

_TRIAL: Final = "SELECT FROM {} AS copied WHERE {} LIMIT 0"
"""Reads no row. Under another name: COPY reads the partitions, so a condition must not name the table."""


def condition(where: str) -> str:
    """The SQL expression that is true for the rows of a condition."""
    return f"CASE WHEN {where}\nTHEN true ELSE false END"  # the line ends a comment


def broken_condition(session: Session, schema: str, table: str, where: str) -> str:
    """Why PostgreSQL does not take a condition for a table; empty if it does. Raises what else `Session` raises."""
    try:
        session.rows(_TRIAL.format(identifier(schema, table), condition(where)))
    except StatementRejected as error:
        return error.message
    return ""


def unfit_condition(table: str, why: str) -> MissingPrivilege:
    """What keeps a snapshot from reading a table, whose name is quoted."""
    return MissingPrivilege(
        f"The condition of {table} cannot be used: {why}",
        "Correct where in its [[table]]. Columns stand in it without the table's name",
        "condition-broken",
    )
