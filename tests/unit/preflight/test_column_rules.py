"""What `cdcd check` and a start say about [[table]]."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from cdcd.preflight.column_rules import in_binary_mode, judge
from cdcd.preflight.findings import Level
from cdcd.source.table_columns import TableColumns
from cdcd.transaction.column_masks import CONSTANT, HASH, NOTHING, Mask
from cdcd.transaction.column_rules import NO_RULES, ColumnRule, ColumnRules, PartitionChoice

SECRET = b"0123456789abcdef"
TABLE = TableColumns("public", "t", ("id", "email", "born"), (23, 25, 1082), ("id",))


def said(*rules: ColumnRule, binary: Literal["auto"] | bool = "auto") -> list[object]:
    return [(each.level, each.code) for each in judge(ColumnRules(rules, SECRET), [TABLE], binary=binary)]


def test_nothing_is_said_without_an_entry_and_little_if_all_is_well() -> None:
    assert list(judge(NO_RULES, [TABLE], binary="auto")) == []
    [fine] = judge(ColumnRules([ColumnRule("public.t", exclude=["email"])]), [TABLE], binary="auto")
    assert (fine.level, fine.message) == (Level.OK, "1 table with columns that are left out or masked")


@pytest.mark.parametrize("lost", [ColumnRule("public.t", exclude=["id"]), ColumnRule("public.t", include=["email"])])
def test_a_key_that_is_lost_is_an_error_where_the_entry_names_the_table(lost: ColumnRule) -> None:
    assert said(lost) == [(Level.ERROR, "key-masked")]


def test_a_key_that_is_lost_to_a_star_is_a_warning_because_anybody_may_make_a_table() -> None:
    assert said(ColumnRule("public.*", masks={"id": Mask(CONSTANT, constant=b"x")})) == [(Level.WARNING, "key-masked")]
    assert said(ColumnRule("public.*", masks={"id": Mask(HASH)})) == [(Level.OK, None)]


def test_a_column_that_no_table_has_is_named() -> None:
    [found] = judge(ColumnRules([ColumnRule("public.*", exclude=["emial", "email", "x"])]), [TABLE], binary="auto")
    assert (found.level, found.code) == (Level.WARNING, "column-unknown")
    assert found.message.endswith("names columns that none of its tables has: emial, x")
    assert said(ColumnRule("public.other", exclude=["a"])) == [(Level.WARNING, "column-unknown")]


@pytest.mark.parametrize(("pattern", "level"), [("public.t", Level.ERROR), ("public.*", Level.WARNING)])
@pytest.mark.parametrize(
    ("identity", "key", "nullable", "why"),
    [
        ("d", ["born"], (), "its replica identity lacks born"),
        ("n", ["id"], (), "its replica identity lacks id"),
        ("f", ["idd"], (), "the table has no column idd"),
        ("f", ["id", "email"], ("email",), "email of the key (id, email) of [[table]] may be null"),
    ],
)
def test_a_key_that_cannot_be_one_is_named_beforehand(
    pattern: str, level: Level, identity: str, key: list[str], nullable: tuple[str, ...], why: str
) -> None:
    facts = replace(TABLE, identity=identity, nullable=nullable)
    [found] = judge(ColumnRules([ColumnRule(pattern, key=key)]), [facts], binary="auto")
    assert (found.level, found.code) == (level, "key-unfit")
    assert why in found.message


def test_a_column_that_is_to_decide_the_partition_and_is_not_in_the_key_is_named() -> None:
    by_email = PartitionChoice("email")
    [found] = judge(ColumnRules([ColumnRule("public.*", partition_by=by_email)]), [TABLE], binary="auto")
    assert (found.level, found.code) == (Level.WARNING, "partition-column-unfit")
    assert said(ColumnRule("public.*", partition_by=PartitionChoice("id"))) == []
    keyed = ColumnRule("public.*", key=["email"], partition_by=by_email)
    [found] = judge(ColumnRules([keyed]), [replace(TABLE, identity="f")], binary="auto")
    assert found.level is Level.OK


@pytest.mark.parametrize(("identity", "key"), [("d", ["id"]), ("f", ["born", "id"])])
def test_a_key_that_is_fit_is_counted(identity: str, key: list[str]) -> None:
    rules = ColumnRules([ColumnRule("public.*", key=key)])
    [found] = judge(rules, [replace(TABLE, identity=identity)], binary="auto")
    assert (found.level, found.message) == (Level.OK, "1 table with a key of [[table]]")


def test_a_key_of_an_entry_that_is_masked_is_judged_in_place_of_the_primary_key() -> None:
    lost = ColumnRule("public.t", key=["email"], masks={"email": Mask(CONSTANT, constant=b"x"), "id": Mask(NOTHING)})
    found = list(judge(ColumnRules([lost]), [replace(TABLE, identity="f")], binary="auto"))
    assert [(each.level, each.code) for each in found] == [(Level.OK, None), (Level.ERROR, "key-masked")]
    assert "email" in found[1].message


def test_a_mask_that_needs_text_takes_text_mode_or_is_an_error() -> None:
    rule = ColumnRule("public.t", masks={"born": Mask(HASH)})
    assert said(rule) == [(Level.WARNING, "stream-restarted")]
    assert said(rule, binary=True) == [(Level.ERROR, "binary-required")]
    assert said(rule, binary=False) == [(Level.OK, None)]
    assert not in_binary_mode(ColumnRules([rule], SECRET), [TABLE])
    left_out = ColumnRule("public.t", exclude=["born"], masks={"born": Mask(HASH), "email": Mask(HASH)})
    assert said(left_out) == [(Level.OK, None)]
    assert in_binary_mode(ColumnRules([left_out], SECRET), [TABLE])
