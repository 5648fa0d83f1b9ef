"""Judges what tables come to as flat rows (sink.format = "row"). Pure.

Before: `source.table_columns` and `postgres_facts` have asked the server.
After: `check` passes the findings on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdcd.debezium.added_fields import AddedFields
from cdcd.debezium.modes import RowModes
from cdcd.errors import CdcdError
from cdcd.preflight.findings import Finding, warning
from cdcd.source.replica_identity import TableIdentity
from cdcd.source.table_columns import TableColumns

ABOUT: Final = "rows"
TABLES_SHOWN: Final = 20
"""At most so many tables get a finding of their own."""


def judge(rows: RowModes, tables: Sequence[TableColumns], identities: Sequence[TableIdentity]) -> Iterator[Finding]:
    """The findings. `rows`: what each row gets behind its columns, and what a delete is."""
    added = AddedFields(rows)
    for table in tables:
        try:
            added.check(table.columns, (table.schema, table.name))
        except CdcdError as taken:
            yield warning(ABOUT, taken.message, taken.hint, code="row-field-taken")
    keyless = [table for table in identities if table.identity == "f" and table.is_keyless]
    deletes = "" if added.has_deleted_rows else ", and its deletes are left out"
    for each in keyless[:TABLES_SHOWN]:
        yield warning(
            ABOUT,
            f"{each.quoted} has no primary key: a changed row does not say which row it was before{deletes}",
            'Give it a primary key; or take sink.format = "debezium", whose events have the old row',
            code="table-unkeyed",
        )
