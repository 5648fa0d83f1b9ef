"""Transforms that cdcd has an equal of become settings; of all others the reason is named."""

from __future__ import annotations

from typing import Any

import pytest
from unit.migration.test_conversion import converted, kinds, toml

from cdcd.cli.commands.migrate import _check_events
from cdcd.errors import RequestRejected
from cdcd.migration.conversion import JSON_CONVERTER, Converted
from cdcd.migration.transforms import LOGICAL_ROUTER, LOGICAL_TOPIC_ROUTER, OUTBOX, REGEX_ROUTER, ROWS, routed


def of(kind: str, more: dict[str, str] | None = None, **options: str) -> Converted:
    """The conversion of a connector with one transform. `more`: other options of the connector."""
    own = {f"transforms__a__{name}": text for name, text in options.items()}
    return converted(transforms="a", transforms__a__type=kind, **own, **(more or {}))


def reason(result: Converted, option: str = "type") -> str:
    [note] = [each for each in result.notes if each.option == f"transforms.a.{option}"]
    assert note.kind == "no equal"
    return note.text


@pytest.mark.parametrize(
    ("options", "tombstones", "wanted"),
    [
        ({}, "true", {"add_fields": []}),
        ({"delete__tombstone__handling__mode": "delete-to-tombstone"}, "true", {"add_fields": []}),
        ({}, "false", {"add_fields": [], "delete_tombstone_handling_mode": "drop"}),
        (
            {"delete__tombstone__handling__mode": "rewrite-with-tombstone", "add__fields": "op, source.ts_ms:at"},
            "false",
            {"add_fields": ["op", "source.ts_ms:at"], "delete_tombstone_handling_mode": "rewrite"},
        ),
    ],
)
def test_the_new_state_of_a_record_is_a_flat_row(options: dict[str, str], tombstones: str, wanted: Any) -> None:
    result = of(ROWS, {"tombstones__on__delete": tombstones, "skipped__operations": "none"}, **options)
    settings = toml(result)
    assert (settings["sink"]["format"], settings["row"]) == ("row", wanted)
    assert not result.settings.debezium.truncates
    assert kinds(result, "transforms") == kinds(result, "transforms.a.type") == {"converted"}
    with pytest.raises(RequestRejected, match="transforms, and their records do not say"):
        _check_events(result)


def test_what_a_row_cannot_have_is_named() -> None:
    assert "transaction.id is no field" in reason(of(ROWS, add__fields="transaction.id"), "add.fields")
    assert of(ROWS, add__fields="transaction.id").settings.sink.format == "debezium"
    assert "no mode none" in reason(of(ROWS, delete__tombstone__handling__mode="none"))
    assert "has a predicate" in reason(of(ROWS, predicate="p"))
    result = of(ROWS, route__by__field="x", add__headers="op")
    assert result.settings.sink.format == "row"
    assert kinds(result, "transforms.a.route.by.field") == kinds(result, "transforms.a.add.headers") == {"no equal"}


def test_a_transform_that_cdcd_lacks_leaves_the_others() -> None:
    both = {"transforms__a__type": ROWS, "transforms__b__type": "org.example.Other"}
    result = converted(transforms="a, b", **both)
    assert result.settings.sink.format == "row"
    assert kinds(result, "transforms") == kinds(result, "transforms.b.type") == {"no equal"}


TABLES = {"table__include__list": "public.orders,sales.lines"}
PLAIN = {"key__converter": JSON_CONVERTER, "value__converter": JSON_CONVERTER}
PLAIN |= {f"{part}__converter__schemas__enable": "false" for part in ("key", "value")}
QUIET = {"message__prefix__exclude__list": ".*"}
"""No logical messages."""


def test_routers_become_topics_of_tables() -> None:
    regex = {"regex": r"(.*)\.(\w+)\.(.*)", "replacement": "$2-$1.$3"}
    assert toml(of(REGEX_ROUTER, TABLES, **regex))["table"] == [
        {"match": "public.orders", "topic": "public-{prefix}.orders"},
        {"match": "sales.lines", "topic": "sales-{prefix}.lines"},
    ]
    logical = {"topic__regex": "(.*)orders", "topic__replacement": "$1all", "key__enforce__uniqueness": "false"}
    result = of(LOGICAL_ROUTER, TABLES | PLAIN, **logical)
    assert toml(result)["table"] == [{"match": "public.orders", "topic": "{prefix}.public.all"}]
    assert "names the schemas of public.orders after shop.public.all, and" in reason(
        of(LOGICAL_ROUTER, TABLES, **logical)
    )
    _check_events(result)
    assert "adds a field to the keys of public.orders" in reason(
        of(LOGICAL_ROUTER, TABLES | PLAIN, topic__regex="(.*)orders", topic__replacement="$1all")
    )


def test_topics_that_entries_cannot_say_are_named() -> None:
    assert "takes the prefix away" in reason(of(REGEX_ROUTER, TABLES, regex=r"shop\.(.*)", replacement="$1"))
    some = {"regex": r"shop\.public\.(a|b)", "replacement": "shop.all"}
    assert "does not name each table, and those of *.* differ" in reason(of(REGEX_ROUTER, None, **some))
    assert "regular expression" in reason(of(REGEX_ROUTER, TABLES, regex="(a+)+", replacement="x"))
    masked = TABLES | {"column__exclude__list": "public.ord.*\\.secret"}
    different = {"regex": r"shop\.(.*)", "replacement": "shop-$1"}
    assert "may be for the same tables" in reason(of(REGEX_ROUTER, masked, **different))


SHARDS = {"table__include__list": "public.orders_1,public.orders_2,public.other"}
ALL = {"topic__regex": r"(.*)orders_\d", "topic__replacement": "$1orders"}
SHARED = [{"match": f"public.orders_{n}", "topic": "{prefix}.public.orders"} for n in (1, 2)]


def in_keys(result: Converted) -> dict[str, Any]:
    """What the settings say of keys of tables that share a topic."""
    return {name: value for name, value in toml(result).get("debezium", {}).items() if name.startswith("key_")}


@pytest.mark.parametrize(
    ("kind", "options", "wanted"),
    [
        (LOGICAL_ROUTER, {}, None),
        (LOGICAL_TOPIC_ROUTER, {}, {"key_field_name": "__dbz__sourceIdentifier"}),
        (LOGICAL_ROUTER, {"key__field__name": "shard"}, {"key_field_name": "shard"}),
        (LOGICAL_ROUTER, {"key__field__regex": "(.*)", "key__field__replacement": "$1"}, None),
        (LOGICAL_ROUTER, {"key__enforce__uniqueness": "FALSE"}, {"key_enforce_uniqueness": False}),
    ],
)
@pytest.mark.parametrize("encoding", [PLAIN, {}])
def test_tables_that_a_logical_router_brings_together_share_a_topic(
    kind: str, options: dict[str, str], wanted: Any, encoding: dict[str, str]
) -> None:
    result = of(kind, SHARDS | encoding, **ALL, **options)
    assert toml(result)["table"] == SHARED
    assert in_keys(result) == (wanted or {})
    assert result.settings.topic_names().shared_topic("public", "orders_2") == "shop.public.orders"
    assert {each.kind for each in result.notes if each.option.startswith("transforms")} <= {"converted", "needless"}
    _check_events(result)


def test_a_router_of_regular_expressions_adds_nothing_to_keys_and_leaves_schemas_alone() -> None:
    result = of(REGEX_ROUTER, SHARDS | PLAIN, regex=r"(.*)orders_\d", replacement="$1orders")
    assert toml(result)["table"] == SHARED
    assert in_keys(result) == {"key_enforce_uniqueness": False}
    _check_events(result)
    assert "after shop.public.orders_1, and cdcd after shop.public.orders" in reason(
        of(REGEX_ROUTER, SHARDS, regex=r"(.*)orders_\d", replacement="$1orders")
    )


def test_tables_that_patterns_name_share_topics_by_pattern() -> None:
    tables = {"table__include__list": r"tenant_.*\.orders,tenant_.*\.lines,public\.t[0-9],audit\..*"}
    of_tenants = {"topic__regex": r"shop\.tenant_[^.]+\.(.*)", "topic__replacement": "shop.all.$1"}
    assert toml(of(LOGICAL_ROUTER, tables, **of_tenants))["table"] == [
        {"match": "tenant_*.orders", "topic": "{prefix}.all.orders"},
        {"match": "tenant_*.lines", "topic": "{prefix}.all.lines"},
    ]
    by_schema = {"topic__regex": r"shop\.(.*)\.(.*)", "topic__replacement": "shop-$1"}
    assert toml(of(LOGICAL_ROUTER, {"table__include__list": r"audit\..*,tenant_.*\..*"}, **by_schema))["table"] == [
        {"match": "audit.*", "topic": "{prefix}-audit"}, {"match": "tenant_*.*", "topic": "{prefix}-{schema}"},
    ]  # fmt: skip
    everything = {"topic__regex": ".*", "topic__replacement": "shop.all"}
    assert toml(of(LOGICAL_ROUTER, QUIET, **everything))["table"] == [{"match": "*.*", "topic": "{prefix}.all"}]
    some = {"topic__regex": r"shop\.tenant_[0-4]\.(.*)", "topic__replacement": "shop.all.$1"}
    assert "those of tenant_*.orders differ" in reason(of(LOGICAL_ROUTER, tables, **some))
    tables = {"table__include__list": r"tenant_.*\.orders"}
    some = {"topic__regex": r"shop\.(tenant_7|public)\.(.*)", "topic__replacement": "shop.all.$2"}
    assert "those of tenant_*.orders differ" in reason(of(LOGICAL_ROUTER, tables, **some))


def test_what_keys_and_schemas_cannot_be_is_named() -> None:
    orders = {"table__include__list": "public.orders,public.orders_1,public.orders_2"}
    assert "no field to the keys of public.orders, to whose" in reason(of(LOGICAL_ROUTER, orders | PLAIN, **ALL))
    result = of(LOGICAL_ROUTER, orders, **ALL, key__enforce__uniqueness="false")
    assert toml(result)["table"][0] == {"match": "public.orders", "topic": "{prefix}.public.orders"}
    short = {"key__field__regex": r"(.*)orders_(.*)", "key__field__replacement": "$2"}
    result = of(LOGICAL_ROUTER, SHARDS, **ALL, **short)
    assert toml(result)["table"] == SHARED
    assert "another one in the connector" in reason(result, "key.field.regex")
    with pytest.raises(RequestRejected, match=r"transforms\.a\.key\.field\.regex, which has no equal"):
        _check_events(result)
    dashes = SHARDS | {"topic__delimiter": "-"}
    assert "another one" in reason(of(LOGICAL_ROUTER, dashes, **ALL), "key.enforce.uniqueness")
    adjusted = SHARDS | {"schema__name__adjustment__mode": "avro", "topic__prefix": "a-shop"}
    assert "names the schemas" in reason(of(LOGICAL_ROUTER, adjusted, **ALL))
    same = of(LOGICAL_ROUTER, adjusted, **ALL, schema__name__adjustment__mode="avro")
    assert kinds(same, "transforms.a.schema.name.adjustment.mode") == {"needless"}


def test_events_of_no_table_that_come_to_a_table_s_topic_are_named() -> None:
    everything = {"topic__regex": ".*", "topic__replacement": "shop.all"}
    assert "the topic of logical messages, too" in reason(of(LOGICAL_ROUTER, TABLES, **everything))
    beating = TABLES | QUIET | {"heartbeat__interval__ms": "1000"}
    assert "the topic of heartbeats, too" in reason(of(LOGICAL_ROUTER, beating, **everything))
    counted = TABLES | QUIET | {"provide__transaction__metadata": "true"}
    assert "the topic of transaction metadata, too" in reason(of(REGEX_ROUTER, counted, regex="(.*)", replacement="$1"))


def test_routers_behind_other_transforms() -> None:
    both = {"transforms__a__type": ROWS, "transforms__b__type": LOGICAL_ROUTER}
    both |= {f"transforms__b__{name}": text for name, text in ALL.items()}
    rows = converted(transforms="a, b", **both, **SHARDS, **PLAIN)
    assert (rows.settings.sink.format, toml(rows)["table"]) == ("row", SHARED)
    [note] = [
        each for each in converted(transforms="a, b", **both, **SHARDS).notes if each.option == "transforms.b.type"
    ]
    assert "behind ExtractNewRecordState" in note.text
    routers = {"transforms__a__type": REGEX_ROUTER, "transforms__a__regex": "x", "transforms__a__replacement": "y"}
    result = converted(transforms="a, b", **(both | routers), **SHARDS, **PLAIN)
    [note] = [each for each in result.notes if each.option == "transforms.b.type"]
    assert "another router comes before it" in note.text


@pytest.mark.parametrize(
    ("expression", "replacement", "wanted"),
    [
        ("a|a.b", "c", "c.b"),  # as Java: all of it has to match, and the first match is replaced
        ("a", "c", "a.b"),
        (r"(a)\.(b)", "$2.$1", "b.a"),
        (r"[^.]+\.b", "x-y", "x-y"),
        (r"(a)\.b", "$2", None),
        (r"a\.b", "", None),
        (r"a\.b", "${name}", None),
        (r"a\.b", "a b", None),
        (r"(?i)A\.b", "x", None),
        (r"(a|a)*b", "x", None),
        (r"a\.b)", "x", None),
        (r"a\Q.\Eb", "x", None),
        ("a" * 501, "x", None),
        (r"(.*)(.*)(.*)(.*)\.c", "x", "a.b"),
        (r".*" * 5 + "c", "x", None),  # with 249 characters it would take hours
        (r"(a|a)" * 13, "x", None),
    ],
)
def test_a_topic_is_routed_as_java_does(expression: str, replacement: str, wanted: str | None) -> None:
    assert routed(expression, replacement, {"t": "a.b"}) == (None if wanted is None else {"t": wanted})


def test_the_event_router_becomes_the_outbox() -> None:
    table = {"table__include__list": "public.events"}
    options = {
        "route__topic__replacement": "shop.out.${routedByValue}.v1",
        "table__field__event__key": "of",
        "table__fields__additional__placement": "type:header,tenant:header:tenant",
    }
    result = of(OUTBOX, table, **options)
    assert toml(result)["outbox"] == {
        "table": "public.events", "topic": "out.{aggregate}.v1", "aggregate_id": "of", "headers": ["tenant"],
    }  # fmt: skip
    assert not [each for each in result.notes if each.kind == "no equal" and each.option.startswith("transforms.")]
    assert kinds(result, "transforms") == {"converted"}


def test_what_differs_of_the_outbox_is_named() -> None:
    table = {"table__include__list": "public.events"}
    placed = "a:envelope"
    result = of(OUTBOX, table, table__fields__additional__placement=placed, table__expand__json__payload="true")
    assert toml(result)["outbox"] == {"table": "public.events", "topic": "outbox.event.{aggregate}"}
    named = [each.option for each in result.notes if each.kind == "no equal" and each.option.startswith("transforms.a")]
    assert sorted(named) == [
        "transforms.a.route.topic.replacement",
        "transforms.a.table.expand.json.payload",
        "transforms.a.table.field.event.type",
        "transforms.a.table.fields.additional.placement",
    ]
    assert "write [outbox]" in reason(of(OUTBOX))
    assert "write [outbox]" in reason(of(OUTBOX, table, route__topic__replacement="${routedByValue}"))
