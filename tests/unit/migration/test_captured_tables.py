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


def test_letters_beyond_ascii_are_words_and_have_two_cases_for_no_expression_of_java() -> None:
    tables = CapturedTables({"table.include.list": r"public\.t_\w+,public\.größe"})
    assert tables.has("public", "t_e")
    assert not tables.has("public", "t_é")
    assert tables.has("PUBLIC", "größe")
    assert not tables.has("public", "GRÖßE")


@pytest.mark.parametrize(
    "expression", ["public\\.(a", "[a-z&&[^b]]", "a{99999999999999999999}", "(" * 5_000 + "a" + ")" * 5_000]
)
def test_an_expression_that_python_does_not_know_or_reads_otherwise_is_named(expression: str) -> None:
    with pytest.raises(SettingsError, match=r"table\.include\.list has a regular expression"):
        CapturedTables({"table.include.list": expression})
