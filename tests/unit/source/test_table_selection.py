"""Which tables a pattern stands for: in `source.tables`, and as a word of every command."""

from __future__ import annotations

import json
import subprocess

import pytest

from cdcd.errors import RequestRejected, SettingsError
from cdcd.source.table_selection import (
    CandidateTable,
    TablePattern,
    count_and_names,
    qualified_name,
    select_candidates,
    select_published,
    select_tables,
    shell_word,
)

ITEMS, ORDER, ORDERS = ("public", "items"), ("public", "Order"), ("public", "orders")
ODD, SOLD, OLD = ("sales", "[odd]"), ("sales", "orders"), ("sales.v1", "orders")
KNOWN = [ITEMS, ORDER, ORDERS, ODD, SOLD, OLD]


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
        ('public."Order"', [("public", "Order")], [("public", "order"), ("public", "orders")]),
        ("public.Order", [("public", "Order")], [("public", "order")]),
        ('pub*."Order"', [("public", "Order")], [("public", "Orders")]),
        ("odd schema.t 1", [("odd schema", "t 1")], [("odd", "schema")]),
        ("a.b.c", [("a.b", "c"), ("a", "b.c")], [("a", "b"), ("b", "c")]),
        ("a.b.*", [("a.b", "c"), ("a", "b.c")], [("a", "c")]),
        ("*", [("public", "a"), ("B c", "d.e")], []),
        ("shop*", [("shop", "a"), ("shop_2", "b")], [("public", "shop")]),
        ("public.t[12]", [("public", "t1"), ("public", "t2"), ("public", "t[12]")], [("public", "t3")]),
        ("public.x[1]*", [("public", "x[1]y"), ("public", "x1")], [("public", "x2")]),
        ('public."t', [("public", '"t')], [("public", "t")]),
    ],
)
def test_a_pattern_stands_for_the_tables_it_says(
    pattern: str, matching: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    tables = TablePattern(pattern)
    for schema, table in matching:
        assert tables.matches(schema, table)
    for schema, table in other:
        assert not tables.matches(schema, table)


@pytest.mark.parametrize("text", ["", "orders", "*", "shop*", "public.", ".t", 'public."t', '"".t', '"a.b"'])
def test_what_is_not_written_as_schema_and_table_is_a_settings_error(text: str) -> None:
    with pytest.raises(SettingsError, match="no table pattern"):
        TablePattern.parse(text)


@pytest.mark.parametrize(
    ("pattern", "schema"),
    [("public.*", "public"), ('"A b".*', "A b"), ('"*".*', "*"), ("pub*.*", None), ("*.*", None), ("public.t*", None)],
)
def test_a_whole_schema_is_told_from_other_patterns(pattern: str, schema: str | None) -> None:
    assert TablePattern.parse(pattern).whole_schema == schema
    assert TablePattern.parse(pattern).is_everything == (pattern == "*.*")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ([], KNOWN),
        (["public.*"], [ITEMS, ORDER, ORDERS]),
        (["sales.orders", "*.orders"], [ORDERS, SOLD, OLD]),
        (["sales.[odd]"], [ODD]),
        (['public."Order"'], [ORDER]),
        (['"sales.v1".*'], [OLD]),
        (["sales.v1.orders"], [OLD]),
        (["sales.*"], [ODD, SOLD]),
    ],
)
def test_the_words_of_a_command_are_patterns(words: list[str], meant: list[tuple[str, str]]) -> None:
    assert select_published(words, KNOWN, "cdcd") == meant


def test_a_word_that_stands_for_none_is_refused_with_the_nearest_or_with_what_lists_them() -> None:
    with pytest.raises(RequestRejected, match=r"cdcd has no table public\.order\. Did you mean public\.orders\?"):
        select_published(["public.*", "public.order"], KNOWN, "cdcd")
    with pytest.raises(RequestRejected, match=r"no table orders\. Did you mean"):
        select_published(["orders"], KNOWN, "cdcd")
    with pytest.raises(RequestRejected, match=r"x\.\* is not parked\. To see the tables, run: cdcd unpark"):
        select_tables(["x.*"], [], lambda word: f"{word} is not parked", "cdcd unpark")


def test_a_file_of_settings_in_the_place_of_a_table_gets_a_hint() -> None:
    with pytest.raises(RequestRejected) as caught:
        select_published(["cdcd.toml"], [("cdcd", "tom")], "cdcd")
    assert caught.value.hint == "A file of settings goes behind --config: --config cdcd.toml"
    assert select_published(["cdcd.toml"], [("cdcd", "toml")], "cdcd") == [("cdcd", "toml")]


def test_a_partition_is_selected_only_if_its_root_is_not() -> None:
    root = CandidateTable(1, "public", "orders", None, True)
    leaf = CandidateTable(2, "public", "orders_2026", 1, True)
    alone = CandidateTable(3, "other", "t", None, False)

    def selected(*patterns: str) -> list[CandidateTable]:
        return select_candidates([TablePattern.parse(pattern) for pattern in patterns], [root, leaf, alone])

    assert selected("public.*") == [root]
    assert selected("public.orders_*") == [leaf]
    assert selected("other.*", "public.orders") == [root, alone]


@pytest.mark.parametrize(
    "name", ["t", "Order", "two words", "$(exit 7)", "`exit 7`", "a';exit 7;'", '";exit 7;"', "$0\\", "*?"]
)
def test_a_command_that_is_pasted_into_a_shell_names_the_table_and_runs_nothing_else(name: str) -> None:
    word = shell_word(qualified_name("public", name))
    for pasted in (word, json.dumps(word)[1:-1]):  # as in a log of JSON
        shown = subprocess.run(["sh", "-c", f"printf %s {pasted}"], capture_output=True, text=True, check=True).stdout
        assert pasted != word or TablePattern(shown).matches("public", name)


def test_the_log_names_only_the_first_of_many_tables() -> None:
    many = [("public", f"t{number:02}") for number in range(25)]
    assert count_and_names(many) == "25 (" + ", ".join(f"public.t{number:02}" for number in range(10)) + ", 15 more)"
