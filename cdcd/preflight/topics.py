"""Judges the settings of the topics: those that exist, and those that the daemon would make. Pure.

Before: `brokers` has the brokers' answers.
After: `kafka` passes the findings on. `sink.own_topics` has the rules for cdcd's own topics: a start has the same.
Source: Apache Kafka, "Topic Configs"; each names the broker's setting that is its default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.sink.kafka.cluster_facts import ClusterFacts
from cdcd.sink.own_topics import altering_command, faults
from cdcd.sink.topics import TopicNames, TopicSpec
from cdcd.terminal.text_format import plural, size

HOUR_MS: Final = 3_600_000
CLOCKS_DIFFER_MS: Final = 10_000
"""Clocks differ, and records wait in the producer: a topic that allows less refuses rows sooner or later."""

RAISED_RECORD_BYTES: Final = 10_485_760
"""Ten times Kafka's default; the manual shows the same."""
RECORD_BYTES_MIN: Final = 1_000_000
"""Below this limit, which is about Kafka's default, there is a warning."""

_CLOCKS: Final = (
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",  # of Kafka before 4, for both
)
_IN_SYNC: Final = "min.insync.replicas"
_DEFAULTS: Final = {
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    **{name: f"log.{name}" for name in _CLOCKS},
    _IN_SYNC: _IN_SYNC,
}
"""The settings of a topic that are judged, each with the broker's setting that is its default."""

FINDINGS_MAX: Final = 20
"""At most so many topics get findings of their own."""


def judge(
    facts: ClusterFacts, names: TopicNames, specs: Sequence[TopicSpec], keyless: Collection[str]
) -> Iterator[Finding]:
    """The findings about the topics; the arguments are those of `brokers.judge`."""
    partitions = {name: topic.partitions for name, topic in facts.topics.items()}
    for fault in faults(names, partitions, facts.topic_configs):
        yield (error if fault.is_fatal else warning)(
            "topics", fault.message, fault.hint, code="own-topic-misconfigured"
        )
    yield from _tables(facts, [spec for spec in specs if spec.name not in names.own])
    existing = [spec for spec in specs if spec.name in facts.topics]
    with_findings = 0
    for spec in existing:
        config, replicas = facts.topic_configs.get(spec.name, {}), facts.topics[spec.name].replicas
        found = list(_refusing(spec.name, config, replicas, is_keyless=spec.name in keyless))
        with_findings += bool(found)
        if with_findings <= FINDINGS_MAX:
            yield from found
    if with_findings > FINDINGS_MAX:
        message = f"The same holds for {with_findings - FINDINGS_MAX} more topics"
        yield warning("topics", message, "Correct these, and run cdcd check again", code="topic-settings-refused")
    yield from _to_make(facts, [spec for spec in specs if spec.name not in facts.topics], keyless)


def _tables(facts: ClusterFacts, tables: Sequence[TopicSpec]) -> Iterator[Finding]:
    if not tables:  # `publication` has a finding
        return
    missing = [spec for spec in tables if spec.name not in facts.topics]
    made = plural(missing[0].partitions, "partition") if missing else ""
    to_create = f", {plural(len(missing), 'topic')} will be made with {made}" if missing else ""
    there = plural(len(tables) - len(missing), "topic")
    yield ok("topics", f"{there} of {plural(len(tables), 'table')} there{to_create}")


def _refusing(topic: str, config: Mapping[str, str], replicas: int, *, is_keyless: bool) -> Iterator[Finding]:
    """The findings about settings of a topic that refuse records."""
    limit = _number(config, "max.message.bytes")
    if limit is not None and limit < RECORD_BYTES_MIN:
        message = f"{topic} takes records of at most {size(limit)} (max.message.bytes)"
        raised = altering_command(topic, f"max.message.bytes={RAISED_RECORD_BYTES}")
        yield warning("sizes", message, f"If rows may be larger, run: {raised}", code="row-too-large")
    for name, allowed_ms in _narrow_clocks(config):
        message = f"{topic} refuses records if the clocks differ by more than {allowed_ms / 1000:g} s ({name})"
        yield error("topics", message, f"Run: {altering_command(topic, f'{name}={HOUR_MS}')}", code="clocks-differ")
    if is_keyless and "compact" in config.get("cleanup.policy", ""):
        message = f"{topic} is compacted, so Kafka refuses the rows of its table, which has no key"
        hint = f"Run: {altering_command(topic, 'cleanup.policy=delete')}. Or give the table a primary key"
        yield error("topics", message, hint, code="record-refused")
    needed = _number(config, _IN_SYNC) or 1
    lowered = f"Run: {altering_command(topic, f'{_IN_SYNC}={max(replicas - 1, 1)}')}. Or give the topic more replicas"
    if needed > replicas and _asks_for_more_than_there_are(config):
        yield error("topics", f"{topic} takes no records: {_lack(needed, replicas)}", lowered, code="replicas-too-few")
    elif needed >= replicas > 1:
        yield warning(
            "topics",
            f"{topic} takes no records while a broker is away: {_lack(needed, replicas)}",
            lowered,
            code="replicas-too-few",
        )


def _to_make(facts: ClusterFacts, missing: Sequence[TopicSpec], keyless: Collection[str]) -> Iterator[Finding]:
    """The findings about topics that the daemon would make: they get the brokers' defaults."""
    configs = facts.broker_configs
    defaults = {name: default for name, setting in _DEFAULTS.items() if (default := configs.first(setting)) is not None}
    found: dict[Finding, None] = {}
    for spec in missing:
        config = {**defaults, **spec.config}
        replicas = spec.replication_factor
        if replicas < 0:
            replicas = configs.least("default.replication.factor") or 1
        for name, allowed_ms in _narrow_clocks(config):
            limit = f"if the clocks differ by more than {allowed_ms / 1000:g} s (log.{name})"
            hint = f"Set log.{name} to {HOUR_MS} on the brokers, or leave {name} out of sink.topic_config"
            found[
                error("topics", f"The topics that the daemon makes refuse records {limit}", hint, code="clocks-differ")
            ] = None
        if spec.name in keyless and "compact" in config.get("cleanup.policy", ""):
            message = "sink.topic_config makes topics compacted: Kafka refuses the rows of tables that have no key"
            hint = f"Take cleanup.policy out of it, or give the tables primary keys: {spec.name} is one"
            found[error("topics", message, hint, code="record-refused")] = None
        needed = _number(config, _IN_SYNC) or 1
        hint = f"Raise sink.replication_factor above {needed}, or lower {_IN_SYNC} in sink.topic_config"
        lack = f"{_lack(needed, replicas)}, by sink.replication_factor"
        if needed > replicas and _asks_for_more_than_there_are(config):
            found[
                error(
                    "topics",
                    f"The topics that the daemon makes take no records: {lack}",
                    hint,
                    code="replicas-too-few",
                )
            ] = None
        elif needed >= replicas > 1:
            message = f"The topics that the daemon makes take no records while a broker is away: {lack}"
            found[warning("topics", message, hint, code="replicas-too-few")] = None
    yield from found


def _narrow_clocks(config: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    if config.get("message.timestamp.type") != "LogAppendTime":
        for name in _CLOCKS:
            allowed_ms = _number(config, name)
            if allowed_ms is not None and allowed_ms < CLOCKS_DIFFER_MS:
                yield name, allowed_ms


def _asks_for_more_than_there_are(config: Mapping[str, str]) -> bool:
    """Whether the brokers are old: Kafka 2.8 waits for ever for replicas that a topic does not have."""
    return bool(config) and "message.timestamp.before.max.ms" not in config


def _lack(needed: int, replicas: int) -> str:
    return f"{needed} replicas must be in sync ({_IN_SYNC}), of {replicas}"


def _number(config: Mapping[str, str], name: str) -> int | None:
    value = config.get(name, "")
    return int(value) if value.isdigit() else None
