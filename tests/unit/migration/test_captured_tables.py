from __future__ import annotations

import pytest

from cdcd.errors import SettingsError
from cdcd.migration.captured_tables import CapturedTables


@pytest.mark.parametrize(
    ("options", "captured"),
    [
        ({}, {"public.a", "public.b", "sales.a"}),
        ({"table.include.list": "public.a, SALES\\.A"}, {"public.a", "sales.a"}),
        ({"table.include.list": "public"}, set()),
        ({"table.exclude.list": "public.a"}, {"public.b", "sales.a"}),
        ({"schema.include.list": "sales"}, {"sales.a"}),
        ({"schema.exclude.list": "sales"}, {"public.a", "public.b"}),
        ({"schema.include.list": "public", "table.include.list": ".*\\.a"}, {"public.a"}),
    ],
)
def test_the_lists_say_which_tables_are_captured(options: dict[str, str], captured: set[str]) -> None:
    tables = [("public", "a"), ("public", "b"), ("sales", "a")]
    found = CapturedTables(options)
    assert {f"{schema}.{name}" for schema, name in tables if found.has(schema, name)} == captured


def test_an_expression_that_python_does_not_know_is_named() -> None:
    with pytest.raises(SettingsError, match=r"table\.include\.list has a regular expression"):
        CapturedTables({"table.include.list": "public\\.(a"})
