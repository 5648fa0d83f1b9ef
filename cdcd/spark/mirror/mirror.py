"""Tables in a lake that follow the topics: each run brings all of them to one LSN, and merges each event once.

Before: `planner` says what the next run reads, `table_merge` merges one table.
After: readers ask the mirror for tables as published.

A run: choose a cut; write the plan; merge each table that has new events; publish. The process may die after any of
these steps: see `run_log`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Event
from uuid import uuid4

from pyspark.sql import DataFrame

from cdcd.errors import Fenced, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.spark.arguments import Position, lsn_or_time
from cdcd.spark.load import Snapshot
from cdcd.spark.mirror.planner import Lag, Planner, ends_below, known_tables, touched
from cdcd.spark.mirror.quarantine import Quarantine
from cdcd.spark.mirror.run_log import PUBLISHED, MirroredTable, Run, RunLog
from cdcd.spark.mirror.table_merge import TableMerger
from cdcd.spark.mirror.table_write import Attempt
from cdcd.spark.mirror.targets.target import Files, Tag, Target
from cdcd.spark.reading.cuts import Cut


@dataclass(frozen=True)
class PublishedRun:
    """A run that is published, and its work."""

    run: Run
    seconds: float

    @property
    def events(self) -> int:
        """The events that it has merged."""
        return self.run.events


class Mirror:
    """A set of tables in one schema of a catalog. One process at a time runs it; any number of processes read it."""

    def __init__(
        self,
        name: str,
        planner: Planner,
        run_log: RunLog,
        merger: TableMerger,
        target: Target,
        parallel: int,
        on_step: Callable[[str], None],
        quarantine: Quarantine,
    ) -> None:
        """`wiring.make_mirror` makes these parts of `MirrorOptions`, which say what they mean."""
        self._name = name
        self._quarantine = quarantine
        self._planner = planner
        self._log = run_log
        self._merger = merger
        self._target = target
        self._parallel = parallel
        self._step = on_step
        self._is_prepared = False
        self._loaded: dict[str, MirroredTable] = {}
        """By id: tables that were loaded and are not published yet."""
        self._replacing: frozenset[str] = frozenset()
        """The ids of tables that a load is about to overwrite: a plan need not merge them."""

    # Writing

    def run_once(self) -> PublishedRun | None:
        """Bring all tables to the newest cut and publish them, or finish another process's run; None: nothing to do.

        A run takes at most `rows_max` events. After a long pause several runs are needed: see `catch_up`.
        """
        began = time.monotonic()
        with self._target.running():
            done = self._run()
        return None if done is None else PublishedRun(done, time.monotonic() - began)

    def catch_up(self) -> list[PublishedRun]:
        """Run up to the cut that is the newest one now; returns what each run did."""
        goal = self._planner.newest().progress_offset
        done = []
        while (published := self.run_once()) is not None:
            done.append(published)
            if published.run.progress_offset >= goal:
                break
        return done

    def run(self, interval_s: float = 30.0, stop: Event | None = None) -> None:
        """Start a run every `interval_s` seconds, or when the last one has ended, until `stop` is set."""
        stopped = stop or Event()
        while not stopped.is_set():
            began = time.monotonic()
            self.run_once()
            stopped.wait(max(0.0, interval_s - (time.monotonic() - began)))

    def compact(self, keep_runs: int = 10_000, keep_days: int = 7) -> None:
        """Rewrite the small files of every table, and remove what belongs to older runs than are kept.

        Kept are the last `keep_runs` runs, of the last `keep_days` days (7 at least), and always the newest one. The
        rewritten tables are published, as of the same LSN: their published versions may be older than that.
        """
        with self._target.running():
            self._compact(keep_runs, datetime.now(UTC) - timedelta(days=keep_days))

    def _compact(self, keep_runs: int, older_than: datetime) -> None:
        published, planned = self._log.last()
        tables = [] if published is None else [table.unmerged for table in published.tables]
        compacted = []
        for table in tables:
            now = table
            if table.version is not None and table.error is None:
                self._step(f"compact {table.target}")
                self._target.compact(table.target)
                if not self._target.replaced(table.target, self._name, table.version):
                    now = replace(table, version=self._target.version(table.target))
            compacted.append(now)
        self._log.prune(keep_runs, older_than)
        if published is not None and planned is None and compacted != tables:
            self._publish(replace(published, run=published.run + 1, tables=tuple(compacted), token=uuid4().hex))
        self._step(f"compact {self._log.table}")
        self._log.remove_old_files()
        oldest = self._log.oldest_versions()
        for name in (each.target for each in compacted if each.version is not None):
            if self._target.exists(name):
                self._step(f"compact {name}: remove files from before {older_than:%Y-%m-%d %H:%M}")
                self._target.remove_old_files(name, older_than, oldest.get(name))

    # Reading

    def published_lsn(self) -> int:
        """The LSN that all tables are at; 0 before the first run."""
        self._prepare()
        published, _ = self._log.last()
        return 0 if published is None else published.lsn

    def lag(self) -> Lag:
        """How far the tables are behind the topics."""
        self._prepare()
        published, _ = self._log.last()
        return self._planner.lag(published)

    def as_of(self, position: Position | None = None) -> dict[str, DataFrame]:
        """Every table, by schema.table, as the newest run at or before an LSN or time published it (None: the newest).

        The name of a further kind is `public.t as scd2`. A table that was in quarantine then is not in it, because it
        is not at the run's LSN: `published().quarantined`. With `deletes="soft"`, deleted rows are in it, and marked.
        Raises RequestRejected if no run was published by then.
        """
        run = self.published(position)
        return {
            table.shown: self._target.at(table.target, table.version)
            for table in run.tables
            if table.key is not None and table.error is None and self._target.exists(table.target)
        }

    def files(self, run: Run) -> dict[str, Files]:
        """By id, the files of the run's tables, as they are now."""
        tables = (table for table in run.tables if table.version is not None and self._target.exists(table.target))
        return {table.id: self._target.files(table.target) for table in tables}

    def times(self, run: Run) -> dict[str, datetime]:
        """By state (planned, published), when the run's row was written. A run without events has no plan."""
        return self._log.times(run.run)

    def published(self, position: Position | None = None) -> Run:
        """The newest run that was published at or before an LSN or time (None: the newest)."""
        self._prepare()
        place = None if position is None else lsn_or_time(position)
        if place is None:
            found = self._log.published("true")
        elif isinstance(place, datetime):
            found = self._log.published(f"commit_ts <= timestamp_ltz '{place.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'")
        else:
            found = self._log.published(f"lsn <= {place}")
        if found is None:
            raise RequestRejected(
                f"the mirror {self._name} has published nothing by then",
                "Run it: cdcd spark mirror, or run_once()",
                code="mirror-not-run",
            )
        return found

    def table_at(self, table: MirroredTable) -> DataFrame | None:
        """The rows that PostgreSQL had at a published run; None if the table is a changelog."""
        return self._merger.live(table, self._target.at(table.target, table.version))

    # Loading

    def load(self, snapshot: Snapshot, timeout_s: float = 120.0) -> list[PublishedRun]:
        """Replace tables by the snapshot's, as they stood at its LSN, and bring all tables of the mirror beyond it.

        The loaded rows contain all earlier changes, so the mirror skips these in the topics. `timeout_s`: how long to
        wait until the daemon has published up to the snapshot's LSN. The next run publishes the loaded tables.
        """
        self._prepare()
        self._loaded = {}
        self._finish_planned(snapshot)
        published, _ = self._log.last()
        known = known_tables(published, {})
        below = self._planner.cuts.below(snapshot.lsn)
        tables = [
            table
            for name in snapshot.tables
            for table in self._to_load(self._planner.tables_to_load(name, below), snapshot.key(name))
        ]
        with self._target.running():
            loaded = [self._load(snapshot, table, known.get(table.id), below) for table in tables]
        self._step(f"wait for {format_lsn(snapshot.lsn)}")
        self._planner.cuts.wait_until(snapshot.lsn, timeout_s)
        self._loaded = {table.id: table for table in loaded}
        return self.catch_up()

    def _to_load(self, tables: Sequence[MirroredTable], key: Sequence[str]) -> list[MirroredTable]:
        """The tables of one topic that a load may replace. Raises RequestRejected if it may replace none."""
        refused = {table.id: error for table in tables if (error := self._refusal(table, key)) is not None}
        if len(refused) == len(tables):
            raise refused[tables[0].id]
        for table in tables:
            if table.id in refused:
                self._step(f"{table.shown} is not loaded, and goes on from its events: {refused[table.id]}")
        return [table for table in tables if table.id not in refused]

    def _refusal(self, table: MirroredTable, key: Sequence[str]) -> RequestRejected | None:
        try:
            self._merger.check_load(table, key)
        except RequestRejected as error:
            return error
        return None

    def _load(
        self, snapshot: Snapshot, table: MirroredTable, before: MirroredTable | None, below: Cut | None
    ) -> MirroredTable:
        """Load one table.

        The next run reads its topic from the cut below the snapshot, because retention may have deleted earlier events.
        """
        name = table.table
        key = list(snapshot.key(name))
        self._step(f"load {table.target}")
        with self._target.replacing(self._name, None if before is None else before.version):
            version = self._merger.load(table, snapshot.rows(name), snapshot.writer(name), key)
        offsets = ends_below(below, table.topic)
        columns = snapshot.writer(name).names
        return replace(table, key=key, offsets=offsets, loaded_lsn=snapshot.lsn, version=version, columns=columns)

    def _finish_planned(self, snapshot: Snapshot) -> None:
        """Finish a planned run, but skip the tables to load: they may be the ones that cannot be merged.

        A history that the load leaves as it is may have been merged by the plan: it is no such table.
        """
        _, planned = self._log.last()
        if planned is None:
            return
        self._replacing = frozenset(
            table.id
            for table in planned.tables
            if table.table in snapshot.tables and self._refusal(table, snapshot.key(table.table)) is None
        )
        try:
            self.run_once()
        finally:
            self._replacing = frozenset()

    # A run

    def _run(self) -> Run | None:
        """Carry out a run; returns it as published."""
        self._prepare()
        published, planned = self._log.last()
        if published is not None:
            self._log.show(published)  # another process may have died before it did
        is_fresh = planned is None
        if planned is None:
            planned = self._planner.plan(published, self._loaded)
            if planned is None:
                return None
            if not touched(planned, known_tables(published, self._loaded)):
                self._step(f"publish {planned.run}")
                done = replace(planned, state=PUBLISHED)
                self._publish(done)
                return done
            self._step(f"plan {planned.run}")
        elif any(t.id in self._loaded and t.loaded_lsn != self._loaded[t.id].loaded_lsn for t in planned.tables):
            raise Fenced(
                f"another process has begun a run of the mirror {self._name} while this process loaded its tables",
                "Stop the other process, repeat the load (cdcd spark snapshot), and start the other process again",
                code="mirror-fenced",
            )
        merged = self._merge(planned, published, is_fresh=is_fresh)
        done = replace(planned, state=PUBLISHED, tables=tuple(merged))
        self._step(f"publish {done.run}")
        self._publish(done)
        self._step(f"published {done.run}")
        return done

    def _prepare(self) -> None:
        if not self._is_prepared:
            self._log.create()
            self._is_prepared = True

    def _merge(self, planned: Run, published: Run | None, *, is_fresh: bool) -> list[MirroredTable]:
        """Carry out a plan: merge the tables that have new events, several at a time.

        `is_fresh`: this process has just made the plan, and writes it while it reads the events. A step that changes
        what others see waits until the plan is written. (Only a new table, which is empty, may appear before.) Nothing
        of the plan is done yet, unless another process has taken it over. The formats find that at the commit.
        """
        known = known_tables(published, self._loaded)
        changed = touched(planned, known)
        loads = {t.loaded_lsn for t in planned.tables if _starts_from_load(t, known.get(t.id))}
        below = {lsn: self._planner.cuts.below(lsn) for lsn in loads}
        tag = Tag(self._name, planned.token)
        written: Future[None] | None = None

        def wait_for_plan() -> None:
            if written is not None:
                written.result()

        def with_start(table: MirroredTable) -> tuple[MirroredTable, MirroredTable | None]:
            before = known.get(table.id)
            if _starts_from_load(table, before):  # an earlier process has loaded it
                before = replace(table, offsets=ends_below(below[table.loaded_lsn], table.topic))
            return table, before

        def one(work: tuple[MirroredTable, MirroredTable | None]) -> MirroredTable:
            table, before = work
            if table.id in self._replacing:
                return before or replace(table, offsets=[], version=None)
            if table.id not in changed or table.error is not None:
                return table
            try:
                return merged_or_refused(table, before)
            except Exception as error:  # raised again unless the table alone has it
                wait_for_plan()  # its own error comes first
                if self._is_merged(table.target, tag):
                    raise
                last = before or replace(table, key=None, offsets=[], version=None)
                return self._quarantine.put(last, error)

        def merged_or_refused(table: MirroredTable, before: MirroredTable | None) -> MirroredTable:
            exists = self._target.exists(table.target)
            if exists and (before is None or before.version is None) and not self._target.is_own(table.target):
                raise RequestRejected(
                    f"{table.target} is not a table of {self._target.using}",
                    "Drop it, or give the mirror's table another name: target in [[tables]]",
                    code="mirror-schema-changed",
                )
            seen = self._target.seen(table.target) if exists else None
            is_untouched = is_fresh and (seen is None or (before is not None and seen == before.version))
            if exists and not is_untouched and self._target.tagged(table.target, tag):
                return self._merger.merged_earlier(table, before)
            appended = exists and not is_untouched and self._target.appended(table.target, tag)
            self._check_target(table.target, before, seen, exists=exists)
            if before is not None and before.version is not None and not exists:
                self._merger.check_begins_anew(table, before)
                before = replace(before, version=None, columns=None)
            self._step(f"merge {table.target}")
            began = time.monotonic()
            merged = self._merger.merge(table, before, Attempt(tag, seen, appended, wait_for_plan))
            self._step(f"merged {table.target}")
            return replace(merged, seconds=round(time.monotonic() - began, 3))

        work = [with_start(table) for table in planned.tables]
        wanted = [(t, before) for t, before in work if t.id in changed - self._replacing and t.error is None]
        with self._target.tagging(tag), ThreadPoolExecutor(self._parallel) as pool:
            if is_fresh:
                written = pool.submit(self._log.write, planned)
            with self._merger.reading_together(wanted):
                merged = list(pool.map(one, work))
            wait_for_plan()
            return merged

    def _publish(self, run: Run) -> None:
        self._log.write(run)
        self._loaded = {}
        self._log.show(run)

    def _is_merged(self, target: str, tag: Tag) -> bool:
        of = self._target
        return of.exists(target) and of.is_own(target) and of.tagged(target, tag)

    def _check_target(self, target: str, before: MirroredTable | None, seen: int | None, *, exists: bool) -> None:
        """Raise RequestRejected if the target is not what the last run published: a MERGE would add to other rows.

        `seen`: its version; None, too, if it does not exist.
        """
        if before is None or before.version is None:
            if exists and not self._target.empty(target):
                raise RequestRejected(
                    f"{target} holds rows that no run of the mirror {self._name} has published",
                    "Drop it, or load it again with `cdcd spark snapshot`",
                    code="mirror-load-again",
                )
        elif exists and seen != before.version and self._target.replaced(target, self._name, before.version):
            raise RequestRejected(
                f"{target} was overwritten by a load that has not been published",
                "Wait for the end of that load. If it no longer runs, repeat it: cdcd spark snapshot",
                code="mirror-load-again",
            )


def _starts_from_load(planned: MirroredTable, known: MirroredTable | None) -> bool:
    """Whether the table's merge starts from a load that no known run has published."""
    return planned.loaded_lsn != 0 and (known is None or known.loaded_lsn != planned.loaded_lsn)
