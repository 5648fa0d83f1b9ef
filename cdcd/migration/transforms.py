"""The transforms of a connector that settings of cdcd stand for. Pure.

Before: `conversion` has the options `transforms.NAME.*`. After: it has the settings, and what has no equal.
Source: Debezium 3.7, "New Record State Extraction", "Outbox Event Router", "Topic Routing"; Kafka Connect, RegexRouter;
Java, `java.util.regex.Pattern` and `Matcher.replaceFirst`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdcd.debezium.added_fields import names_of

ROWS: Final = "io.debezium.transforms.ExtractNewRecordState"
OUTBOX: Final = "io.debezium.transforms.outbox.EventRouter"
LOGICAL_ROUTER: Final = "io.debezium.transforms.ByLogicalTableRouter"
REGEX_ROUTER: Final = "org.apache.kafka.connect.transforms.RegexRouter"

_EXPRESSION: Final = re.compile(r"(?:[A-Za-z0-9_.$^|-]|\\[.wd_-]|[*+?]|\((?!\?)|\)(?![*+?{])|\[\^?[A-Za-z0-9_.-]+\])*")
"""What Java and Python read alike, without repetitions of groups, which may take endless time."""
_REPLACEMENT: Final = re.compile(r"(?:[A-Za-z0-9._-]|\$[1-9](?!\d))*")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_EXPRESSION_SIZE_MAX: Final = 500
_REPETITIONS_MAX: Final = 4
_CHOICES_MAX: Final = 12
"""Each repetition, and each choice, multiplies the time that a topic without a match takes."""

_ROUTED: Final = "${routedByValue}"
_OUTBOX_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]*\.\{aggregate\}[A-Za-z0-9._-]*")
_OUTBOX_COLUMNS: Final = {
    "table.field.event.id": ("id", "id"),
    "table.field.event.key": ("aggregate_id", "aggregateid"),
    "table.field.event.type": ("type", "type"),
    "table.field.event.payload": ("payload", "payload"),
    "route.by.field": ("aggregate_type", "aggregatetype"),
}
"""By option: the setting, and the default of both."""


@dataclass
class Transformed:
    """What one transform comes to. Options are named without `transforms.NAME.`."""

    settings: dict[str, Any] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    """The topic of each table, `schema.table`, with {prefix}."""
    converted: dict[str, str] = field(default_factory=dict)
    """By option: the setting."""
    no_equal: dict[str, str] = field(default_factory=dict)
    """By option: the reason."""

    @property
    def is_converted(self) -> bool:
        """Whether settings stand for it."""
        return "type" in self.converted


@dataclass(frozen=True)
class Connector:
    """What a transform depends on."""

    prefix: str
    topics: Mapping[str, str]
    """The topics by table, if the connector names each of its tables; else empty."""
    has_schemas: bool
    """Keys and values have schemas, which have names."""
    has_tombstones: bool


def transformed(options: Mapping[str, str], connector: Connector) -> Transformed | None:
    """What a transform comes to; None: cdcd has nothing like it. `options`: its own, without `transforms.NAME.`."""
    convert = _KINDS.get(options.get("type", "").strip())
    if convert is None:
        return None
    found = Transformed()
    if options.get("predicate", "").strip():
        found.no_equal["type"] = "it has a predicate, and cdcd's settings are for all events"
        return found
    convert({name: text.strip() for name, text in options.items()}, connector, found)
    if not found.is_converted:
        found.settings.clear()
        found.topics.clear()
        found.converted.clear()
    return found


def _rows(options: Mapping[str, str], connector: Connector, found: Transformed) -> None:
    fields = tuple(each.strip() for each in options.get("add.fields", "").split(",") if each.strip())
    prefix = options.get("add.fields.prefix", "__")
    try:
        names_of(fields, prefix)
    except ValueError as error:
        found.no_equal["add.fields"] = found.no_equal["type"] = f"rows cannot have these fields: {error}"
        return
    mode = options.get("delete.tombstone.handling.mode", "tombstone").lower()
    # Without the connector's tombstones, there is none that the transform could keep.
    without = {"tombstone": "drop", "rewrite-with-tombstone": "rewrite"} if not connector.has_tombstones else {}
    deletes = {"delete-to-tombstone": "tombstone"}.get(mode, without.get(mode, mode))
    if deletes not in ("tombstone", "rewrite", "rewrite-with-tombstone", "drop"):
        found.no_equal["delete.tombstone.handling.mode"] = found.no_equal["type"] = f"cdcd has no mode {mode}"
        return
    found.settings = {
        "sink.format": "row",
        "row.add_fields": fields,
        "row.add_fields_prefix": prefix,
        "row.delete_tombstone_handling_mode": deletes,
        "debezium.truncates": False,
    }
    found.converted = {
        "type": 'sink.format = "row"',
        "add.fields": "row.add_fields",
        "add.fields.prefix": "row.add_fields_prefix",
        "delete.tombstone.handling.mode": "row.delete_tombstone_handling_mode",
    }


def _outbox(options: Mapping[str, str], connector: Connector, found: Transformed) -> None:
    if len(connector.topics) != 1:
        found.no_equal["type"] = "table.include.list does not name the one table of the outbox: write [outbox]"
        return
    replacement = options.get("route.topic.replacement", f"outbox.event.{_ROUTED}")
    topic = replacement.removeprefix(f"{connector.prefix}.").replace(_ROUTED, "{aggregate}")
    if "route.topic.regex" in options or not _OUTBOX_TOPIC.fullmatch(topic):
        found.no_equal["type"] = "outbox.topic cannot say its topics: write [outbox]"
        return
    if not replacement.startswith(f"{connector.prefix}."):
        found.no_equal["route.topic.replacement"] = f"topics begin with sink.prefix: {connector.prefix}.{topic}"
    [table] = connector.topics
    found.settings = {"outbox.table": table, "outbox.topic": topic}
    found.converted = {"type": "[outbox]", "route.topic.replacement": "outbox.topic"}
    for option, (setting, default) in _OUTBOX_COLUMNS.items():
        found.settings[f"outbox.{setting}"] = options.get(option, default)
        found.converted[option] = f"outbox.{setting}"
    headers = []
    option = "table.fields.additional.placement"
    for each in filter(None, map(str.strip, options.get(option, "").split(","))):
        column, _, place = each.partition(":")
        if place in ("header", f"header:{column}"):
            headers.append(column)
            found.converted[option] = "outbox.headers"
        else:
            found.no_equal[option] = f"a column becomes a header of its own name, and {each} asks for something else"
    of_type = found.settings["outbox.type"]
    if of_type in headers:
        headers.remove(of_type)
    else:
        found.no_equal["table.field.event.type"] = f"events have the header {of_type}, too"
    found.settings["outbox.headers"] = tuple(headers)
    if options.get("table.expand.json.payload", "false").lower() == "true":
        found.no_equal["table.expand.json.payload"] = "the payload is the text that PostgreSQL has of it"


def _logical_router(options: Mapping[str, str], connector: Connector, found: Transformed) -> None:
    if options.get("key.enforce.uniqueness", "true").lower() != "false":
        found.no_equal["type"] = "it adds a field to keys (key.enforce.uniqueness)"
    elif connector.has_schemas:
        found.no_equal["type"] = "it names the schemas of events after their topics, and cdcd after their tables"
    else:
        _route(options, ("topic.regex", "topic.replacement"), connector, found)


def _regex_router(options: Mapping[str, str], connector: Connector, found: Transformed) -> None:
    _route(options, ("regex", "replacement"), connector, found)


def _route(options: Mapping[str, str], names: tuple[str, str], connector: Connector, found: Transformed) -> None:
    expression, replacement = (options.get(name, "") for name in names)
    if not connector.topics:
        found.no_equal["type"] = "table.include.list does not name each table: write topic in entries of [[table]]"
        return
    topics = routed(expression, replacement, connector.topics)
    if topics is None:
        found.no_equal["type"] = "cdcd does not read its regular expression: write topic in entries of [[table]]"
    elif len(set(topics.values())) < len(topics):
        found.no_equal["type"] = (
            "several tables come to one topic: write topic in entries of [[table]], and debezium.key_field_name"
        )
    elif not all(connector.prefix in topic for topic in topics.values()):
        found.no_equal["type"] = "it takes the prefix away, and topics of cdcd have sink.prefix in their names"
    else:
        found.topics = {
            table: topic.replace(connector.prefix, "{prefix}", 1)
            for table, topic in topics.items()
            if topic != connector.topics[table]
        }
        found.converted = {"type": "topic in [[table]]", **dict.fromkeys(names, "topic in [[table]]")}


def routed(expression: str, replacement: str, topics: Mapping[str, str]) -> dict[str, str] | None:
    """The topic of each table behind a router; None if this cannot be said for certain."""
    if len(expression) > _EXPRESSION_SIZE_MAX or not _EXPRESSION.fullmatch(expression):
        return None
    if not _REPLACEMENT.fullmatch(replacement):
        return None
    if len(re.findall("[*+]", expression)) > _REPETITIONS_MAX or len(re.findall("[?|]", expression)) > _CHOICES_MAX:
        return None
    try:
        pattern = re.compile(expression, re.ASCII)
        found = {
            table: pattern.sub(re.sub(r"\$(\d)", r"\\g<\1>", replacement), topic, count=1)
            if pattern.fullmatch(topic)
            else topic
            for table, topic in topics.items()
        }
    except (re.error, IndexError):
        return None
    return found if all(map(_TOPIC.fullmatch, found.values())) else None


_KINDS: Final[Mapping[str, Callable[[Mapping[str, str], Connector, Transformed], None]]] = {
    ROWS: _rows, OUTBOX: _outbox, LOGICAL_ROUTER: _logical_router, REGEX_ROUTER: _regex_router
}  # fmt: skip
