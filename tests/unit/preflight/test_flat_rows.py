from __future__ import annotations

import pytest

from cdcd.debezium.modes import DeleteMode, RowModes
from cdcd.preflight.findings import Level
from cdcd.preflight.flat_rows import judge
from cdcd.source.replica_identity import TableIdentity
from cdcd.source.table_columns import TableColumns

KEYED = TableIdentity("public", "a", "f", True)


def test_a_column_with_the_name_of_a_field_is_an_error() -> None:
    tables = [
        TableColumns("public", name, columns, (), ()) for name, columns in (("a", ("id", "op")), ("b", ("__op",)))
    ]
    [found] = judge(RowModes((("__op", "op"),)), tables, [KEYED])
    assert (found.level, found.code) == (Level.WARNING, "row-field-taken")
    assert "public.b has a column __op" in found.message


@pytest.mark.parametrize(("deletes", "are_left_out"), [("tombstone", True), ("rewrite", False)])
def test_a_table_without_a_key_is_a_warning(deletes: DeleteMode, are_left_out: bool) -> None:
    only_inserts = TableIdentity("public", "log", "d", False)
    [found] = judge(RowModes((), deletes), [], [KEYED, only_inserts, TableIdentity("public", "bare", "f", False)])
    assert (found.level, found.code) == (Level.WARNING, "table-unkeyed")
    assert '"public"."bare" has no primary key' in found.message
    assert ("left out" in found.message) is are_left_out
