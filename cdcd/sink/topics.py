"""The names of the topics, and the settings of the topics that cdcd makes for itself.

Before: `batches` names tables as PostgreSQL does.
After: `table_topics` asks for each table's topic once; `kafka.admin` makes the topics that are missing.
Source: `org.apache.kafka.common.internals.Topic` (legal names), Kafka documentation "Topic Configs".

A topic's name may hold only `[a-zA-Z0-9._-]`, but a PostgreSQL identifier may hold any character. Letters, digits and
`_` stand for themselves; every other byte of the UTF-8 name becomes `-` and two hex digits. So `.` can only be the
separator, and no two tables get the same name: `a.b`.`c` is `a-2eb.c`, `a`.`b.c` is `a.b-2ec`. No encoded name holds
`--`, so a topic whose name has to differ from the template's ends in `--` and more.

The settings may send several tables to one topic. Then `TopicNames.topic` has the table, too, behind a `#`: everything
that is known of a table, of its rows and of its snapshot is by this name, and `progress.records.kafka_topic` gives the
topic on the broker.

Anyone who may create a table chooses its name. So no name is an error here. A prefix may have a `.`, so another
daemon's prefix may be this one's and a schema. So no table gets the name of one of cdcd's own topics, under whatever
prefix: the topic of the table `b.progress` is `a.b.progress--table`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from cdcd.errors import SettingsError
from cdcd.progress.records import PLACE_MARK, kafka_topic
from cdcd.source.table_selection import TablePattern
from cdcd.transaction.record_consumer import TRANSACTIONS

NAME_SIZE_MAX: Final = 249
"""Kafka's limit on a topic name, in characters."""

PARKED_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's own default. Parked events come in smaller parts, so they fit, whatever the brokers' setting is."""

WEEK_MS: Final = 7 * 24 * 3600 * 1000

SHARED_TOPIC_HINT: Final = (
    "Put {schema} into the setting sink.topic: {prefix}.{schema}.{table}; or correct a topic of [[table]]"
)

PARTITIONS_HINT: Final = "Say the same partitions in each [[table]] that matches a table of this topic, or in none"

MIXED_TOPIC_HINT: Final = "Name another topic in [[table]]: the table gets a new snapshot there"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_DIGEST_SIZE: Final = 32
_OWN: Final = ("messages", "progress", "schemas", "snapshots", "parked")
"""The last parts of the names of cdcd's own topics."""


@dataclass(frozen=True)
class TopicSpec:
    """A topic as cdcd would make it. cdcd takes an existing topic as it is, with any number of partitions."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    """Names in `config` that may be left out if the cluster does not allow them."""

    def without_optional(self) -> TopicSpec:
        """Return the topic with the cluster's own values instead of these."""
        kept = {name: value for name, value in self.config.items() if name not in self.optional}
        return replace(self, config=kept, optional=frozenset())


def encode_identifier(name: str) -> str:
    """Return a PostgreSQL identifier in the characters that Kafka allows, without `.`; no two give the same."""
    return "".join(chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in name.encode())


def shared_place(topic: str, schema: str, table: str) -> str:
    """Return the name under which a table is known whose topic others share."""
    return f"{topic}{PLACE_MARK}{encode_identifier(schema)}.{encode_identifier(table)}"


@dataclass(frozen=True)
class TopicRule:
    """What the settings say of the topics of the tables that a pattern matches."""

    pattern: TablePattern
    template: str = ""
    """Empty: it says nothing of the name."""
    partitions: int = 0
    """Of a topic that cdcd makes; 0: it says nothing of them."""


class TopicNames:
    """The names of all topics of one daemon, from its prefix, its template, and the rules for some tables."""

    def __init__(
        self,
        prefix: str,
        template: str = "{prefix}.{schema}.{table}",
        rules: Sequence[TopicRule] = (),
        outbox: tuple[str, str] | None = None,
        *,
        has_transactions: bool = False,
    ) -> None:
        """`rules`: the first one that matches and says a name, or partitions, decides these. `outbox`: what its topics
        have before and behind the type of the aggregate, without the prefix; None: there is no outbox.
        `has_transactions`: there is a topic of Debezium's transaction metadata.

        Raises SettingsError if `prefix` or the fixed parts of a template hold what Kafka forbids.
        """
        if not prefix or not _LEGAL.fullmatch(prefix) or len(prefix) > NAME_SIZE_MAX // 2:
            raise SettingsError(
                f"sink.prefix is {prefix!r}, which Kafka does not allow in the name of a topic",
                f"Use letters, digits, '.', '_' and '-' only, 1 to {NAME_SIZE_MAX // 2} of them.",
                code="setting-invalid",
            )
        fixed = re.sub(r"\{(?:prefix|schema|table)\}", "", template)
        if "{table}" not in template or not _LEGAL.fullmatch(fixed):
            raise SettingsError(
                f"sink.topic is {template!r}, which does not give every table a topic",
                "Write it with {table}, best with {schema} and {prefix} too, and else with letters, digits, '.', '_' "
                "and '-' only: {prefix}.{schema}.{table}.",
                code="setting-invalid",
            )
        for rule in rules:
            _check(rule)
        self.prefix = prefix
        """The first part of all names."""
        self._template = template
        self._rules = tuple(rules)
        self._shared = frozenset(rule.template for rule in rules if rule.template and _is_shared(rule, rules))
        """Templates of rules that send several tables to one topic."""
        templates = [template, *(rule.template for rule in rules if rule.template)]
        patterns = (_tables_pattern(prefix, each) for each in templates)
        self._tables = [pattern for pattern in patterns if pattern is not None]
        self._outbox: re.Pattern[str] | None = None
        if outbox is not None:
            before, behind = map(re.escape, outbox)
            self._outbox = re.compile(rf"{re.escape(prefix)}\.{before}[a-zA-Z0-9_-]+{behind}(?:--table)?")
            self._tables.append(self._outbox)
        self.messages = f"{prefix}.messages"
        """Logical decoding messages."""
        self.transactions = f"{prefix}.{TRANSACTIONS[1]}" if has_transactions else ""
        """Debezium's transaction metadata; empty: there is none."""
        self.tableless = (self.messages, self.transactions) if has_transactions else (self.messages,)
        """The topics of events that are of no table. Another slot may have written to them before."""
        self.progress = f"{prefix}.progress"
        """Slot and table records."""
        self.schemas = f"{prefix}.schemas"
        """Avro schemas by fingerprint."""
        self.snapshots = f"{prefix}.snapshots"
        """How far the snapshot of each table is."""
        self.parked = f"{prefix}.parked"
        """Events of tables that are parked or deferred."""
        self.compacted = (self.progress, self.schemas, self.snapshots)
        """The compacted topics among these: they keep the last record of every key."""
        self.own = (*self.compacted, self.parked)
        """The topics without which the daemon cannot go on where it stopped."""

    def topic(self, schema: str, table: str) -> str:
        """Return the topic of a table. The schema "" (no table has it) is that of messages and of the outbox's events.

        These topics are `{prefix}.{table}`. A name that would be too long keeps its start, and ends in `--` and a
        digest of the whole name. A table that would have the name of one of cdcd's own topics, under any prefix, that
        of the topic of transactions, or one of Kafka's (`__...`), gets that name with `--table`. If the settings send
        several tables to the topic, `#` and the table follow, which no name of a topic can have.
        """
        if not schema and table == "messages":
            return self.messages
        if not schema:
            name = f"{self.prefix}.{table}"
        else:
            name = self._filled(self._template_of(schema, table) or self._template, schema, table)
        if len(name) > NAME_SIZE_MAX:
            digest = sha256(name.encode()).hexdigest()[:_DIGEST_SIZE]
            name = f"{name[: NAME_SIZE_MAX - _DIGEST_SIZE - 2]}--{digest}"
        if _is_own(name) or (schema and name == self.transactions) or name.startswith("__"):
            name += "--table"
        return shared_place(name, schema, table) if self.shares_topic(schema, table) else name

    def on_broker(self, schema: str, table: str) -> str:
        """Return the topic of a table as the brokers name it."""
        return kafka_topic(self.topic(schema, table))

    def shares_topic(self, schema: str, table: str) -> bool:
        """Whether the settings send other tables to the topic of this table, too; they need not exist."""
        return bool(schema) and self._template_of(schema, table) in self._shared

    def shared_topic(self, schema: str, table: str) -> str:
        """Return the topic that a table shares with others, as the brokers name it; empty if it shares none."""
        return self.on_broker(schema, table) if self.shares_topic(schema, table) else ""

    def chosen_topics(self, tables: Iterable[tuple[str, str]]) -> set[str]:
        """Return the topics that several of these tables may share, that a rule names for one table alone, or that
        the settings let this slot alone have: that of transactions. A prefix may be another one and a schema, so the
        topic of a table may be that of another slot's transactions.
        """
        alone = {rule.template for rule in self._rules if rule.template and rule.pattern.names_one_table}
        places = ((self._template_of(*table), self.on_broker(*table)) for table in tables)
        return {
            topic
            for template, topic in places
            if template in self._shared or template in alone or topic.endswith(f".{TRANSACTIONS[1]}")
        } | ({self.transactions} if self.transactions else set())

    @property
    def has_shared_topics(self) -> bool:
        """Whether the settings send several tables to one topic."""
        return bool(self._shared)

    def _template_of(self, schema: str, table: str) -> str:
        """The template that a rule has for a table; empty if no rule has one."""
        matching = (rule for rule in self._rules if rule.template and rule.pattern.matches(schema, table))
        return next((rule.template for rule in matching), "")

    @property
    def example(self) -> str:
        """The topic of a table `schema.table` for which no rule says a name: it shows how topics are named."""
        return self._filled(self._template, "schema", "table")

    def _filled(self, template: str, schema: str, table: str) -> str:
        return (
            template.replace("{prefix}", self.prefix)
            .replace("{schema}", encode_identifier(schema))
            .replace("{table}", encode_identifier(table))
        )

    def partitions(self, schema: str, table: str, default: int) -> int:
        """Return how many partitions the topic of a table gets if cdcd makes it; `default`: if no rule says it."""
        if not schema:
            return default
        matching = (rule for rule in self._rules if rule.partitions and rule.pattern.matches(schema, table))
        return next((rule.partitions for rule in matching), default)

    def may_be_table_topic(self, topic: str) -> bool:
        """Whether a table of this daemon, published or not, or its outbox may have this topic.

        False for each topic of a template that leaves out the prefix: any program's topic may look like a table's then.
        """
        return any(pattern.fullmatch(topic) for pattern in self._tables) and not _is_own(topic)

    def may_be_outbox_topic(self, topic: str) -> bool:
        """Whether events of the outbox may have this topic: their payloads are what an application chose."""
        return self._outbox is not None and self._outbox.fullmatch(topic) is not None


def _check(rule: TopicRule) -> None:
    """Raise SettingsError if the template of a rule cannot be used."""
    template = rule.template
    if not template:
        return
    fixed = re.sub(r"\{(?:prefix|schema|table)\}", "", template)
    if "{prefix}" not in template or not _LEGAL.fullmatch(fixed):
        what = "has characters that Kafka does not allow" if "{prefix}" in template else "lacks {prefix}"
        raise SettingsError(
            f"in [[table]] with match = {rule.pattern.text!r}, the topic {template!r} {what}",
            "Write it with {prefix}, with {schema} and {table} for topics of single tables, and else with letters, "
            "digits, '.', '_' and '-' only",
            code="setting-invalid",
        )


def _is_shared(rule: TopicRule, rules: Sequence[TopicRule]) -> bool:
    """Whether the rules with the template of `rule` send several tables to one topic."""
    patterns = [each.pattern for each in rules if each.template == rule.template]
    return any(
        placeholder not in rule.template
        and (any(each.wild_parts[part] for each in patterns) or len({each.parts[part] for each in patterns}) > 1)
        for part, placeholder in enumerate(("{schema}", "{table}"))
    )


def _is_own(name: str) -> bool:
    """Whether one of cdcd's own topics has this name, under some prefix."""
    prefix, _, last = name.rpartition(".")
    return bool(prefix) and last in _OWN


def _tables_pattern(prefix: str, template: str) -> re.Pattern[str] | None:
    """The names of tables' topics; None if they do not have the prefix."""
    if "{prefix}" not in template:
        return None
    parts = re.split(r"(\{(?:prefix|schema|table)\})", template)
    known = {"{prefix}": re.escape(prefix), "{schema}": "[a-zA-Z0-9_-]+", "{table}": "[a-zA-Z0-9_-]+"}
    whole = "".join(known.get(part, re.escape(part)) for part in parts)
    start = re.escape(template.partition("{prefix}")[0] + prefix)
    return re.compile(f"{whole}|{start}.*--[0-9a-f]{{{_DIGEST_SIZE}}}")


def divided(topics: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return the topics on the broker, of these by TopicNames' names: those of several tables, and those of one."""
    several, one = set[str](), set[str]()
    for topic in topics:
        (one if kafka_topic(topic) == topic else several).add(kafka_topic(topic))
    return several, one


def mixed_topic(topic: str) -> str:
    """Say that a table cannot have a topic, by TopicNames' name, because of the events that are there."""
    if kafka_topic(topic) == topic:
        return f"the topic {topic} has events of several tables, and the settings give it to one table"
    return f"the topic {kafka_topic(topic)} has events of one table, and the settings let others share it"


def topic_owners(
    names: TopicNames,
    tables: Iterable[tuple[str, str]],
    earlier: Mapping[str, tuple[str, str]],
    parked: Container[tuple[str, str]] = (),
) -> dict[str, tuple[str, str]]:
    """Return the tables by their topics. If several have one topic, the owner is the earlier one, or else the first.

    A parked table is no owner, unless it is the earlier one.
    """
    places = [(table, names.topic(*table)) for table in tables]
    # No table has a topic for itself to which the settings send several others.
    owners = {kafka_topic(topic): table for table, topic in reversed(places) if kafka_topic(topic) != topic}
    for table, topic in places:
        if earlier.get(topic) == table or (topic not in owners and table not in parked):
            owners[topic] = table
    return owners


def shared_topics(
    names: TopicNames, tables: Collection[tuple[str, str]]
) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Return the tables whose topic another table owns, each behind that owner."""
    owners = topic_owners(names, tables, {})
    pairs = [(owners[names.topic(*table)], table) for table in tables]
    return [(owner, table) for owner, table in pairs if owner != table]


def unequal_partitions(names: TopicNames, tables: Iterable[tuple[str, str]], default: int) -> Iterator[str]:
    """Say for which shared topics the settings have several numbers of partitions; `default`: where no rule says it."""
    wanted: dict[str, dict[int, tuple[str, str]]] = {}
    for table in tables:
        if topic := names.shared_topic(*table):
            wanted.setdefault(topic, {}).setdefault(names.partitions(*table, default), table)
    for topic, numbers in wanted.items():
        if len(numbers) > 1:
            said = " and ".join(f"{number} for {'.'.join(table)}" for number, table in sorted(numbers.items())[:2])
            yield f"the settings give the topic {topic} several numbers of partitions: {said}"


def progress_spec(names: TopicNames, replication_factor: int) -> TopicSpec:
    """Return the progress topic: one partition, in the order of the cuts; readers find a week uncompacted."""
    config = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(WEEK_MS)}
    return TopicSpec(names.progress, 1, replication_factor, config, frozenset({"min.compaction.lag.ms"}))


def schemas_spec(names: TopicNames, replication_factor: int) -> TopicSpec:
    """Return the schemas topic: compacted, so that the schema of every record stays readable."""
    return TopicSpec(names.schemas, 1, replication_factor, {"cleanup.policy": "compact"})


def snapshots_spec(names: TopicNames, replication_factor: int) -> TopicSpec:
    """Return the snapshots topic: one partition, compacted; a record a table, and every start reads all of it."""
    return TopicSpec(names.snapshots, 1, replication_factor, {"cleanup.policy": "compact"})


def own_specs(names: TopicNames, replication_factor: int, table_config: Mapping[str, str]) -> list[TopicSpec]:
    """Return cdcd's own topics that every daemon needs: progress, snapshots, schemas.

    `table_config` is the setting for the tables' topics.
    """
    specs = [spec(names, replication_factor) for spec in (progress_spec, snapshots_spec, schemas_spec)]
    return [_as_safe(spec, table_config) for spec in specs]


def parked_spec(names: TopicNames, replication_factor: int, table_config: Mapping[str, str]) -> TopicSpec:
    """Return the parked topic: one partition, without retention, because no other topic has these events.

    `table_config` is the setting for the tables' topics.
    """
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(PARKED_MESSAGE_BYTES)}
    spec = TopicSpec(names.parked, 1, replication_factor, config, frozenset({"max.message.bytes"}))
    return _as_safe(spec, table_config)


def _as_safe(spec: TopicSpec, table_config: Mapping[str, str]) -> TopicSpec:
    """Return the topic with the tables' `min.insync.replicas`: cdcd's own records are as safe then."""
    wanted = {name: value for name, value in table_config.items() if name == "min.insync.replicas"}
    return replace(spec, config={**spec.config, **wanted})
