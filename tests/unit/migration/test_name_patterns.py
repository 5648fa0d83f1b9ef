from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.migration.name_patterns import (
    column_patterns,
    expand,
    may_overlap,
    schema_patterns,
    split_list,
    table_patterns,
)


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("public.orders", ["public.orders"]),
        (r" public\.orders , sales\.items", ["public.orders", "sales.items"]),
        (r"public\.(orders|items)", ["public.orders", "public.items"]),
        (r"(?:a|b)\.(c|d)", ["a.c", "a.d", "b.c", "b.d"]),
        (r"public\..*", ["public.*"]),
        ("public.*", ["public.*"]),
        (".*", ["*.*"]),
        (r".*\.orders", ["*.orders"]),
        (r"tenant_[^.]+\.orders", ["tenant_*.orders"]),
        (r"^public\.orders_[0-9]$", ["public.orders_[0-9]"]),
        (r"public\.t\d", ["public.t[0-9]"]),
        (r"public.a,public.a", ["public.a"]),
        ("public.tägliche", ["public.tägliche"]),
        (r"public\.orders_\d+", None),
        (r"public\.(?!secret).*", None),
        (r"public\.a{2}", None),
        (r"public\.a?", None),
        (r"(public\.a", None),
        (r"public\.a)", None),
        (r"public\.[^a]", None),
        ("orders", None),
        ("a.b.c", None),
        (r"public\.", None),
        ("(a|b|c|d)" * 6 + r"\.x", None),
        ("(" * 5_000 + "public.a" + ")" * 5_000, None),
        ("(" + "|".join("a" * 999) + ")" + "x" * 500_000, None),
    ],
)
def test_expressions_for_tables_become_patterns_or_none(text: str, patterns: list[str] | None) -> None:
    assert table_patterns(text) == patterns


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("public.users.email", [("public.users", "email")]),
        (r"public\.users\.(ssn|email)", [("public.users", "ssn"), ("public.users", "email")]),
        (r".*\.users\.email", [("*.users", "email")]),
        (r"public\.users\..*", None),
        ("users.email", None),
        (r"public\.users\.e+", None),
        ("", []),
    ],
)
def test_expressions_for_columns_become_pairs_or_none(text: str, pairs: list[tuple[str, str]] | None) -> None:
    assert column_patterns(text) == pairs


def test_schemas_become_patterns_of_their_tables() -> None:
    assert schema_patterns("public, sales") == ["public.*", "sales.*"]
    assert schema_patterns("a.b") is None
    assert schema_patterns("a+") is None


def test_a_comma_with_a_backslash_belongs_to_the_expression() -> None:
    assert split_list(r"a\,b, c,") == ["a,b", "c"]


def test_only_names_of_single_tables_never_overlap() -> None:
    assert not may_overlap(["public.*", "public.*"])
    assert not may_overlap(["public.a", "public.b"])
    assert may_overlap(["public.*", "public.a"])


@given(
    st.lists(st.sampled_from(["a", "b", r"\.", ".*", "[ab]", "(a|b)", "_", "|", r"\d", "x"]), max_size=9),
    st.text("ab._x1", max_size=8),
)
def test_the_patterns_match_what_the_expression_matches(parts: list[str], name: str) -> None:
    expression = "".join(parts)
    patterns = expand(expression)
    assert patterns is not None
    assert any(fnmatchcase(name, each) for each in patterns) == bool(re.fullmatch(expression, name))
