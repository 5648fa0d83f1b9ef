"""What a Spark user calls: a Kafka cluster and a prefix as tables of events, cuts and rows.

Before: a SparkSession with the jars that `packages` names. After: the modules that do it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdcd.errors import GapError, RequestRejected
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.records import TableRecord
from cdcd.sink.topics import TopicNames
from cdcd.spark.load import Snapshot
from cdcd.spark.mirror.mirror import Mirror
from cdcd.spark.mirror.run_log import Run
from cdcd.spark.packages import Format, check_jars, packages
from cdcd.spark.reading import changes
from cdcd.spark.reading.cuts import Cut, Cuts, Moment
from cdcd.spark.reading.decoding import common_columns
from cdcd.spark.reading.kafka import KafkaReader
from cdcd.spark.reading.writer_schemas import RegistryWriters, TopicWriters, Writers
from cdcd.spark.state import as_of as state_as_of
from cdcd.spark.state.as_of import rolled
from cdcd.spark.verify import Comparison, Report, wait_for


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
        """`bootstrap`: host:port, by commas; `prefix`: the daemon's sink.prefix.

        `registry`: the URL of the schema registry that the daemon uses, or its client's properties; None where schemas
        travel in Kafka. `slot`: needed where several feed the prefix. `kafka`: more properties of Kafka's Java client,
        such as {"security.protocol": "SASL_SSL"}. `topic`: the daemon's sink.topic.
        Raises SettingsError if the session's Kafka connector is known to fail.
        """
        config = spark.conf
        check_jars(f"{config.get('spark.jars', '')} {config.get('spark.jars.packages', '')}")
        self.spark = spark
        self.names = TopicNames(prefix, topic)
        self.kafka = KafkaReader(spark, bootstrap, kafka or {})
        self.progress = Cuts(self.kafka, self.names.progress, slot)
        if registry is None:
            self.writers: Writers = TopicWriters(self.kafka, self.names.schemas)
        else:
            self.writers = RegistryWriters({"url": registry} if isinstance(registry, str) else registry)

    def cuts(self) -> DataFrame:
        """Every cut that the progress topic still has.

        Columns: lsn, commit_lsn, commit_ts, transactions, rows, touched, position (on the progress topic).
        `touched` maps the topics that a cut's transactions touched to the end offsets of their partitions.
        """
        return self.progress.all()

    def cut(self, moment: Moment | None = None) -> Cut:
        """One cut, with all topics' end offsets: the newest, the first that reaches an LSN, the last of a time."""
        return self.progress.at(moment)

    def tables(self, patterns: Sequence[str] = ("*",), cut: Cut | None = None) -> dict[str, TableRecord]:
        """The tables that have topics and match (`schema.table`, `*` stands for any characters), by that name."""
        records = (cut or self.cut()).tables.values()
        found = {f"{record.schema}.{record.table}": record for record in records if record.schema}
        return {name: found[name] for name in sorted(found) if any(fnmatchcase(name, each) for each in patterns)}

    def changes(self, table: str, since: Moment | None = None, until: Moment | None = None) -> DataFrame:
        """The events of a table, typed, up to a cut: whole transactions only.

        Columns: op, source, identity, before, after, unchanged, unrepresentable, and kafka (partition, offset,
        timestamp, key). `since` and `until` bound the commit LSN: from `since` on, below `until`. A column that had
        several types has the one that holds all of their values.
        """
        last = self.progress.at(until)
        record = last.tables[last.topic(table)]
        starts: Sequence[int] = [-2] * len(record.offsets)  # what retention has left
        since_lsn = 0
        if since is not None:
            first = self.progress.at(since)
            since_lsn = first.lsn if not isinstance(since, (int, str)) else _number(since)
            # The cut that reaches `since` may hold later transactions: so begin at the one before it.
            before = self.cut_below(since_lsn)
            if before is not None and record.topic in before.tables:
                starts = _padded(before.ends(record.topic), len(record.offsets))
        until_lsn = None if until is None else _bound(until, last)
        return self._changes(record, starts, since_lsn, until_lsn)

    def changes_stream(self, table: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """The events of a table as a stream, in the columns of `changes`.

        `options` are those of Spark's Kafka source (startingOffsets, maxOffsetsPerTrigger, ...). The schemas are those
        known now: a record of a later one stops the query with an error that says so; start it again.
        """
        cut = self.cut()
        record = cut.tables[cut.topic(table)]
        known = changes.known_writers(self.writers, record.schema, record.table, record.topic)
        return changes.stream(self.kafka, known, record.topic, options or {})

    def as_of(self, moment: Moment | None = None, tables: Sequence[str] = ("*",)) -> dict[str, DataFrame]:
        """The rows of tables as they stood at one commit LSN, folded from the topics' whole history.

        An LSN is met exactly: every transaction that committed below it, and no other. A time gives the last cut of it.
        With each row: _commit_lsn, _seq, _commit_ts of its last change; _unrepresentable, column -> PostgreSQL's text.
        Raises GapError if the topics do not go back, or not yet forward, to it.
        """
        cut = self.progress.at(moment)
        found = self.tables(tables, cut)
        if not found:
            raise RequestRejected(f"no table with a topic matches {', '.join(tables)}", "Write them as schema.table")
        lsn = _bound(moment, cut)
        parked = sorted(found.keys() & set(cut.parked))
        if parked:
            raise GapError(
                f"{parked[0]} is parked, or being copied: its topic does not go to {format_lsn(lsn)}",
                "Run cdcd unpark, or wait for the copy; or leave it out",
            )
        return {name: self.rows(record, lsn) for name, record in found.items()}

    def rows(self, record: TableRecord, lsn: int) -> DataFrame:
        """The rows of the table of this table record at an LSN that the record reaches."""
        name = f"{record.schema}.{record.table}"
        copy = record.snapshot
        if copy is not None and (not copy.done or copy.lsn > lsn):
            raise GapError(
                f"{name} is copied as of {format_lsn(copy.lsn)}: not all that it held at {format_lsn(lsn)} was sent",
                "Ask for a later LSN, once the copy is done",
            )
        events = self._changes(record, [0] * len(record.offsets), 0, lsn)
        known = changes.known_writers(self.writers, record.schema, record.table, record.topic)
        with self.kafka.errors(f"reading {record.topic}"):
            return state_as_of.fold(events, common_columns(known), self.key(record), name)

    def mirror(self, tables: Sequence[str], catalog: str, format: Format, **settings: Any) -> Mirror:  # noqa: A002
        """Tables in a lake that follow these; see `Mirror` for the settings."""
        return Mirror(self, tables, catalog, format, **settings)

    def snapshot(self, dsn: str, tables: Sequence[str], parallelism: int = 8, publication: str = "cdcd") -> Snapshot:
        """Tables of PostgreSQL at one LSN, for `with`: DataFrames by `rows`, and for `Mirror.load`.

        `parallelism`: ranges that a table is read in. `publication`: the daemon's, which says which columns there are.
        """
        return Snapshot(self.spark, dsn, publication, self.names, tables, parallelism)

    def verify(
        self,
        dsn: str,
        tables: Sequence[str] = ("*",),
        mirror: Mirror | None = None,
        parallelism: int = 8,
        publication: str = "cdcd",
        timeout_s: float = 120.0,
        on_step: Callable[[str], None] | None = None,
    ) -> Report:
        """Compare what the topics fold to, or a mirror, with PostgreSQL at one LSN; writers may go on.

        With a mirror: its published tables with the events since. `timeout_s`: how long to wait until the daemon has
        published up to the LSN of PostgreSQL's snapshot. The report's `ok` says whether all is equal.
        """
        began = time.monotonic()
        step = on_step or (lambda _: None)
        with self.snapshot(dsn, tables, parallelism, publication) as snapshot:
            step(f"wait for {format_lsn(snapshot.lsn)}")
            wait_for(lambda: self.cut().lsn, snapshot.lsn, timeout_s)
            cut = self.progress.at(snapshot.lsn)
            base = None if mirror is None else mirror.published(snapshot.lsn)
            reports = []
            for name in snapshot.tables:
                step(f"compare {name}")
                record = self.tables(cut=cut).get(name)
                rows, key = self._rows_at(name, record, snapshot, mirror, base)
                reports.append(Comparison(snapshot, name, rows, key).compare())
        return Report(snapshot.lsn, tuple(reports), time.monotonic() - began)

    def _rows_at(
        self, name: str, record: TableRecord | None, snapshot: Snapshot, mirror: Mirror | None, base: Run | None
    ) -> tuple[DataFrame, Sequence[str]]:
        key = snapshot.key(name)
        known = next((table for table in base.tables if table.table == name), None) if base is not None else None
        if mirror is not None and known is not None and known.key is not None:
            rows = mirror.table_at(known)
            if record is None or record.offsets == tuple(known.offsets):
                return rows, key
            starts = _padded(known.offsets, len(record.offsets))
            events = self._changes(record, starts, known.loaded_lsn, snapshot.lsn)
            columns = common_columns(changes.known_writers(self.writers, record.schema, record.table, record.topic))
            return rolled(rows, events, columns, key, name), key
        if mirror is None and record is not None:
            return self.rows(record, snapshot.lsn), key
        nothing = snapshot.rows(name).limit(0)
        return nothing, key

    def key(self, record: TableRecord) -> tuple[str, ...]:
        """The columns of a table's key, none if it has none; raises GapError if the topic has keys of several kinds."""
        keys = {each.key for each in self.writers.of(record.schema, record.table, record.topic, "key")}
        if len(keys) > 1:
            raise GapError(
                f"the key of {record.schema}.{record.table} has changed: {' and '.join(map(str, sorted(keys)))}",
                "Rows of before and after cannot be matched: load the table anew under another prefix",
            )
        return next(iter(keys), ())

    def _changes(self, record: TableRecord, starts: Sequence[int], since: int, until: int | None) -> DataFrame:
        known = changes.known_writers(self.writers, record.schema, record.table, record.topic)
        ranges = {record.topic: (starts, record.offsets)}
        return changes.batch(self.kafka, ranges, known, record.topic, since, until)

    def cut_below(self, lsn: int) -> Cut | None:
        """The last cut at or before an LSN; None if the progress does not go back so far."""
        cuts = self.cuts().where(f"lsn <= {lsn}").agg({"lsn": "max"}).first()
        return None if cuts[0] is None else self.progress.at(int(cuts[0]))


def _number(moment: int | str) -> int:
    return parse_lsn(moment) if isinstance(moment, str) else moment


def _bound(moment: Moment | None, cut: Cut) -> int:
    """The LSN that the moment means, given the cut that was found for it."""
    return _number(moment) if isinstance(moment, (int, str)) else cut.lsn


def _padded(offsets: Sequence[int], partitions: int) -> list[int]:
    return [*offsets, *(0 for _ in range(partitions - len(offsets)))]
