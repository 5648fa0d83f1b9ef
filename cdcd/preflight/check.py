"""`cdcd check`: whether `cdcd run` would work, and what to do where it would not. Changes nothing.

Before: `cli.main` has loaded the settings. After: a person reads the lines, or a script the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from cdcd.config.settings import Settings
from cdcd.config.transport_security import insecure_connections
from cdcd.daemon.kafka_takeover import last_record, reading
from cdcd.errors import CdcdError
from cdcd.preflight import kafka, postgres, progress
from cdcd.preflight.findings import Finding, Level, of_error, warning
from cdcd.sink.topics import TopicNames
from cdcd.source.session import Session, dsn_parameters
from cdcd.source.slot_conflicts import SlotConflicts

_COLOURS: Final = {Level.OK: "32", Level.WARNING: "33", Level.ERROR: "31"}


def check(settings: Settings, out: TextIO, *, as_json: bool) -> bool:
    """Write one line a finding to `out` as each is made; returns whether there was no error among them."""
    good = True
    for finding in findings(settings):
        good = good and finding.level is not Level.ERROR
        out.write(f"{_as_json(finding) if as_json else as_text(finding, colour=out.isatty())}\n")
        out.flush()
    return good


def findings(settings: Settings) -> Iterator[Finding]:
    """Look at everything that the daemon will need; what cannot be reached is a finding, too."""
    source, sink, avro = settings.source, settings.sink, settings.avro
    names = TopicNames(sink.prefix, sink.topic)
    tables: list[str] = []
    published: list[tuple[str, str]] = []
    slot_there: bool | None = None
    try:
        server = postgres.gather(source.dsn, source.slot, source.publication, source.tables)
        slot_there = server.slot is not None
        published = [(table.schema, table.name) for table in server.tables]
        tables = [names.topic(*table) for table in published]
        yield from postgres.judge(
            server,
            source.slot,
            source.publication,
            create=source.create,
            origin=source.origin,
            interval_s=source.status_interval_s,
            two_phase=source.two_phase,
            failover=source.failover,
            copies=settings.snapshot.mode != "never",
        )
    except CdcdError as failure:
        yield of_error("server", failure)
    try:
        wanted = [*tables, names.messages, *names.compacted]
        brokers = kafka.gather(sink.bootstrap_servers, sink.librdkafka, wanted, names.compacted)
        yield from kafka.judge(
            brokers, names, tables, partitions=sink.partitions, replication_factor=sink.replication_factor
        )
        if sink.replication_factor <= brokers.brokers:  # else that was told
            yield from _refused_early(settings, published)
        if published:
            yield from _rivals(settings, brokers.cluster_id, names, published)
        yield from progress.judge(last_record(settings), slot_there=slot_there)
    except CdcdError as failure:
        yield of_error("brokers", failure)
    for what, hint in insecure_connections(
        dsn_parameters(source.dsn), sink.bootstrap_servers, sink.librdkafka, avro.registry_url
    ):
        yield warning("tls", what, hint)
    if avro.registry_url is not None:
        yield kafka.judge_registry(avro.registry_url, avro.registry_config)


def _rivals(
    settings: Settings, cluster_id: str, names: TopicNames, tables: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    """What `run` would refuse: another slot that publishes some of `tables` to the same topics."""
    source = settings.source
    try:
        with Session(source.dsn, source.application_name) as session:
            SlotConflicts(session, cluster_id, names.topic("schema", "table")).check(source.slot, tables)
    except CdcdError as failure:
        yield of_error("rivals", failure)


def _refused_early(settings: Settings, tables: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """What librdkafka or the brokers would refuse `run`: properties, or how topics are to be made."""
    try:
        with reading(settings) as kafka:
            kafka.refuse_early(tables)
    except CdcdError as failure:
        yield of_error("sink", failure)


def as_text(finding: Finding, *, colour: bool) -> str:
    """`error    wal_level is replica, and must be logical. Run: ...`."""
    level = f"{finding.level.value:8}"
    if colour:
        level = f"\x1b[{_COLOURS[finding.level]}m{level}\x1b[0m"
    return f"{level} {finding.message}. {finding.hint}" if finding.hint else f"{level} {finding.message}"


def _as_json(finding: Finding) -> str:
    content = {"level": finding.level.value, "about": finding.about, "message": finding.message, "hint": finding.hint}
    return json.dumps(content, ensure_ascii=False)
