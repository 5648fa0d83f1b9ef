"""Transforms that cdcd has an equal of become settings; of all others the reason is named."""

from __future__ import annotations

from typing import Any

import pytest
from unit.migration.test_conversion import converted, kinds, toml

from cdcd.cli.commands.migrate import _check_events
from cdcd.errors import RequestRejected
from cdcd.migration.conversion import JSON_CONVERTER, Converted
from cdcd.migration.transforms import LOGICAL_ROUTER, OUTBOX, REGEX_ROUTER, ROWS, routed


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
    with pytest.raises(RequestRejected, match="the connector has transforms"):
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


def test_routers_become_topics_of_tables() -> None:
    regex = {"regex": r"(.*)\.(\w+)\.(.*)", "replacement": "$2-$1.$3"}
    assert toml(of(REGEX_ROUTER, TABLES, **regex))["table"] == [
        {"match": "public.orders", "topic": "public-{prefix}.orders"},
        {"match": "sales.lines", "topic": "sales-{prefix}.lines"},
    ]
    plain = {"key__converter": JSON_CONVERTER, "value__converter": JSON_CONVERTER}
    plain |= {f"{part}__converter__schemas__enable": "false" for part in ("key", "value")}
    logical = {"topic__regex": "(.*)orders", "topic__replacement": "$1all", "key__enforce__uniqueness": "false"}
    result = of(LOGICAL_ROUTER, TABLES | plain, **logical)
    assert toml(result)["table"] == [{"match": "public.orders", "topic": "{prefix}.public.all"}]
    assert "after their topics" in reason(of(LOGICAL_ROUTER, TABLES, **logical))
    assert "adds a field to keys" in reason(of(LOGICAL_ROUTER, TABLES | plain))


def test_topics_that_entries_cannot_say_are_named() -> None:
    regex = {"regex": ".*", "replacement": "shop.all"}
    assert "takes the prefix away" in reason(of(REGEX_ROUTER, TABLES, regex=r"shop\.(.*)", replacement="$1"))
    assert "several tables come to one topic" in reason(of(REGEX_ROUTER, TABLES, **regex))
    assert "does not name each table" in reason(of(REGEX_ROUTER, None, **regex))
    assert "regular expression" in reason(of(REGEX_ROUTER, TABLES, regex="(a+)+", replacement="x"))
    masked = TABLES | {"column__exclude__list": "public.ord.*\\.secret"}
    different = {"regex": r"shop\.(.*)", "replacement": "shop-$1"}
    assert "may be for the same tables" in reason(of(REGEX_ROUTER, masked, **different))


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
