from __future__ import annotations

from cdcd.outbox.outbox_rules import OutboxRules
from cdcd.preflight.findings import Level
from cdcd.preflight.outbox import judge
from cdcd.source.table_columns import TableColumns
from cdcd.transaction.column_rules import NO_RULES, ColumnRule, ColumnRules

NAMES = ("id", "kind", "key", "type", "payload")
COLUMNS = (*NAMES, "tenant")
OUTBOX = TableColumns("public", "outbox", COLUMNS, (25,) * len(COLUMNS), ("id",))


def judged(
    match: str | None, *tables: TableColumns, columns: ColumnRules = NO_RULES, headers: tuple[str, ...] = ("tenant",)
) -> list[tuple[Level, str]]:
    rules = OutboxRules(match, "outbox", "outbox.{aggregate}", NAMES, headers)
    return [(finding.level, finding.message) for finding in judge(rules, tables, columns)]


def test_an_outbox_with_its_columns_is_fine_and_without_a_table_there_is_nothing_to_say() -> None:
    assert judged("public.outbox", OUTBOX) == [(Level.OK, "1 table with all columns of an outbox")]
    assert judged(None, OUTBOX) == []


def test_a_column_that_is_missing_is_an_error_if_the_table_is_named_and_else_a_warning() -> None:
    said = "The outbox public.outbox has no column trace"
    assert judged("public.outbox", OUTBOX, headers=("trace",)) == [(Level.ERROR, said)]
    assert judged("*.outbox", OUTBOX, headers=("trace",)) == [(Level.WARNING, said)]


def test_a_column_that_is_left_out_is_missing() -> None:
    said = "The outbox public.outbox has no column payload, or [[table]] leaves it out"
    for rule in (ColumnRule("*.*", exclude=["payload"]), ColumnRule("*.*", include=sorted({*COLUMNS} - {"payload"}))):
        assert judged("public.outbox", OUTBOX, columns=ColumnRules([rule])) == [(Level.ERROR, said)]
    assert judged("public.outbox", OUTBOX, columns=ColumnRules([ColumnRule("*.*", exclude=["id"])]))[0][0] is Level.OK


def test_an_outbox_that_is_not_published_is_a_warning() -> None:
    assert judged("public.events", OUTBOX) == [(Level.WARNING, "No published table is the outbox public.events")]
