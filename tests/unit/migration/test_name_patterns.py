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
    samples,
    schema_patterns,
    split_list,
    table_patterns,
)
from cdcd.source.table_selection import TablePattern


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


@given(st.lists(st.sampled_from(["a", "b", "*", "[ab]", "[0-9]", "?"]), min_size=2, max_size=6), st.integers(1, 5))
def test_samples_match_their_pattern(parts: list[str], at: int) -> None:
    pattern = f"{''.join(parts[:at])}.{''.join(parts[at:]) or '*'}"
    found = samples(pattern, ["word"])
    assert len(set(found)) == len(found) >= 1
    assert all(TablePattern(pattern).matches(*each) for each in found)


def test_samples_have_the_words_and_each_character_of_a_set() -> None:
    assert samples("a.b", ["x"]) == [("a", "b")]
    assert {("t_x", "b"), ("t_0", "b")} < set(samples("t_*.b", ["x"]))
    assert samples("a.t[0-2]") == [("a", "t0"), ("a", "t1"), ("a", "t2")]


def test_patterns_that_no_table_can_match_both_do_not_overlap() -> None:
    assert not may_overlap(["tenant_*.orders", "tenant_*.lines", "public.orders"])
    assert not may_overlap(["a*.t", "b*.t"])
    assert may_overlap(["tenant_*.orders", "tenant_1.orders"])
    assert may_overlap(["a*.t", "*b.t"])
    assert may_overlap(["a*.t", "ab*.t"])


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
