"""The transforms of a connector that settings of cdcd stand for. Pure.

Before: `conversion` has the options `transforms.NAME.*`. After: it has the settings, and what has no equal.
Source: Debezium 3.7, "New Record State Extraction", "Outbox Event Router", "Topic Routing"; Kafka Connect, RegexRouter;
Java, `java.util.regex.Pattern` and `Matcher.replaceFirst`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar, get_args

from cdcd.debezium.added_fields import names_of
from cdcd.debezium.debezium_names import adjusted_name, table_identifier, table_name
from cdcd.debezium.modes import AdjustmentMode
from cdcd.migration.name_patterns import SAMPLE, samples
from cdcd.source.table_selection import TablePattern

Table: TypeAlias = "tuple[str, str]"
"""Schema and name."""

ROWS: Final = "io.debezium.transforms.ExtractNewRecordState"
OUTBOX: Final = "io.debezium.transforms.outbox.EventRouter"
LOGICAL_ROUTER: Final = "io.debezium.transforms.ByLogicalTableRouter"
LOGICAL_TOPIC_ROUTER: Final = "io.debezium.transforms.ToLogicalTopicRouter"
"""Its newer name."""
REGEX_ROUTER: Final = "org.apache.kafka.connect.transforms.RegexRouter"

_EXPRESSION: Final = re.compile(r"(?:[A-Za-z0-9_.$^|-]|\\[.wd_-]|[*+?]|\((?!\?)|\)(?![*+?{])|\[\^?[A-Za-z0-9_.-]+\])*")
"""What Java and Python read alike, without repetitions of groups, which may take endless time."""
_REPLACEMENT: Final = re.compile(r"(?:[A-Za-z0-9._-]|\$[1-9](?!\d))*")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_EXPRESSION_SIZE_MAX: Final = 500
_REPETITIONS_MAX: Final = 4
_CHOICES_MAX: Final = 12
"""Each repetition, and each choice, multiplies the time that a topic without a match takes."""

KEY_FIELDS: Final = {
    LOGICAL_ROUTER: "__dbz__physicalTableIdentifier",
    LOGICAL_TOPIC_ROUTER: "__dbz__sourceIdentifier",
}
"""The defaults of key.field.name."""
_ENTRIES: Final = "write topic in entries of [[table]]"
METADATA: Final = "transaction metadata"

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

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Route:
    """What a router does with the topics of events."""

    expression: str
    replacement: str
    names_table: bool
    """It adds a field with the topic before it to the keys."""

    def topic(self, topic: str) -> str | None:
        """Where events of a topic go; None: cdcd does not know."""
        found = routed(self.expression, self.replacement, {"": topic})
        return None if found is None else found[""]

    def is_for(self, topic: str) -> bool:
        """Whether it takes the events of a topic, even if it leaves them there."""
        return re.fullmatch(self.expression, topic, re.ASCII) is not None


@dataclass
class Transformed:
    """What one transform comes to. Options are named without `transforms.NAME.`."""

    settings: dict[str, Any] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    """The topics of the tables that a pattern matches, with {prefix}, {schema} and {table}."""
    route: Route | None = None
    """What a router does."""
    converted: dict[str, str] = field(default_factory=dict)
    """By option: the setting."""
    needless: dict[str, str] = field(default_factory=dict)
    """By option: why cdcd does without it."""
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
    """The topics of the tables that a pattern matches, with {prefix}, {schema} and {table}."""
    has_schemas: bool
    """Keys and values have schemas, which have names."""
    has_tombstones: bool
    is_flat: bool = False
    """A transform before this one makes flat rows."""
    schema_names: AdjustmentMode = "none"
    """`schema.name.adjustment.mode`."""
    others: Mapping[str, str] = field(default_factory=dict)
    """The topics of events that are of no table, by what these are."""
    routes: tuple[Route, ...] = ()
    """What the routers before this one do."""


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
        found.needless.clear()
        found.route = None
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
    if len(connector.topics) != 1 or not all(TablePattern(each).names_one_table for each in connector.topics):
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
    adds = options.get("key.enforce.uniqueness", "true").lower() != "false"
    if connector.routes:
        found.no_equal["type"] = f"another router comes before it: {_ENTRIES}"
        return
    router = _Router(connector, Route(options.get("topic.regex", ""), options.get("topic.replacement", ""), adds))
    why = router.reason or _other_keys(router) or _other_schemas(router, options.get("schema.name.adjustment.mode", ""))
    if why:
        found.no_equal["type"] = why
        return
    router.fill(found, ("topic.regex", "topic.replacement"))
    unique = "debezium.key_enforce_uniqueness"
    found.settings[unique] = adds
    found.converted["key.enforce.uniqueness"] = unique
    found.needless = {
        "logical.table.cache.size": "cdcd keeps little per table",
        "logical.destination.cache.size": "cdcd keeps little per table",
        "schema.name.adjustment.mode": "the names of schemas are the same",
    }
    in_key = ("key.field.name", "key.field.regex", "key.field.replacement")
    if not (adds and router.sharing):
        found.needless |= dict.fromkeys(in_key, "keys have no such field")
        return
    found.settings["debezium.key_field_name"] = options.get("key.field.name") or KEY_FIELDS[options["type"]]
    found.converted["key.field.name"] = "debezium.key_field_name"
    before: Mapping[Table, str] | None = {table: router.before[table] for table in router.sharing}
    expression = options.get("key.field.regex", "")
    if expression:
        before = routed(expression, options.get("key.field.replacement", ""), before or {})
    if before == {table: table_identifier(connector.prefix, *table) for table in router.sharing}:
        found.needless |= dict.fromkeys(in_key[1:], "the field is the whole name of the topic")
        return
    why = "the field has the name {prefix}.{schema}.{table} in cdcd, and another one in the connector"
    for option in in_key[1:] if expression else ("key.enforce.uniqueness",):
        found.no_equal[option] = why


def _regex_router(options: Mapping[str, str], connector: Connector, found: Transformed) -> None:
    if any(each.names_table for each in connector.routes):
        found.no_equal["type"] = f"another router comes before it: {_ENTRIES}"
        return
    router = _Router(connector, Route(options.get("regex", ""), options.get("replacement", ""), names_table=False))
    why = router.reason or _other_schemas(router, None)
    if why:
        found.no_equal["type"] = why
        return
    router.fill(found, ("regex", "replacement"))
    if router.sharing:
        found.settings["debezium.key_enforce_uniqueness"] = False


class _Router:
    """What a router does with the tables of a connector."""

    def __init__(self, connector: Connector, route: Route) -> None:
        self.connector = connector
        self.route = route
        self.templates: dict[str, str] = {}
        """The topics of the tables that a pattern matches, behind the router."""
        self.before: dict[Table, str] = {}
        """The topics of tables before the router. Of a pattern that matches many tables, these are some."""
        self.after: dict[Table, str] = {}
        """The topics of the same tables behind it."""
        self.reason = self._route()
        """Why settings cannot say it; empty: they can."""
        several = {topic for topic, tables in Counter(self.after.values()).items() if tables > 1}
        self.sharing = {table for table, topic in self.after.items() if topic in several}
        """The tables that share their topics."""

    @property
    def taken(self) -> set[Table]:
        """The tables whose events it takes."""
        return {table for table, topic in self.before.items() if self.route.is_for(topic)}

    def fill(self, found: Transformed, names: tuple[str, str]) -> None:
        """Say what becomes of the topics. `names`: the options of the expression and the replacement."""
        for pattern, template in self.templates.items():
            first = samples(pattern)[0]
            before = self._topic(self.connector.topics[pattern], first)
            if self.after[first] != before or first in self.sharing:
                found.topics[pattern] = template
        found.route = self.route
        found.converted = {"type": "topic in [[table]]", **dict.fromkeys(names, "topic in [[table]]")}

    def _route(self) -> str:
        prefix, route = self.connector.prefix, self.route
        words = re.findall(r"[A-Za-z0-9_]+", route.expression) + re.findall(r"[A-Za-z]+|[0-9]+", route.expression)
        for pattern, template in self.connector.topics.items():
            tables = samples(pattern, [each for each in words if each not in f"{prefix}.{pattern}"])
            before = {table: self._topic(template, table) for table in tables}
            after = routed(route.expression, route.replacement, before)
            if after is None:
                return f"cdcd does not read its regular expression: {_ENTRIES}"
            if not all(prefix in topic for topic in after.values()):
                return "it takes the prefix away, and topics of cdcd have sink.prefix in their names"
            named = after[tables[0]].replace(prefix, "{prefix}", 1)
            for name, sample, placeholder in zip(tables[0], SAMPLE, ("{schema}", "{table}"), strict=True):
                named = named.replace(name, placeholder) if sample in name else named
            fitting = [
                each
                for each in (named, template)
                if all(self._topic(each, table) == topic for table, topic in after.items())
            ]
            if not fitting:
                return f"table.include.list does not name each table, and those of {pattern} differ: {_ENTRIES}"
            self.templates[pattern] = fitting[0]
            self.before |= before
            self.after |= after
        return self._other_events()

    def _other_events(self) -> str:
        """Why it cannot be, because of events that are of no table."""
        topics = set(self.after.values())
        for what, topic in self.connector.others.items():
            to = self.route.topic(topic)
            if to is None or to in topics or (what == METADATA and self.route.is_for(topic)):
                return f"it is for the topic of {what}, too"
        return ""

    def _topic(self, template: str, table: Table) -> str:
        filled = template.replace("{schema}", table[0]).replace("{table}", table[1])
        return filled.replace("{prefix}", self.connector.prefix)


def _other_keys(router: _Router) -> str:
    """Why keys would be others."""
    if not router.route.names_table:
        return ""
    if alone := router.taken - router.sharing:
        return f"it adds a field to the keys of {_named(alone)} (key.enforce.uniqueness), which shares no topic"
    if left := router.sharing - router.taken:
        return f"it adds no field to the keys of {_named(left)}, to whose topic the events of others come"
    return ""


def _other_schemas(router: _Router, mode: str | None) -> str:
    """Why the names of schemas would be others. `mode`: how the router adjusts names; None: it leaves schemas alone."""
    connector = router.connector
    if not connector.has_schemas:
        return ""
    if mode is not None and connector.is_flat and router.taken:
        return "it comes behind ExtractNewRecordState, and gives schemas of rows no names"
    modes: dict[str, AdjustmentMode] = {each: each for each in get_args(AdjustmentMode)}
    taken = router.taken if mode is not None else ()
    for table, topic in router.after.items():
        own = adjusted_name(table_name(connector.prefix, *table), connector.schema_names)
        theirs = adjusted_name(topic, modes.get((mode or "none").lower(), "none")) if table in taken else own
        ours = adjusted_name(topic, connector.schema_names) if table in router.sharing else own
        if ours != theirs:
            return f"it names the schemas of {_named([table])} after {theirs}, and cdcd after {ours}"
    return ""


def _named(tables: Collection[Table]) -> str:
    return ".".join(min(tables))


def routed_by(routes: Sequence[Route], topic: str) -> str:
    """The topic behind all routers. One that a router gives no certain topic stays as it is."""
    for route in routes:
        topic = route.topic(topic) or topic
    return topic


def routed(expression: str, replacement: str, topics: Mapping[_Key, str]) -> dict[_Key, str] | None:
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
    ROWS: _rows, OUTBOX: _outbox, LOGICAL_ROUTER: _logical_router, LOGICAL_TOPIC_ROUTER: _logical_router,
    REGEX_ROUTER: _regex_router,
}  # fmt: skip
