"""The SQL for a DBA: which tables it names, and that no name of a table changes its meaning."""

from __future__ import annotations

import pytest

from cdcd.source.setup_sql import Selection, script, selection, steps
from cdcd.source.table_selection import CandidateTable

TABLES = [
    CandidateTable(1, "public", "orders", None, has_identity=True),
    CandidateTable(2, "public", "customers", None, has_identity=True),
    CandidateTable(3, "sales", "leads", None, has_identity=True),
]


def sql(tables: Selection) -> str:
    return "\n".join(statement for step in steps("cdcd", "cdcd", tables) for statement in step.statements)


@pytest.mark.parametrize(
    ("patterns", "selected"),
    [
        (["*.*"], Selection(is_everything=True)),
        (["public.*"], Selection(("public",))),
        (["public.*", "sales.*"], Selection(("public", "sales"))),
        (["public.*", "sales.leads"], Selection(("public",), (("sales", "leads"),))),
        (["public.order*"], Selection(tables=(("public", "orders"),))),
        (["public.nothing"], Selection()),
    ],
)
def test_a_whole_schema_stays_one_and_other_patterns_become_their_tables(
    patterns: list[str], selected: Selection
) -> None:
    assert selection(patterns, TABLES) == selected


def test_only_whole_schemas_get_default_privileges() -> None:
    assert "ALTER DEFAULT PRIVILEGES" in sql(Selection(("public",)))
    assert "ALTER DEFAULT PRIVILEGES" in sql(Selection(is_everything=True))
    assert "ALTER DEFAULT PRIVILEGES" not in sql(Selection(tables=[("public", "orders")]))


@pytest.mark.parametrize(
    "name", ["$cdcd$; DROP TABLE orders; $cdcd$", "a'b", 'a"b', "%I", "a\n-- b", "\\", "$cdcd$ $cdcd1$"]
)
def test_a_name_stays_inside_its_quotes(name: str) -> None:
    for made in sql(Selection(("public",), ((name, name),))).split("DO $")[1:]:
        tag = f"${made.partition('$')[0]}$"
        assert made.count(tag) == 1, "the block ends where it should"
    assert "\n-- b" not in sql(Selection(("public",), ((name, name),)))


def test_the_script_has_the_steps_in_the_order_in_which_they_are_needed() -> None:
    text = script(steps("cdcd", "cdcd", Selection(("public",))), "shop", "setup.sql")
    order = [text.index(word) for word in ("CREATE ROLE", "REPLICA IDENTITY", "CREATE PUBLICATION", "GRANT SELECT")]
    assert order == sorted(order)


def test_the_comments_say_what_the_file_does() -> None:
    named = script(steps("cdcd", "cdcd", Selection(tables=[("public", "orders")])), "shop", "setup.sql")
    assert "a table that is made later is not in it" in " ".join(named.replace("--", "").split())
    assert "by themselves" not in named
    assert "default privileges" not in named
    whole = " ".join(script(steps("cdcd", "cdcd", Selection(("sales",))), "shop", "s.sql").replace("--", "").split())
    assert 'New tables of "sales" join by themselves' in whole
    assert "default privileges" in whole
