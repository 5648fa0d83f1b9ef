"""Tables in a lake that follow the topics: all of them at one LSN a run, each event once, whatever dies when.

Before: `reading.cuts` says how far to read, `table_merge` does one table.
After: readers ask the mirror for tables as published.

A run: choose a cut; write the plan; merge each table that its transactions touched; publish. Every step may be the
last one that a process does: see `runs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql import DataFrame

from cdcd.avro.avro_names import avro_name
from cdcd.errors import Fenced, GapError, RequestRejected, SettingsError
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.records import TableRecord
from cdcd.spark.load import Snapshot
from cdcd.spark.mirror.merge_sql import DELETED, Deletes
from cdcd.spark.mirror.run_log import PLANNED, PUBLISHED, MirroredTable, Run, Runs
from cdcd.spark.mirror.table_merge import Applied, Applier
from cdcd.spark.mirror.targets.delta import Delta
from cdcd.spark.mirror.targets.iceberg import Iceberg
from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.packages import Format
from cdcd.spark.reading.cuts import Cut, Moment
from cdcd.spark.verify import wait_for

if TYPE_CHECKING:
    from cdcd.spark.cdc import Cdc

RUNS_TABLE: Final = "cdcd_runs"

_TARGETS: Final[dict[str, type[Target]]] = {"delta": Delta, "iceberg": Iceberg}


@dataclass(frozen=True)
class Lag:
    """How far the published tables are behind what Kafka holds."""

    bytes: int
    """Of WAL, between the published LSN and the newest cut's."""
    events: int
    """Offsets, markers included, that are not merged."""
    seconds: float
    """Between the commit times of the last transaction published and the newest in Kafka."""


@dataclass(frozen=True)
class PublishedRun:
    """What one run did."""

    run: Run
    events: int
    seconds: float


class Mirror:
    """A set of tables in one schema of a catalog. One process at a time runs it; any number reads."""

    def __init__(
        self,
        cdc: Cdc,
        tables: Sequence[str],
        catalog: str,
        format: Format,  # noqa: A002  # the word that Spark uses
        name: str = "mirror",
        deletes: Deletes = "hard",
        schema_changes: str = "stop",
        rows_max: int = 5_000_000,
        parallel: int = 2,
        properties: Mapping[str, str] | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        """`tables`: patterns of schema.table; those that come to match later join by themselves.

        `catalog`: where the tables go, as catalog.schema; a table is called {schema}_{table} there. `name`: of this
        mirror among those that share the schema. `deletes`: "soft" keeps deleted rows, with _is_deleted set.
        `schema_changes`: "stop" or "follow", see `evolution`. `rows_max`: events a run takes at most, if a cut allows.
        `parallel`: tables that are merged at the same time. `properties`: more TBLPROPERTIES for new tables.
        `on_step`: told what is done next. Raises SettingsError for a format that there is not.
        """
        if format not in _TARGETS:
            raise SettingsError(f"there is no table format {format!r}", 'Use "delta" or "iceberg"')
        if not name.replace("_", "").isalnum():
            raise SettingsError(f"{name!r} is no name for a mirror", "Use letters, digits and _")
        self._cdc = cdc
        self._patterns = tuple(tables)
        self._catalog = catalog
        self._name = name
        self._rows_max = rows_max
        self._parallel = parallel
        self._step = on_step or (lambda _: None)
        self._target = _TARGETS[format](cdc.spark, properties or {})
        self._applier = Applier(cdc.kafka, cdc.writers, self._target, deletes, follow=schema_changes == "follow")
        self._runs = Runs(self._target, f"{catalog}.{RUNS_TABLE}", name)
        self._cut: Cut | None = None
        self._ready = False
        self._loaded: dict[str, MirroredTable] = {}
        """By topic: tables that were loaded and are not published yet."""
        self._replacing: frozenset[str] = frozenset()
        """Topics of tables that a load is about to replace: what a plan wanted of them need not be done."""

    # Writing

    def run_once(self) -> PublishedRun | None:
        """Bring all tables to the newest cut and publish them, or end what another process began; None: nothing new.

        At most `rows_max` events a run, so that after a long pause several are needed: see `catch_up`.
        """
        began = time.monotonic()
        self._prepare()
        published, planned = self._runs.last()
        if planned is None:
            planned = self._plan(published)
            if planned is None:
                return None
            if not self._touched(planned, published):
                self._step(f"publish {planned.run}")
                self._runs.write(replace(planned, state=PUBLISHED))
                self._loaded = {}
                return PublishedRun(planned, 0, time.monotonic() - began)
            self._step(f"plan {planned.run}")
            self._runs.write(planned)
        elif any(t.topic in self._loaded and t.loaded_lsn != self._loaded[t.topic].loaded_lsn for t in planned.tables):
            raise Fenced(
                f"another process has begun a run of the mirror {self._name} while its tables were loaded anew",
                "Stop that process, repeat the load (cdcd spark snapshot), and start it again",
            )
        applied = self._apply(planned, published)
        done = replace(planned, state=PUBLISHED, tables=tuple(each.table for each in applied))
        self._step(f"publish {done.run}")
        self._runs.write(done)
        self._loaded = {}
        self._step(f"published {done.run}")
        return PublishedRun(done, sum(each.events for each in applied), time.monotonic() - began)

    def catch_up(self) -> list[PublishedRun]:
        """Runs up to what is the newest cut now; what each did."""
        goal = self._cdc.progress.at(None, self._cut).position
        done = []
        while (published := self.run_once()) is not None:
            done.append(published)
            if published.run.position >= goal:
                break
        return done

    def run(self, interval_s: float = 30.0, stop: Event | None = None) -> None:
        """Run on and on, a run each `interval_s` seconds or as long as it takes, until `stop` is set."""
        stopped = stop or Event()
        while not stopped.is_set():
            began = time.monotonic()
            self.run_once()
            stopped.wait(max(0.0, interval_s - (time.monotonic() - began)))

    def compact(self, keep_runs: int = 10_000) -> None:
        """Rewrite small files of every table, and forget runs older than the last `keep_runs`.

        What this makes is published, as of the same LSN: else the published version of a table to which nothing happens
        would be one that the lake forgets some day (VACUUM, expire_snapshots).
        """
        published, planned = self._runs.last()
        compacted = []
        for table in published.tables if published is not None else ():
            now = table
            if table.version is not None:
                self._step(f"compact {table.target}")
                self._target.compact(table.target)
                if not self._target.replaced(table.target, self._name, table.version):
                    now = replace(table, version=self._target.version(table.target))
            compacted.append(now)
        self._runs.prune(keep_runs)
        if published is not None and planned is None and tuple(compacted) != published.tables:
            again = replace(published, run=published.run + 1, tables=tuple(compacted), token=uuid4().hex)
            self._runs.write(again)
        self._target.compact(self._runs.table)

    # Reading

    def published_lsn(self) -> int:
        """The LSN that all tables are at; 0 before the first run."""
        self._prepare()
        published, _ = self._runs.last()
        return 0 if published is None else published.lsn

    def lag(self) -> Lag:
        """How far the tables are behind the topics."""
        self._prepare()
        published, _ = self._runs.last()
        cut = self._cdc.progress.at(None, self._cut)
        if published is None:
            return Lag(cut.lsn, sum(sum(record.offsets) for record in self._wanted(cut)), 0.0)
        known = published.by_topic()
        events = sum(
            sum(record.offsets) - (sum(known[record.topic].offsets) if record.topic in known else 0)
            for record in self._wanted(cut)
        )
        return Lag(cut.lsn - published.lsn, events, max(0, cut.commit_ts - published.commit_ts) / 1e6)

    def as_of(self, moment: Moment | None = None) -> dict[str, DataFrame]:
        """Every table, by schema.table, as the newest run at or before an LSN or time published it (None: the newest).

        With `deletes="soft"` rows that are deleted are in it, marked. Raises RequestRejected if nothing was published
        by then.
        """
        run = self.published(moment)
        return {
            table.table: self._target.at(table.target, table.version)
            for table in run.tables
            if table.key is not None and self._target.exists(table.target)
        }

    def published(self, moment: Moment | None = None) -> Run:
        """The newest run that was published at or before an LSN or time (None: the newest)."""
        self._prepare()
        if moment is None:
            found = self._runs.published("true")
        elif isinstance(moment, datetime):
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            found = self._runs.published(f"commit_ts <= timestamp '{aware.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'")
        else:
            lsn = parse_lsn(moment) if isinstance(moment, str) else moment
            found = self._runs.published(f"lsn <= {lsn}")
        if found is None:
            raise RequestRejected(
                f"the mirror {self._name} has published nothing by then", "Run it: cdcd spark mirror, or run_once()"
            )
        return found

    def table_at(self, table: MirroredTable) -> DataFrame:
        """One table of a published run: the rows that are there, without those that are only marked as deleted."""
        rows = self._target.at(table.target, table.version)
        return rows.where(f"NOT coalesce({DELETED}, false)") if DELETED in rows.columns else rows

    def load(self, snapshot: Snapshot, timeout_s: float = 120.0) -> list[PublishedRun]:
        """Load the snapshot's tables as they stood at its LSN, in place of what was there, and bring all tables beyond.

        What the topics hold of earlier changes is in the rows already, and is passed over. `timeout_s`: how long to
        wait until the daemon has published up to the snapshot's LSN. Published with the first run after.
        """
        self._prepare()
        self._loaded = {}
        self._finish_planned(snapshot)
        published, _ = self._runs.last()
        known = {} if published is None else published.by_topic()
        below = self._cdc.cut_below(snapshot.lsn)
        loaded = [self._load(snapshot, name, known, below) for name in snapshot.tables]
        wait_for(lambda: self._cdc.cut().lsn, snapshot.lsn, timeout_s)
        self._loaded = {table.topic: table for table in loaded}
        return self.catch_up()

    def _load(
        self, snapshot: Snapshot, name: str, known: Mapping[str, MirroredTable], below: Cut | None
    ) -> MirroredTable:
        """One table. Its topic is read from the cut below the snapshot on: retention may have taken what is before."""
        schema, _, table = name.partition(".")
        topic, target = self._cdc.names.topic(schema, table), self._target_name(schema, table)
        before, key = known.get(topic), list(snapshot.key(name))
        self._step(f"load {target}")
        with self._target.replacing(self._name, None if before is None else before.version):
            version = self._applier.load(target, snapshot.rows(name), snapshot.writer(name), key)
        return MirroredTable(topic, schema, table, target, key, _ends(below, topic), snapshot.lsn, version)

    def _finish_planned(self, snapshot: Snapshot) -> None:
        """All of it but the tables of the snapshot: they may be the ones that cannot be merged."""
        _, planned = self._runs.last()
        if planned is None:
            return
        names = frozenset(snapshot.tables)
        self._replacing = frozenset(table.topic for table in planned.tables if table.table in names)
        try:
            self.run_once()
        finally:
            self._replacing = frozenset()

    # A run

    def _prepare(self) -> None:
        if not self._ready:
            self._cdc.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self._catalog}")
            self._runs.create()
            self._ready = True

    def _wanted(self, cut: Cut) -> list[TableRecord]:
        """The tables that match and are whole: one whose copy in the topic is under way waits for its end."""
        found = self._cdc.tables(self._patterns, cut).values()
        return [record for record in found if record.snapshot is None or record.snapshot.done]

    def _plan(self, published: Run | None) -> Run | None:
        known = self._known(published)
        position = -1 if published is None else published.position
        applied = {topic: table.offsets for topic, table in known.items()}
        cut = self._cdc.progress.within(self._rows_max, self._cut, applied, position)
        for name in sorted(self._cdc.tables(self._patterns, cut).keys() & set(cut.parked)):
            self._step(f"{name} is parked, or being copied: until that ends it stays as it was")
        loaded_lsn = max((table.loaded_lsn for table in self._loaded.values()), default=0)
        if cut.lsn < loaded_lsn:  # no table may be published as of an LSN before its own
            cut = self._cdc.progress.at(loaded_lsn)
        if published is not None:
            _check_goes_on(published, cut)
        self._cut = self._cut if self._cut is not None and self._cut.position > cut.position else cut
        if published is not None and not self._loaded and cut.position <= published.position:
            return None
        tables = dict(self._loaded)
        for record in self._wanted(cut):
            before = known.get(record.topic)
            if before is not None and any(old > new for old, new in zip(before.offsets, record.offsets, strict=False)):
                raise GapError(
                    f"the topic {record.topic} ends before the place up to which it was mirrored: it was made anew",
                    "Load the table anew, with `cdcd spark snapshot`",
                )
            tables[record.topic] = MirroredTable(
                topic=record.topic,
                schema=record.schema,
                name=record.table,
                target=self._target_name(record.schema, record.table) if before is None else before.target,
                key=None if before is None else before.key,
                offsets=list(record.offsets),
                loaded_lsn=0 if before is None else before.loaded_lsn,
                version=None if before is None else before.version,
            )
        for record in self._cdc.tables(self._patterns, cut).values():
            if record.topic in known:  # one that waits stays as it is
                tables.setdefault(record.topic, known[record.topic])
        _refuse_shared_names(tables.values())
        run = Run(
            mirror=self._name,
            run=1 if published is None else published.run + 1,
            state=PLANNED,
            slot=cut.slot,
            lsn=cut.lsn,
            commit_lsn=cut.commit_lsn,
            commit_ts=cut.commit_ts,
            position=cut.position,
            tables=tuple(tables.values()),
        )
        # The LSN stands still while a copy ends, or a parked table is replayed: then there is something to do.
        idle = published is not None and cut.lsn == published.lsn and not self._touched(run, published)
        return None if idle and not self._loaded else run

    def _touched(self, planned: Run, published: Run | None) -> set[str]:
        known = self._known(published)
        return {t.topic for t in planned.tables if t.topic not in known or known[t.topic].offsets != t.offsets}

    def _known(self, published: Run | None) -> dict[str, MirroredTable]:
        """What the next run starts from: the tables as published, or as loaded since."""
        return ({} if published is None else published.by_topic()) | self._loaded

    def _apply(self, planned: Run, published: Run | None) -> list[Applied]:
        known = self._known(published)
        touched = self._touched(planned, published)
        loads = {t.loaded_lsn for t in planned.tables if _is_loaded(t, known.get(t.topic))}
        below = {lsn: self._cdc.cut_below(lsn) for lsn in loads}

        def one(table: MirroredTable) -> Applied:
            before = known.get(table.topic)
            if _is_loaded(table, before):  # by a process that is gone
                before = replace(table, offsets=_ends(below[table.loaded_lsn], table.topic))
            if table.topic in self._replacing:
                return Applied(before or replace(table, offsets=[], version=None), 0)
            if table.topic not in touched:
                return Applied(table, 0)
            exists = self._target.exists(table.target)
            if exists and self._target.tagged(table.target, self._name, planned.token):
                return Applied(self._done(table), 0)
            self._check_target(table.target, before, exists=exists)
            self._step(f"merge {table.target}")
            applied = self._applier.apply(table, before, planned.token)
            self._step(f"merged {table.target}")
            return applied

        with self._target.tagging(self._name, planned.token), ThreadPoolExecutor(self._parallel) as pool:
            return list(pool.map(one, planned.tables))

    def _check_target(self, target: str, before: MirroredTable | None, *, exists: bool) -> None:
        """Raise RequestRejected if the target is not what the last run published: a MERGE would add to other rows."""
        if before is None or before.version is None:
            if exists and not self._target.empty(target):
                raise RequestRejected(
                    f"{target} holds rows that no run of the mirror {self._name} has published",
                    "Drop it, or load it anew with `cdcd spark snapshot`",
                )
        elif not exists:
            raise RequestRejected(f"{target} was dropped", "Load it anew, with `cdcd spark snapshot`")
        elif self._target.replaced(target, self._name, before.version):
            raise RequestRejected(
                f"{target} was overwritten by a load that has not been published",
                "Let that load come to its end; if it is not running any more, repeat it: cdcd spark snapshot",
            )

    def _done(self, table: MirroredTable) -> MirroredTable:
        """A table that the process before us has merged: what it knew of it and took with it."""
        if table.key is None:
            keys = self._cdc.writers.of(table.schema, table.name, table.topic, "key")
            table = replace(table, key=list(keys[-1].key) if keys else [])
        return replace(table, version=self._target.version(table.target))

    def _target_name(self, schema: str, table: str) -> str:
        return f"{self._catalog}.`{avro_name(schema).lower()}_{avro_name(table).lower()}`"


def _is_loaded(planned: MirroredTable, known: MirroredTable | None) -> bool:
    """Whether the table's merge starts from a load, and not from what was published."""
    return planned.loaded_lsn != 0 and (known is None or known.loaded_lsn != planned.loaded_lsn)


def _ends(below: Cut | None, topic: str) -> list[int]:
    """From where on a topic holds what a load does not: behind the cut below its LSN."""
    return list(below.ends(topic)) if below is not None and topic in below.tables else []


def _check_goes_on(published: Run, cut: Cut) -> None:
    """Raises what tells that this progress is not the one that was mirrored."""
    if cut.slot != published.slot:
        raise RequestRejected(
            f"the mirror {published.mirror} follows the slot {published.slot}, not {cut.slot}",
            "Give each slot's mirror a name of its own",
        )
    if cut.position < published.position or cut.lsn < published.lsn:
        raise GapError(
            f"the progress of slot {cut.slot} ends at {format_lsn(cut.lsn)}, offset {cut.position}: what is published, "
            f"{format_lsn(published.lsn)}, lies behind offset {published.position}",
            "The topics were made anew: drop the tables, and start the mirror over under another name",
        )


def _refuse_shared_names(tables: Iterable[MirroredTable]) -> None:
    seen: dict[str, str] = {}
    for table in tables:
        other = seen.setdefault(table.target, table.table)
        if other != table.table:
            raise SettingsError(
                f"{other} and {table.table} would both become {table.target}",
                "Mirror them into two schemas, with a pattern each",
            )
