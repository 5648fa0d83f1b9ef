"""What cdcd alters in its publication, and what it leaves as a person has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import process_time
from typing import Any

import pytest

from cdcd.source.publication_contents import (
    EVERYTHING,
    AskedPublication,
    FoundPublication,
    ListedTable,
    PublicationChange,
    PublicationContents,
    PublishedOperations,
    creation_statement,
    given,
    publication_change,
)
from cdcd.source.table_selection import CandidateTable

SLOT = "cdcd"
CANDIDATES = [
    CandidateTable(1, "public", "orders", None, True),
    CandidateTable(2, "public", "notes", None, False),
    CandidateTable(3, "public", "days", 3, True, is_partitioned=True),
    CandidateTable(4, "public", "days_1", 3, True),
    CandidateTable(6, "public", "base", None, True, has_children=True),
    CandidateTable(7, "other", "things", None, True, is_owned=False),
]
SCHEMAS = {"public": 2200, "other": 2201}


def contents(*tables: int, schemas: Sequence[int] = (), **more: Any) -> PublicationContents:
    return PublicationContents(EVERYTHING, False, schemas=frozenset(schemas), tables=frozenset(tables), **more)


def found(now: PublicationContents, **more: Any) -> FoundPublication:
    """One that cdcd has made, and nobody has changed since; `more` differs."""
    listed = [
        ListedTable(each.oid, each.schema, each.name, each.has_children, each.is_partitioned)
        for each in CANDIDATES
        if each.oid in now.tables
    ]
    made = FoundPublication(now, now.comment(SLOT), True, False, listed, SCHEMAS, [each.oid for each in CANDIDATES])
    return replace(made, **more)


def change(now: FoundPublication, *tables: str, **asked: Any) -> PublicationChange:
    return publication_change("cdcd", AskedPublication(tables, **{"slot": SLOT, **asked}), now, CANDIDATES)


def altered(now: FoundPublication, *tables: str, **asked: Any) -> list[str]:
    """The statements but for the comment, which comes last, without what they begin with."""
    *statements, comment = change(now, *tables, **asked).statements
    assert comment.startswith('COMMENT ON PUBLICATION "cdcd" IS ')
    return [each.removeprefix('ALTER PUBLICATION "cdcd" ') for each in statements]


def test_nothing_is_to_be_done_while_the_publication_is_as_asked() -> None:
    now = found(contents(1, 6))
    assert now.is_followed_by(SLOT)
    assert not change(now, "public.orders", "public.base").statements


def test_tables_join_and_leave_in_statements_that_name_each() -> None:
    assert altered(found(contents(1)), "public.base", "public.d*") == [
        'DROP TABLE "public"."orders"',
        'ADD TABLE "public"."days", ONLY "public"."base"',
    ]


def test_a_table_whose_updates_would_fail_and_one_of_another_owner_are_left_to_a_person() -> None:
    left = change(found(contents(1)), "public.*", "other.*")
    assert [table.name for table in left.added] == ["days", "base"]
    assert [table.name for table in left.bare] == ["notes"]
    assert [table.name for table in left.foreign] == ["things"]
    inserts = PublishedOperations(updates=False, deletes=False)
    assert "notes" in [table.name for table in change(found(contents(1)), "public.*", operations=inserts).added]


def test_the_time_to_judge_tables_that_are_left_to_a_person_grows_with_their_number() -> None:
    """The daemon holds the slot meanwhile, and answers nothing."""
    many = [
        CandidateTable(oid, "public", f"t{oid}", None, has_identity=oid % 2 == 0, is_owned=oid % 3 == 0)
        for oid in range(10_000)
    ]
    begin_s = process_time()
    left = publication_change("cdcd", AskedPublication(["public.*"], slot=SLOT), found(contents(1)), many)
    assert (len(left.bare), len(left.foreign)) == (4_999, 3_333)
    assert process_time() - begin_s < 10, "with a look through a list for each table it is minutes"


def test_what_exclude_names_is_left_out_with_its_partitions() -> None:
    asked = AskedPublication(["public.*"], ["public.days", "public.n*"])
    assert [table.name for table in asked.select(CANDIDATES)] == ["orders", "base"]
    assert not asked.whole_schemas
    assert not AskedPublication(["*.*"], ["public.days"]).is_everything
    root, leaf = CANDIDATES[2], CANDIDATES[3]
    assert not asked.has(root, root)
    assert not asked.has(leaf, root)
    assert AskedPublication(["public.*"], ["public.days_1"]).has(leaf, root), "its root publishes it"


def test_a_whole_schema_joins_for_a_superuser_and_leaves_its_tables_listed() -> None:
    alone = found(contents(1), may_add_schemas=True)
    assert altered(alone, "public.*", "public.orders")[-1] == 'ADD TABLES IN SCHEMA "public"'
    whole = found(contents(1, 3, 6, schemas=[2200]), may_add_schemas=True)
    assert altered(whole, "public.*", exclude=["public.days"]) == [
        'DROP TABLE "public"."days"',
        'DROP TABLES IN SCHEMA "public"',
    ]


def test_roots_get_new_entries_with_another_name_of_their_rows() -> None:
    assert altered(found(contents(1, 3, schemas=[2200])), "public.*", exclude=["public.n*"], via_root=True) == [
        "SET (publish_via_partition_root = true)",
        'DROP TABLE "public"."days"',
        'DROP TABLES IN SCHEMA "public"',
        'ADD TABLE ONLY "public"."base", "public"."days"',
    ]


def test_operations_are_set_as_asked() -> None:
    operations = PublishedOperations(updates=True, deletes=False, truncates=False)
    assert altered(found(contents(1)), "public.orders", operations=operations) == ["SET (publish = 'insert, update')"]
    asked = AskedPublication(["public.orders"], operations=operations, via_root=True)
    assert creation_statement("cdcd", CANDIDATES[:1], asked) == (
        'CREATE PUBLICATION "cdcd" FOR TABLE "public"."orders" '
        "WITH (publish = 'insert, update', publish_via_partition_root = true)"
    )


def test_a_publication_of_all_tables_stays_so_and_none_becomes_empty() -> None:
    everything = found(contents(is_everything=True))
    assert not change(everything, "*.*").statements
    assert change(everything, "public.*").needs_new_one
    assert change(everything, "*.*", via_root=True).needs_new_one
    assert change(found(contents(1)), "public.nosuch").needs_new_one
    assert not change(found(contents(1)), "public.nosuch").statements


@pytest.mark.parametrize(
    "differs",
    [
        {"contents": contents(1, 6)},
        {"contents": contents()},
        {"contents": contents(1, schemas=[2200])},
        {"contents": replace(contents(1), via_root=True)},
        {"contents": replace(contents(1), operations=PublishedOperations(updates=True, deletes=False))},
        {"listed": [ListedTable(1, "public", "orders", is_qualified=True)]},
        {"comment": contents(1).comment("another")},
        {"comment": ""},
        {"comment": "Ask Ada before you alter it"},
        {"comment": "{"},
        {"comment": "[1]{}"},
        {"comment": '{"slot": "cdcd", "tables": 1}'},
        {"is_owned": False},
    ],
)
def test_what_somebody_else_has_made_or_changed_is_not_altered(differs: dict[str, Any]) -> None:
    assert found(contents(1)).is_followed_by(SLOT)
    assert not replace(found(contents(1)), **differs).is_followed_by(SLOT)
    assert not found(contents(1)).is_followed_by("")


def test_a_dropped_table_or_schema_is_no_change_by_a_person() -> None:
    made = contents(1, 99, schemas=[2200, 99])
    dropped = found(contents(1, schemas=[2200]), comment=made.comment(SLOT))
    assert dropped.commented_tables == [1, 99]
    assert dropped.is_followed_by(SLOT)
    assert not replace(dropped, existing=[1, 99]).is_followed_by(SLOT)
    assert not replace(dropped, schema_oids={**SCHEMAS, "third": 99}).is_followed_by(SLOT)


def test_an_owner_gives_a_publication_to_cdcd_as_it_is() -> None:
    comment = given("cdcd", SLOT).partition(" IS ")[2].strip("'")
    taken = found(contents(1), comment=comment)
    assert taken.is_followed_by(SLOT)
    assert change(taken, "public.orders").statements, "the comment says from now on what cdcd has put there"
    qualified = ListedTable(1, "public", "orders", is_qualified=True)
    assert not replace(taken, listed=[qualified]).is_followed_by(SLOT), "its filter or columns would be lost"
