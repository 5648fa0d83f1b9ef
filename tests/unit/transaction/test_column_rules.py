"""Which columns a rule leaves out or masks, and what becomes of the key of a table."""

from __future__ import annotations

from typing import Any

import pytest
from support.assembly import Catalog

from cdcd.errors import Unpublishable
from cdcd.pgoutput import messages as m
from cdcd.source.pg_types import Attribute, PgType
from cdcd.transaction.column_masks import HASH, LAST, NOTHING, Mask
from cdcd.transaction.column_rules import NO_RULES, ColumnRule, ColumnRules, PartitionChoice
from cdcd.transaction.relations import Relations

SECRET = b"0123456789abcdef"


def table(*names: str, schema: str = "public", name: str = "t", identity: str = "d") -> m.Relation:
    columns = tuple(m.Column(each == "id" or identity == "f", each, 25, -1) for each in names)
    return m.Relation(0, 7, schema, name, identity, columns)


def kept(rules: ColumnRules, message: m.Relation) -> list[str]:
    masking = rules.masking(message)
    return [column.name for column in (message if masking is None else masking.relation(message)).columns]


def resolved(rules: list[ColumnRule], message: m.Relation, **more: Any) -> Any:
    return Relations(Catalog(), rules=ColumnRules(rules, SECRET), **more).resolve(message)


def test_without_a_rule_for_a_table_nothing_is_done() -> None:
    assert NO_RULES.masking(table("id")) is None
    rules = ColumnRules([ColumnRule("public.t", exclude=["a"])])
    assert rules.masking(table("id", "a", schema="other")) is None
    assert rules.masking(table("id", "b")) is None, "the table has no such column"


def test_the_first_rule_that_says_something_decides_that() -> None:
    rules = ColumnRules(
        [
            ColumnRule("public.t", masks={"a": Mask(NOTHING)}),
            ColumnRule("public.*", exclude=["b"], masks={"c": Mask(NOTHING)}),
            ColumnRule("*.*", include=["id"]),
        ]
    )
    masking = rules.masking(table("id", "a", "b", "c"))
    assert masking is not None
    assert kept(rules, table("id", "a", "b", "c")) == ["id", "a", "c"]
    assert [masking.is_masked(name) for name in ("a", "c")] == [True, False]
    assert kept(rules, table("id", "a", "b", "c", schema="s")) == ["id"]


def test_include_leaves_out_every_column_that_it_does_not_name() -> None:
    rules = ColumnRules([ColumnRule("public.t", include=["id", "a"])])
    assert kept(rules, table("new", "id", "a", "b")) == ["id", "a"]


def test_the_table_of_requests_is_never_masked() -> None:
    rules = ColumnRules([ColumnRule("*.*", masks={"keys": Mask(NOTHING)})])
    assert rules.masking(table("id", "keys", schema="cdcd", name="requests")) is None


def test_a_relation_has_the_types_of_the_masked_values() -> None:
    message = m.Relation(0, 7, "public", "t", "d", tuple(m.Column(n == "id", n, 23, -1) for n in ("id", "a", "b", "c")))
    relation = resolved([ColumnRule("*.*", exclude=["c"], masks={"a": Mask(HASH), "b": Mask(NOTHING)})], message)
    assert [(c.name, c.pgtype.name, c.is_masked) for c in relation.columns] == [
        ("id", "int4", False), ("a", "text", True), ("b", "int4", True),
    ]  # fmt: skip
    assert (relation.key, relation.has_masked_key) == (("id",), False)


def test_a_key_may_be_masked_by_a_hash() -> None:
    relation = resolved([ColumnRule("*.*", masks={"id": Mask(HASH)})], table("id", "a"))
    assert (relation.key, relation.has_masked_key) == (("id",), True)


@pytest.mark.parametrize("identity", ["d", "f"])
@pytest.mark.parametrize(
    "rule",
    [
        ColumnRule("*.*", masks={"id": Mask(NOTHING)}),
        ColumnRule("*.*", masks={"id": Mask(LAST, kept=4)}),
        ColumnRule("*.*", exclude=["id"]),
        ColumnRule("*.*", include=["a"]),
    ],
)
def test_a_key_that_is_lost_is_refused_and_parked_without_it(rule: ColumnRule, identity: str) -> None:
    message = table("id", "a", identity=identity)
    with pytest.raises(Unpublishable, match=r"column id of public\.t") as caught:
        resolved([rule], message)
    assert (caught.value.code, caught.value.table, caught.value.keyless) == ("key-masked", ("public", "t"), True)
    parked = resolved([rule], message, parked={("public", "t")})
    assert (parked.key, parked.has_lost_key) == ((), True)


KEYED = ColumnRule("public.*", key=["a", "id"])


@pytest.mark.parametrize("identity", ["d", "f"])
def test_the_first_rule_with_a_key_decides_it_for_good(identity: str) -> None:
    message = table("id", "a", "b", identity=identity)
    columns = tuple(m.Column(column.name != "b", column.name, 25, -1) for column in message.columns)
    message = m.Relation(0, 7, "public", "t", identity, columns if identity == "d" else message.columns)
    others = [ColumnRule("audit.*", key=["b"]), ColumnRule("*.*", exclude=["c"]), KEYED, ColumnRule("*.*", key=["b"])]
    relation = resolved(others, message)
    assert (relation.key, relation.key_order) == (("id", "a"), ("id", "a")), "in the order of the table"
    assert not relation.is_provisional


@pytest.mark.parametrize(
    ("identity", "flagged", "names", "why"),
    [
        ("d", ("id",), ("id", "a"), "its replica identity lacks a"),
        ("i", ("id",), ("id", "a"), "its replica identity lacks a"),
        ("n", (), ("id", "a"), "its replica identity lacks a, id"),
        ("f", ("id", "b"), ("id", "b"), "the table has no column a"),
    ],
)
def test_a_key_that_an_old_row_would_not_have_is_refused_and_a_parked_table_has_its_own(
    identity: str, flagged: tuple[str, ...], names: tuple[str, ...], why: str
) -> None:
    columns = tuple(m.Column(name in flagged, name, 25, -1) for name in names)
    message = m.Relation(0, 7, "public", "t", identity, columns)
    with pytest.raises(Unpublishable, match=why) as caught:
        resolved([KEYED], message)
    assert (caught.value.code, caught.value.table, caught.value.keyless) == ("key-unfit", ("public", "t"), True)
    assert 'ALTER TABLE "public"."t" REPLICA IDENTITY USING INDEX "t_key_of_events"' in caught.value.hint
    own = resolved([], message).key
    assert resolved([KEYED], message, parked={("public", "t")}).key == own
    assert own == ("id",)


def test_the_first_rule_that_says_what_decides_the_partition_counts_where_the_key_has_the_column() -> None:
    def by(column: str, **more: Any) -> ColumnRule:
        return ColumnRule("public.*", partition_by=PartitionChoice(column, **more))

    message = table("id", "a")
    assert resolved([ColumnRule("*.*", exclude=["b"]), by("id"), by("a")], message).partition_by.column == "id"
    assert resolved([by("", is_one=True)], message).partition_by.is_one
    assert resolved([by(""), by("id")], message).partition_by.is_by_key
    assert resolved([by("a")], message).partition_by.is_by_key, "an old row may lack it"
    assert resolved([], message).partition_by.is_by_key


def test_a_key_of_the_settings_may_be_masked_by_a_hash_and_not_be_left_out() -> None:
    message = table("id", "a", identity="f")
    assert resolved([KEYED, ColumnRule("*.*", masks={"a": Mask(HASH)})], message).has_masked_key
    with pytest.raises(Unpublishable, match=r"column a of public\.t is left out"):
        resolved([KEYED, ColumnRule("*.*", exclude=["a"])], message)


def test_the_value_that_older_rows_hold_does_not_show_by_any_way() -> None:
    class Added(Catalog):
        now: dict[str, Attribute]

        def attributes(self, relation_oid: int) -> dict[str, Attribute]:
            return self.now

    catalog = Added()
    catalog.more_types = {1043: PgType(1043, "pg_catalog", "varchar")}
    catalog.now = {name: Attribute(at, 25, "secret") for at, name in enumerate(("a", "b", "c"), 2)}
    rules = ColumnRules([ColumnRule("*.*", exclude=["a"], masks={"b": Mask(HASH), "c": Mask(NOTHING)})], SECRET)
    published = dict(catalog.now)
    relations = Relations(catalog, last_added=lambda *_: published, rules=rules)
    for _ in range(2):
        relation = relations.resolve(table("id", "a", "b", "c"))
        missing = {column.name: column.missing_value for column in relation.columns}
        assert missing.keys() == {"id", "b", "c"}
        assert missing["c"] is None
        assert missing["b"] is not None
        assert len(missing["b"]) == 32
        assert "secret" not in repr(relation.added)
        catalog.now = {name: Attribute(at, 25, None) for at, name in enumerate(("a", "b", "c"), 2)}  # written anew
