"""Topic names are legal, readable, and never shared by two tables."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.config.settings import OutboxSettings
from cdcd.errors import SettingsError
from cdcd.sink.topics import (
    TopicNames,
    TopicRule,
    encode_identifier,
    progress_spec,
    schemas_spec,
    shared_topics,
    topic_owners,
    unequal_partitions,
)
from cdcd.source.table_selection import TablePattern

identifiers = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63)


def test_an_ordinary_name_is_itself() -> None:
    assert TopicNames("cdcd").topic("public", "Order_Lines2") == "cdcd.public.Order_Lines2"


def test_what_kafka_forbids_and_the_separator_are_escaped() -> None:
    names = TopicNames("cdcd")
    assert names.topic("a.b", "c") == "cdcd.a-2eb.c"
    assert names.topic("a", "b.c") == "cdcd.a.b-2ec"
    assert names.topic("my schema", "é-x") == "cdcd.my-20schema.-c3-a9-2dx"


@given(identifiers, identifiers, identifiers, identifiers)
def test_two_tables_never_share_a_topic(schema: str, table: str, schema2: str, table2: str) -> None:
    names = TopicNames("p")
    one, two = names.topic(schema, table), names.topic(schema2, table2)
    assert (one == two) == ((schema, table) == (schema2, table2))
    for name in (one, two):
        assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name)


@given(identifiers)
def test_an_encoded_identifier_can_be_decoded(name: str) -> None:
    encoded = encode_identifier(name)
    assert "." not in encoded
    assert "--" not in encoded
    decoded = re.sub(rb"-([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), encoded.encode())
    assert decoded.decode() == name


def test_no_table_gets_the_topic_of_transactions_and_no_other_slot_may() -> None:
    table = ("public", "transaction")
    without, names = (TopicNames("p", "{prefix}.{table}", has_transactions=has) for has in (False, True))
    assert (without.topic(*table), names.topic(*table)) == ("p.transaction", "p.transaction--table")
    assert names.topic("", "transaction") == names.transactions == "p.transaction"
    assert without.chosen_topics([table]) == names.chosen_topics([table]) == {"p.transaction"}
    assert TopicNames("p", has_transactions=True).topic(*table) == "p.public.transaction"


@pytest.mark.parametrize("template", ["{prefix}.{schema}.{table}", "{prefix}.{table}", "{prefix}.{table}.transaction"])
def test_a_topic_that_may_be_that_of_another_slots_transactions_is_no_other_slots(template: str) -> None:
    table = ("public", "transaction")
    ours = TopicNames("p", template)
    other = TopicNames(ours.topic(*table).removesuffix(".transaction"), has_transactions=True)
    assert ours.chosen_topics([table]) == other.chosen_topics([]) == {ours.topic(*table)}
    assert TopicNames("p").chosen_topics([("transaction", "t"), ("public", "transactions")]) == set()


def test_long_names_stay_apart_and_within_the_limit() -> None:
    names = TopicNames("cdcd")
    one, two = names.topic("ж" * 31, "ж" * 31 + "a"), names.topic("ж" * 31, "ж" * 31 + "b")
    assert one != two
    assert len(one) == len(two) == 249
    assert re.search(r"--[0-9a-f]{32}$", one)


def test_the_topics_of_cdcd_itself_are_named_by_the_prefix() -> None:
    names = TopicNames("shop")
    assert (names.messages, names.progress, names.schemas) == ("shop.messages", "shop.progress", "shop.schemas")
    assert names.topic("", "messages") == names.messages


def test_a_template_may_leave_out_the_prefix() -> None:
    assert TopicNames("shop", "{schema}.{table}").topic("public", "orders") == "public.orders"


@pytest.mark.parametrize("name", ["messages", "progress", "schemas", "parked", "snapshots"])
def test_a_table_never_takes_a_topic_of_cdcd_itself(name: str) -> None:
    names = TopicNames("shop", "{prefix}.{table}")
    assert names.topic("public", name) == f"shop.{name}--table"
    assert names.topic("", f"outbox.{name}") == f"shop.outbox.{name}--table"
    assert names.topic("public", f"{name}--table") == f"shop.{name}-2d-2dtable"


def test_a_topic_of_the_outbox_has_a_legal_name() -> None:
    names = TopicNames("shop")
    assert names.topic("", "outbox.Order-line") == "shop.outbox.Order-line"
    assert len(names.topic("", "outbox." + "x" * 300)) == 249
    assert names.topic("", "outbox." + "x" * 300) != names.topic("", "outbox." + "x" * 301)


def test_a_table_never_takes_a_topic_of_kafka_itself() -> None:
    assert TopicNames("shop", "{table}").topic("public", "__transaction_state") == "__transaction_state--table"
    assert TopicNames("shop", "{table}").topic("public", "..") == "-2e-2e"


def test_the_owner_of_a_topic_is_the_table_that_had_it_before_and_else_the_first() -> None:
    names = TopicNames("shop", "{prefix}.{table}")
    tables = [("a", "t"), ("b", "t"), ("b", "u")]
    assert topic_owners(names, tables, {}) == {"shop.t": ("a", "t"), "shop.u": ("b", "u")}
    assert topic_owners(names, tables, {"shop.t": ("b", "t")})["shop.t"] == ("b", "t")
    assert topic_owners(names, tables, {"shop.t": ("dropped", "t")})["shop.t"] == ("a", "t")
    assert topic_owners(names, tables, {}, {("a", "t")})["shop.t"] == ("b", "t")
    assert topic_owners(names, tables, {"shop.t": ("a", "t")}, {("a", "t")})["shop.t"] == ("a", "t")
    assert shared_topics(names, tables) == [(("a", "t"), ("b", "t"))]
    assert not shared_topics(TopicNames("shop"), tables)


@pytest.mark.parametrize("own", ["messages", "progress", "schemas", "snapshots", "parked"])
@pytest.mark.parametrize("template", ["{prefix}.{schema}.{table}", "{prefix}.{table}", "{prefix}.{table}.{schema}"])
def test_no_table_takes_a_topic_of_cdcd_itself_under_any_prefix(own: str, template: str) -> None:
    names = TopicNames("a", template)
    for schema, table in ((own, own), ("b", own), (own, "b")):
        topic = names.topic(schema, table)
        others = TopicNames(topic.rpartition(".")[0])
        assert topic not in (others.messages, others.progress, others.schemas, others.snapshots, others.parked)
    assert TopicNames("a").topic("b", own) == f"a.b.{own}--table"


@given(identifiers, identifiers)
def test_a_tables_topic_is_recognized_and_that_of_another_prefix_is_not(schema: str, table: str) -> None:
    names = TopicNames("a")
    assert names.may_be_table_topic(names.topic(schema, table))
    assert not TopicNames("b").may_be_table_topic(names.topic(schema, table))


@pytest.mark.parametrize("topic", ["a.progress", "a.b.progress", "a.b.messages", "a.b.c.d", "ab.c.d", "a.b", "xa.b.c"])
def test_topics_of_cdcd_itself_and_of_a_longer_prefix_are_no_tables(topic: str) -> None:
    assert not TopicNames("a").may_be_table_topic(topic)


@pytest.mark.parametrize("topic", ["outbox.{aggregate}", "outbox.event.{aggregate}", "events.{aggregate}.v1"])
def test_so_is_a_topic_of_the_outbox(topic: str) -> None:
    settings = OutboxSettings(message_prefix="outbox", topic=topic)
    names = TopicNames("a", outbox=settings.topic_parts)
    for aggregate in ("Order", "é-", "messages"):
        assert names.may_be_table_topic(names.topic("", settings.rules.topic(aggregate)))
        assert not TopicNames("b", outbox=settings.topic_parts).may_be_table_topic(names.topic("", aggregate))
    assert not names.may_be_table_topic("a.messages")
    assert OutboxSettings(topic=topic).topic_parts is None


def rule(match: str, template: str = "", partitions: int = 0) -> TopicRule:
    return TopicRule(TablePattern(match), template, partitions)


def test_the_first_rule_that_says_a_name_or_partitions_decides_these() -> None:
    rules = [
        rule("public.orders", partitions=12),
        rule("public.orders", "{prefix}.orders"),
        rule("tenant_*.orders", "{prefix}.of.{schema}", 2),
        rule("*.*", "{prefix}.{table}.{schema}", 1),
    ]
    names = TopicNames("shop", rules=rules)
    tables = [("public", "orders"), ("tenant_é", "orders"), ("public", "lines")]
    assert [names.topic(*table) for table in tables] == ["shop.orders", "shop.of.tenant_-c3-a9", "shop.lines.public"]
    assert [names.partitions(*table, 4) for table in tables] == [12, 2, 1]
    assert (names.topic("", "messages"), names.partitions("", "messages", 4)) == ("shop.messages", 4)
    assert names.example == "shop.schema.table"
    assert all(names.may_be_table_topic(names.topic(*table)) for table in tables)
    assert not TopicNames("shop").may_be_table_topic("shop.orders")
    assert not shared_topics(names, tables)


def test_a_rule_may_not_take_a_topic_of_cdcd_itself_and_two_rules_that_collide_are_found() -> None:
    names = TopicNames("shop", rules=[rule("public.p", "{prefix}.progress"), rule("public.q", "{prefix}.public.r")])
    assert names.topic("public", "p") == "shop.progress--table"
    tables = [("public", "q"), ("public", "r")]
    assert shared_topics(names, tables) == [(("public", "q"), ("public", "r"))]


@pytest.mark.parametrize(
    ("match", "template", "said"),
    [
        ("public.orders", "orders", "lacks {prefix}"),
        ("public.orders", "{prefix}/orders", "has characters that Kafka does not allow"),
        ("public.orders", "{prefix}.{what}", "has characters that Kafka does not allow"),
    ],
)
def test_a_rule_whose_topic_is_no_name_under_the_prefix_is_a_wrong_setting(
    match: str, template: str, said: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        TopicNames("shop", rules=[rule(match, template)])
    assert (caught.value.code, said in caught.value.message) == ("setting-invalid", True)


@pytest.mark.parametrize("match", ['public."or*ders"', "public.orders"])
def test_a_rule_for_one_table_may_have_any_name(match: str) -> None:
    assert TopicNames("shop", rules=[rule(match, "{prefix}.x")]).topic("public", match[7:].strip('"')) == "shop.x"


def test_without_the_prefix_in_the_template_no_topic_is_taken_for_a_tables() -> None:
    names = TopicNames("a", "{schema}.{table}")
    assert not names.may_be_table_topic(names.topic("public", "orders"))


@pytest.mark.parametrize("template", ["all", "{prefix}.{schema}", "{prefix}/{table}", "{prefix}.{table}.{what}"])
def test_a_template_that_gives_tables_no_topic_of_their_own_is_a_wrong_setting(template: str) -> None:
    with pytest.raises(SettingsError, match=r"sink\.topic"):
        TopicNames("shop", template)


@pytest.mark.parametrize("prefix", ["", "a b", "é", "x" * 200])
def test_a_prefix_that_kafka_forbids_is_a_wrong_setting(prefix: str) -> None:
    with pytest.raises(SettingsError, match=r"sink\.prefix"):
        TopicNames(prefix)


def test_progress_has_one_partition_and_keeps_a_week() -> None:
    spec = progress_spec(TopicNames("p"), 3)
    assert (spec.name, spec.partitions, spec.replication_factor) == ("p.progress", 1, 3)
    assert spec.config == {"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"}
    assert schemas_spec(TopicNames("p"), 3).config == {"cleanup.policy": "compact"}


def test_tables_share_a_topic_that_does_not_name_what_a_star_stands_for() -> None:
    names = TopicNames("shop", rules=[rule("tenant_*.orders", "{prefix}.orders"), rule("b.*", "{prefix}.b", 3)])
    tables = [("tenant_1", "orders"), ("tenant_é", "orders"), ("b", "x"), ("public", "orders")]
    assert [names.topic(*table) for table in tables] == [
        "shop.orders#tenant_1.orders", "shop.orders#tenant_-c3-a9.orders", "shop.b#b.x", "shop.public.orders",
    ]  # fmt: skip
    assert [names.shared_topic(*table) for table in tables] == ["shop.orders", "shop.orders", "shop.b", ""]
    assert names.partitions("b", "x", 4) == 3
    assert shared_topics(names, tables) == []
    assert names.may_be_table_topic("shop.orders")
    assert names.topic("", "orders") == "shop.orders", "an outbox's topic is no table's"


@pytest.mark.parametrize(
    ("rules", "shared"),
    [
        ([("a.orders", "{prefix}.orders"), ("b.orders", "{prefix}.orders")], True),
        ([("a.orders", "{prefix}.orders"), ("b.orders", "{prefix}.lines")], False),
        ([("a.orders", "{prefix}.of-{schema}"), ("b.orders", "{prefix}.of-{schema}")], False),
        ([("a.orders", "{prefix}.of-{schema}"), ("a.lines", "{prefix}.of-{schema}")], True),
        ([("a.*", "{prefix}.x.{schema}.{table}"), ("b.*", "{prefix}.x.{schema}.{table}")], False),
        ([("a.*", ""), ("b.*", "")], False),
        ([("a.b.c*", "{prefix}.c")], True),
    ],
)
def test_whether_tables_share_a_topic_is_a_matter_of_the_settings_alone(
    rules: list[tuple[str, str]], shared: bool
) -> None:
    assert TopicNames("shop", rules=[rule(*each) for each in rules]).has_shared_topics is shared


def test_a_table_cannot_have_for_itself_what_others_share() -> None:
    names = TopicNames("shop", rules=[rule("t_*.orders", "{prefix}.public.orders")])
    tables = [("public", "orders"), ("t_1", "orders"), ("t_2", "orders")]
    assert shared_topics(names, tables) == [(("t_1", "orders"), ("public", "orders"))]


@pytest.mark.parametrize(
    ("first", "second", "default", "said"), [(3, 12, 4, "12"), (3, 0, 4, "4"), (3, 0, 3, ""), (3, 3, 4, "")]
)
def test_tables_that_share_a_topic_have_one_number_of_partitions(
    first: int, second: int, default: int, said: str
) -> None:
    rules = [rule("a.orders", "{prefix}.orders", first), rule("b.*", "{prefix}.orders", second)]
    tables = [("b", "orders"), ("a", "orders"), ("c", "orders")]
    found = list(unequal_partitions(TopicNames("shop", rules=rules), tables, default))
    said = said and (
        f"the settings give the topic shop.orders several numbers of partitions: 3 for a.orders and {said} for b.orders"
    )
    assert found == ([said] if said else [])


def test_tables_with_topics_of_their_own_may_have_any_partitions() -> None:
    rules = [rule("a.*", "{prefix}.of.{table}", 3), rule("a.t", "", 5)]
    names = TopicNames("shop", rules=rules)
    assert not list(unequal_partitions(names, [("a", "t"), ("a", "u"), ("b", "u")], 4))
