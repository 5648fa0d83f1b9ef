"""The entry point for Spark users: a Kafka cluster and a prefix as tables of events, cuts and rows.

Before: a SparkSession with the jars that `packages` names.
After: the modules that read, mirror, load and verify.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdcd.errors import GapError, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.records import TableRecord
from cdcd.sink.topics import TopicNames
from cdcd.spark.arguments import Position, TableList, Tables, lsn_or_time
from cdcd.spark.load import Snapshot
from cdcd.spark.mirror.mirror import Mirror
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.wiring import MirrorOptions, make_mirror
from cdcd.spark.packages import Format, check_jars, packages
from cdcd.spark.reading.cuts import Cut
from cdcd.spark.reading.kafka import KafkaReader
from cdcd.spark.reading.topics import Topics
from cdcd.spark.state.as_of import apply_events, fold
from cdcd.spark.verify import Comparison, Report, TableReport


class Cdc:
    """The topics of one prefix. Reads committed records only, whatever the session's defaults are."""

    packages = staticmethod(packages)

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        prefix: str,
        registry: str | Mapping[str, Any] | None = None,
        slot: str | None = None,
        kafka: Mapping[str, str] | None = None,
        topic: str = "{prefix}.{schema}.{table}",
    ) -> None:
        """`bootstrap`: host:port, separated by commas. `prefix`: the daemon's sink.prefix.

        `registry`: the URL of the schema registry that the daemon uses, or its client's properties; None if the schemas
        are in Kafka. `slot`: necessary if several slots feed the prefix. `kafka`: more properties of Kafka's Java
        client, such as {"security.protocol": "SASL_SSL"}. `topic`: the daemon's sink.topic.
        Raises SettingsError if the session's Kafka connector is known to fail.
        """
        config = spark.conf
        check_jars(f"{config.get('spark.jars', '')} {config.get('spark.jars.packages', '')}")
        self.spark = spark
        reader = KafkaReader(spark, bootstrap, kafka or {})
        self.topics = Topics.of(TopicNames(prefix, topic), reader, registry, slot)

    def cuts(self) -> DataFrame:
        """Every cut that the progress topic still holds.

        Columns: lsn, commit_lsn, commit_ts, transactions, rows, touched, progress_offset. `touched` maps the topics
        that the cut's transactions touched to the end offsets of their partitions.
        """
        return self.topics.cuts.all()

    def cut(self, position: Position | None = None) -> Cut:
        """One cut, with the end offsets of all topics.

        The newest cut (None), the first cut that reaches an LSN, or the last cut at or before a time.
        """
        return self.topics.cuts.at(position)

    def tables(self, patterns: Tables = "*", cut: Cut | None = None) -> dict[str, TableRecord]:
        """The tables that have topics and match the patterns (see `arguments`), by schema.table."""
        return (cut or self.cut()).matching(patterns)

    def changes(self, table: str, since: Position | None = None, until: Position | None = None) -> DataFrame:
        """The events of a table, typed, up to a cut: whole transactions only.

        Columns: op, source, identity, before, after, unchanged, unrepresentable, and kafka (partition, offset,
        timestamp, key). The commit LSN is at or after `since`, and below `until`. If a column had several types, it has
        the type that holds the values of all of them.
        """
        cuts = self.topics.cuts
        last = cuts.at(until)
        record = last.tables[last.topic(table)]
        starts: Sequence[int] = [-2] * len(record.offsets)  # the first offset that retention has left
        since_lsn = 0
        if since is not None:
            since_lsn = _lsn_of(since, cuts.at(since))
            # The cut that reaches `since` may also hold later transactions, so start at the cut before it.
            before = cuts.below(since_lsn)
            if before is not None and record.topic in before.tables:
                starts = _padded(before.ends(record.topic), len(record.offsets))
        until_lsn = None if until is None else _lsn_of(until, last)
        return self.topics.events(record, starts, since_lsn, until_lsn)

    def changes_stream(self, table: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """The events of a table as a stream, with the columns of `changes`.

        `options`: those of Spark's Kafka source (startingOffsets, maxOffsetsPerTrigger, ...); failOnDataLoss = "false"
        lets it go on after events that retention has deleted. The query knows the schemas that exist when it starts. A
        record of a later schema stops it with an error that says so; start the query again.
        """
        cut = self.cut()
        return self.topics.stream(cut.tables[cut.topic(table)], options or {})

    def as_of(self, position: Position | None = None, tables: Tables = "*") -> dict[str, DataFrame]:
        """The rows of tables as they stood at one commit LSN, folded from the topics' whole history.

        For an LSN, the rows hold every transaction that committed below it, and no other. A time gives the last cut at
        or before it. Each row has _commit_lsn, _seq and _commit_ts of its last change, and _unrepresentable: column ->
        PostgreSQL's text. Raises GapError if the topics do not go back to the position, or have not reached it yet.
        """
        cut = self.topics.cuts.at(position)
        wanted = TableList.of(tables)
        found = cut.matching(wanted)
        if not found:
            raise RequestRejected(
                f"no table with a topic matches {wanted}",
                "Write them as schema.table",
                code="tables-missing",
            )
        lsn = _lsn_of(position, cut)
        incomplete = sorted(found.keys() & set(cut.incomplete))
        if incomplete:
            raise GapError(
                f"{incomplete[0]} is parked, or its snapshot runs: its topic does not reach {format_lsn(lsn)}",
                "cdcd unpark says whether it is parked. Wait for its snapshot's end, or leave the table out",
                code="cut-incomplete",
            )
        return {name: self.rows(record, lsn) for name, record in found.items()}

    def rows(self, record: TableRecord, lsn: int) -> DataFrame:
        """The rows of the table of this table record at an LSN that the record reaches."""
        name = f"{record.schema}.{record.table}"
        snapshot = record.snapshot
        if snapshot is not None and (not snapshot.done or snapshot.lsn > lsn):
            raise GapError(
                f"the snapshot of {name} stands at {format_lsn(snapshot.lsn)}: its topic does not have all rows of "
                f"{format_lsn(lsn)}",
                "It was stopped, or [[table]] forbids a new one. To begin it again, run cdcd snapshot with the table"
                if snapshot.stopped
                else "Ask for a later LSN, when the snapshot is done",
                code="cut-incomplete",
            )
        starts = [0] * len(record.offsets)
        events = self.topics.events(record, starts, until_lsn=lsn)
        columns = self.topics.columns(record)
        with self.topics.kafka.errors(f"reading {record.topic}"):
            order = self.topics.writer_order(record, starts, lsn)
            return fold(events, columns, self.topics.key(record, events), name, order)

    def mirror(self, tables: Tables, catalog: str, format: Format, **options: Any) -> Mirror:  # noqa: A002
        """Tables in a lake that follow these; `options` are the fields of `MirrorOptions`."""
        return make_mirror(self.spark, self.topics, tables, catalog, format, MirrorOptions(**options))

    def snapshot(
        self, dsn: str, tables: Tables | TableList, parallelism: int = 8, publication: str = "cdcd"
    ) -> Snapshot:
        """Tables of PostgreSQL at one LSN, for a `with` block: DataFrames by `rows`, and for `Mirror.load`.

        `parallelism`: ranges that each table is read in. `publication`: the daemon's, which says which columns there
        are.
        """
        snapshot = Snapshot(self.spark, dsn, publication, self.topics.names, tables, parallelism)
        with suppress(RequestRejected):  # the daemon may not have begun
            snapshot.lsn_base = self.topics.cuts.at().lsn_base
        for name, made in snapshot.tables.items():
            columns = [each["name"] for each in snapshot.writer(name).columns]
            snapshot.hidden[name] = self.topics.hidden(name, made.topic, columns)
        return snapshot

    def verify(
        self,
        dsn: str,
        tables: Tables | TableList = "*",
        mirror: Mirror | None = None,
        parallelism: int = 8,
        publication: str = "cdcd",
        timeout_s: float = 120.0,
        on_step: Callable[[str], None] | None = None,
    ) -> Report:
        """Compare the rows that the topics fold to, or a mirror's, with PostgreSQL at one LSN. Writers may go on.

        For a mirror: its published tables, with the events since. `timeout_s`: how long to wait until the daemon has
        published up to the LSN of PostgreSQL's snapshot. The report's `ok` says whether everything is equal.
        """
        began = time.monotonic()
        step = on_step or (lambda _: None)
        with self.snapshot(dsn, tables, parallelism, publication) as snapshot:
            step(f"wait for {format_lsn(snapshot.lsn)}")
            self.topics.cuts.wait_until(snapshot.lsn, timeout_s)
            records = self.topics.cuts.at(snapshot.lsn).matching("*")
            run = None if mirror is None else mirror.published(snapshot.lsn)
            mirrored = () if run is None else run.tables
            reports = []
            for name in snapshot.tables:
                found: list[MirroredTable | None] = [each for each in mirrored if each.table == name]
                for table in found or [None]:
                    reports += self._compared(snapshot, name, records.get(name), mirror, table, step)
        made = Report(snapshot.lsn, tuple(reports), time.monotonic() - began)
        return made if run is None else replace(made, run=run.run, published_lsn=run.lsn)

    def _compared(
        self,
        snapshot: Snapshot,
        name: str,
        record: TableRecord | None,
        mirror: Mirror | None,
        table: MirroredTable | None,
        step: Callable[[str], None],
    ) -> list[TableReport]:
        """The report of one table (schema.table), of the mirror's `table` if it has one; none if it is left out."""
        shown = name if table is None else table.shown
        why = "" if table is None or table.kind is None else _why_left_out(record, table)
        if not why:
            step(f"compare {shown}")
            _check_whole(name, record, table)
            if mirror is None:
                rows = self._topic_rows(record, snapshot.lsn)
            else:
                rows = self._mirror_rows(mirror, table, record, snapshot)
            if rows is not None or table is None or table.key is None:
                compared = snapshot.rows(name).limit(0) if rows is None else rows
                return [replace(Comparison(snapshot, name, compared, snapshot.key(name)).compare(), table=shown)]
            why = "it is a changelog"
        step(f"{shown} is not compared: {why}")
        return []

    def _topic_rows(self, record: TableRecord | None, lsn: int) -> DataFrame | None:
        """The rows that a topic folds to; None if the table has no topic."""
        return None if record is None else self.rows(record, lsn)

    def _mirror_rows(
        self, mirror: Mirror, table: MirroredTable | None, record: TableRecord | None, snapshot: Snapshot
    ) -> DataFrame | None:
        """The rows of a mirror's published table with the events since; None if it has none, or is a changelog."""
        if table is None or table.key is None:
            return None
        rows = mirror.table_at(table)
        if rows is None or record is None or record.offsets == tuple(table.offsets):
            return rows
        starts = _padded(table.offsets, len(record.offsets))
        events = self.topics.events(record, starts, table.loaded_lsn, snapshot.lsn)
        columns, missing = self.topics.columns(record), self.topics.missing_values(record)
        order = self.topics.writer_order(record, starts, snapshot.lsn)
        return apply_events(rows, events, columns, snapshot.key(table.table), table.table, missing, order)


def _lsn_of(position: Position | None, cut: Cut) -> int:
    """The LSN that a position means, given the cut that was found for it."""
    place = cut.lsn if position is None else lsn_or_time(position)
    return place if isinstance(place, int) else cut.lsn


def _condition(record: TableRecord | None, mirrored: MirroredTable | None) -> str:
    """The SQL condition of the rows that the topic's snapshot has; empty if the topic or the mirror has all rows."""
    is_loaded = mirrored is not None and mirrored.loaded_lsn > 0
    return "" if record is None or record.snapshot is None or is_loaded else record.snapshot.where


def _why_left_out(record: TableRecord | None, further: MirroredTable) -> str:
    """Why a table of a further kind is not compared, though that of the first kind is; empty if it is."""
    if further.error is not None:
        return "it is in quarantine"
    where = _condition(record, further)
    return f"the snapshot in its topic has only the rows with {where}" if where else ""


def _check_whole(name: str, record: TableRecord | None, mirrored: MirroredTable | None) -> None:
    """Raise RequestRejected if neither the topic nor a load of the mirror has all rows of the table."""
    if where := _condition(record, mirrored):
        raise RequestRejected(
            f"the snapshot of {name} has only the rows with {where}, so its topic is no copy of it",
            "Leave the table out, or load it into a mirror: cdcd spark snapshot",
            code="snapshot-partial",
        )


def _padded(offsets: Sequence[int], partitions: int) -> list[int]:
    return [*offsets, *(0 for _ in range(partitions - len(offsets)))]
