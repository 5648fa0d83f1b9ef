"""Judges the section [outbox] by the tables that are published. Pure.

Before: `source.table_columns` has asked the server.
After: `check` passes the findings on; a start refuses what is an error, and logs what is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdcd.outbox.outbox_rules import OutboxRules
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.source.table_columns import TableColumns
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.text_format import plural
from cdcd.transaction.column_rules import ColumnRules


def judge(rules: OutboxRules, tables: Sequence[TableColumns], columns: ColumnRules) -> Iterator[Finding]:
    """The findings about the outbox. A pattern may match tables that anybody makes: these give warnings.

    `columns`: what [[table]] leaves out, the outbox lacks.
    """
    if rules.pattern is None:
        return
    found = [table for table in tables if rules.matches(table.schema, table.name)]
    unfit = False
    for table in found:
        selecting, _ = columns.of(table.schema, table.name)
        there = [name for name in table.columns if selecting is None or not selecting.leaves_out(name)]
        missing = [name for name in (*rules.required, *rules.headers) if name not in there]
        if missing:
            unfit = True
            yield (error if rules.pattern.names_one_table else warning)(
                "outbox",
                f"The outbox {qualified_name(table.schema, table.name)} has no column {', '.join(missing)}"
                + (", or [[table]] leaves it out" if selecting is not None else ""),
                "Name the columns that it has in the section [outbox]",
                code="outbox-unfit",
            )
    if not found:
        yield warning(
            "outbox",
            f"No published table is the outbox {rules.pattern.text}",
            "Publish the table, or correct outbox.table",
            code="outbox-unfit",
        )
    elif not unfit:
        yield ok("outbox", f"{plural(len(found), 'table')} with all columns of an outbox")
