"""Judges whether the role may read the tables of a snapshot. Pure.

Before: `postgres_facts` has asked the server.
After: `check` passes the findings on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.source.privileges import TablePrivileges, later_privilege, missing_privileges

OWNERS_SHOWN: Final = 20
"""At most so many owners of tables to come get a finding."""


def judge(
    role: str, tables: Sequence[TablePrivileges], later: Sequence[tuple[str, str]] = (), *, is_needed: bool
) -> Iterator[Finding]:
    """The findings about the privileges of `role`. A missing one is an error if `is_needed`, else a warning.

    `later`: schema and owner of tables to come that it could not read.
    """
    missing = list(missing_privileges(role, tables))
    for each in missing:
        yield (error if is_needed else warning)("privileges", each.message, each.hint, code=each.code)
    for schema, owner in later[:OWNERS_SHOWN]:
        lacking = later_privilege(role, schema, owner)
        yield warning("privileges", lacking.message, lacking.hint, code=lacking.code)
    if tables and not missing:
        count = "the table" if len(tables) == 1 else f"all {len(tables)} tables"
        yield ok("privileges", f"The role {role} may read {count}, for the snapshot")
