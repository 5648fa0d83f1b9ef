from __future__ import annotations

import pytest

from cdcd.errors import SettingsError
from cdcd.source.publication import TablePattern, publication_names


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("public.*", [("public", "a"), ("public", "B c")], [("Public", "a"), ("publica", "a")]),
        ("sales.order_*", [("sales", "order_"), ("sales", "order_1")], [("sales", "orders"), ("sales", "my_order_1")]),
        ("*.t?", [("a", "t1"), ("b", "tt")], [("a", "t"), ("a", "t12")]),
        ('"a.b".*', [("a.b", "c")], [("a", "b"), ("axb", "c")]),
        ('public."st*r"', [("public", "st*r")], [("public", "star")]),
        ('"say ""hi""".täble', [('say "hi"', "täble")], [("say hi", "täble")]),
        ("a+b.c(d)", [("a+b", "c(d)")], [("aab", "cd")]),
    ],
)
def test_a_pattern_stands_for_the_tables_it_says(
    pattern: str, matching: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    parsed = TablePattern.parse(pattern)
    assert all(parsed.matches(*table) for table in matching)
    assert not any(parsed.matches(*table) for table in other)


@pytest.mark.parametrize("text", ["", "orders", "a.b.c", "public.", ".t", 'public."t', "a b.c"])
def test_what_is_no_pattern_is_a_settings_error(text: str) -> None:
    with pytest.raises(SettingsError, match="no table pattern"):
        TablePattern.parse(text)


@pytest.mark.parametrize(
    ("pattern", "schema"),
    [("public.*", "public"), ('"A b".*', "A b"), ('"*".*', "*"), ("pub*.*", None), ("*.*", None), ("public.t*", None)],
)
def test_a_whole_schema_is_told_from_other_patterns(pattern: str, schema: str | None) -> None:
    assert TablePattern.parse(pattern).whole_schema == schema
    assert TablePattern.parse(pattern).everything == (pattern == "*.*")


def test_publication_names_are_neither_folded_nor_split() -> None:
    assert publication_names(["cdcd", 'A,b "c"', "é"]) == '"cdcd","A,b ""c""","é"'
