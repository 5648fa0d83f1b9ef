"""A mirror's runs through failures, without a session: which merges are skipped, what a load leaves behind."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import Row, TimestampType

from cdcd.errors import Fenced, GapError, KafkaUnavailable, RequestRejected
from cdcd.manual import page
from cdcd.progress.records import SnapshotState, TableRecord
from cdcd.sink.topics import TopicNames
from cdcd.spark.arguments import TableList
from cdcd.spark.mirror.batch_schemas import batch_schemas
from cdcd.spark.mirror.batches import Batches, Work
from cdcd.spark.mirror.merge_sql import MergeSource, merge
from cdcd.spark.mirror.mirror import Mirror
from cdcd.spark.mirror.per_table import Kind, PerTable, TableOptions
from cdcd.spark.mirror.planner import Lag, MirrorPlace, Planner
from cdcd.spark.mirror.quarantine import Quarantine, TableErrors
from cdcd.spark.mirror.run_log import PLANNED, PUBLISHED, MirroredTable, Run, RunLog, parse_run
from cdcd.spark.mirror.table_merge import TableMerger
from cdcd.spark.mirror.table_write import Attempt
from cdcd.spark.mirror.targets.delta import Delta
from cdcd.spark.mirror.targets.iceberg import Iceberg
from cdcd.spark.mirror.targets.target import Files, Tag
from cdcd.spark.reading.cuts import Cut
from cdcd.spark.reading.writer_schemas import RegistryWriters
from cdcd.spark.state.key_bounds import Keys, keys_of_groups
from cdcd.spark.status import MirrorStatus, next_upkeep, upkeep_is_due

TOPIC = "p.public.t"


class Rows(list[Any]):
    def collect(self) -> Rows:
        return self


class Spark:
    """The part of a session that a mirror of Delta tables uses.

    Every commit takes the session's commitInfo.userMetadata, DDL too: DeltaSuite, "history includes user-defined
    metadata for SQL API"; OptimisticTransaction.commitImpl, getUserMetadata(op).
    """

    def __init__(self) -> None:
        self.set: dict[str, str] = {}
        self.conf = SimpleNamespace(
            set=self.set.__setitem__, unset=lambda name: self.set.pop(name, None), get=self.set.get
        )
        self.sparkContext = SimpleNamespace(defaultParallelism=2)
        self.catalog = SimpleNamespace(tableExists=lambda name: name in self.history)
        self.history: dict[str, Rows] = {}
        self._jvm = MagicMock()

    def table(self, name: str) -> Any:
        return SimpleNamespace(isEmpty=lambda: not {e["operation"] for e in self.history[name]} & {"MERGE", "WRITE"})

    def commit(self, table: str, operation: str) -> None:
        note = self.set.get("spark.databricks.delta.commitInfo.userMetadata")
        versions = self.history.setdefault(table, Rows())
        versions.insert(0, {"version": len(versions), "operation": operation, "userMetadata": note})

    def sql(self, statement: str) -> Any:
        if found := re.match(r"CREATE TABLE IF NOT EXISTS (\S+)", statement):
            if found[1] not in self.history:
                self.commit(found[1], "CREATE TABLE")
        elif found := re.match(r"ALTER TABLE (\S+) ADD COLUMNS", statement):
            self.commit(found[1], "ADD COLUMNS")
        elif found := re.match(r"DESCRIBE HISTORY (\S+) LIMIT (\d+)", statement):
            return Rows(self.history[found[1]][: int(found[2])])
        return Rows()


class WorldDelta(Delta):
    """Tables without a JVM."""

    def version(self, table: str) -> int:
        return len(self.spark.history[table]) - 1

    def _copied(self) -> Any:
        return self.spark


class MemoryRunLog(RunLog):
    """The table of runs, in memory: it outlives processes."""

    def __init__(self, rows: dict[int, Run]) -> None:
        self.rows = rows
        self.show = lambda _: None

    def create(self) -> None: ...

    def last(self) -> tuple[Run | None, Run | None]:
        newest = [self.rows[run] for run in sorted(self.rows, reverse=True)[:2]]
        planned = newest[0] if newest and newest[0].state == PLANNED else None
        return next((run for run in newest if run.state == PUBLISHED), None), planned

    def published(self, at_most: str) -> Run | None:
        assert at_most == "true"
        return self.last()[0]

    def write(self, run: Run) -> None:
        self.rows[run.run] = run


class World:
    """The things that outlive a process: the lake, the runs, the topics' newest cut. It also notes the merges."""

    def __init__(self) -> None:
        self.spark = Spark()
        self.rows: dict[int, Run] = {}
        self.cut = cut(lsn=100, position=10, offsets=(50,))
        self.newest: Cut | None = None
        """Kafka's newest cut, if `rows_max` lets a run reach `cut` only."""
        self.below: Cut | None = cut(lsn=90, position=9, offsets=(45,))
        self.merges: list[tuple[MirroredTable, MirroredTable | None]] = []
        self.fails: list[Exception] = []
        self.refuses_unloaded = False
        self.begins_anew = False
        """The events of the next plan begin with the daemon's new snapshot."""
        self.broken: set[str] = set()
        """The names of tables that cannot be merged."""
        self.histories: set[str] = set()
        """The targets that are histories, although they are of their tables' first kind."""
        self.while_a_load_waits: Callable[[], object] = lambda: None

    def process(
        self,
        patterns: Sequence[str] = ("*",),
        say: Callable[[str], None] = print,
        table_errors: TableErrors = "stop",
        clock: Callable[[], float] = time.monotonic,
        kinds: Sequence[Kind] = ("mirror",),
    ) -> Mirror:
        """A mirror that knows nothing, as in a new process."""
        cuts: Any = WorldCuts(self)
        target = WorldDelta(self.spark, {})
        per_table = PerTable([TableOptions("*", kind=kinds)])
        place = MirrorPlace("mirror", "lake.shop", TableList.of(patterns), per_table)
        quarantine = Quarantine(table_errors, say, clock)
        planner = Planner(cuts, TopicNames("p"), place, 1_000, say, quarantine)
        log, merger = MemoryRunLog(self.rows), WorldMerger(self, target)
        return Mirror("mirror", planner, log, merger, target, 2, print, quarantine)


class WorldCuts:
    """The cuts of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def at(self, *_: object) -> Cut:
        return self._world.newest or self._world.cut

    def within(self, *_: object) -> Cut:
        return (self._world.rows and self._world.newest) or self._world.cut

    def below(self, _: int) -> Cut | None:
        return self._world.below

    def wait_until(self, *_: object) -> None:
        self._world.while_a_load_waits()


class WorldMerger(TableMerger):
    """Makes the commits of a merge, without rows."""

    def __init__(self, world: World, target: Delta) -> None:
        writers: Any = SimpleNamespace(of=lambda *_: [SimpleNamespace(key=("id",))])
        super().__init__(Batches(None, writers, target.session_for_few), target, PerTable())  # type: ignore[arg-type]
        self._world = world

    def merge(self, plan: MirroredTable, before: MirroredTable | None, attempt: Attempt) -> MirroredTable:
        world = self._world
        Delta(world.spark, {}).create(plan.target, "id int")  # as TargetSchema.fit does
        if world.refuses_unloaded and not plan.loaded_lsn:
            raise RequestRejected("the key of public.t has changed", "Load it again", code="statement-refused")
        if world.fails:
            raise world.fails.pop(0)
        if plan.name in world.broken or plan.shown in world.broken:
            raise RequestRejected(f"{plan.table} has a bad column", "Rename it", code="mirror-schema-changed")
        world.merges.append((plan, before))
        world.spark.commit(plan.target, "MERGE")
        return replace(plan, key=["id"], version=len(world.spark.history[plan.target]) - 1, events=1)

    def reading_together(self, work: Sequence[Work]) -> AbstractContextManager[None]:
        return nullcontext()

    def check_load(self, plan: MirroredTable, key: Sequence[str]) -> None:
        history = self._world.spark.history.get(plan.target, Rows())
        is_history = plan.kind is not None or plan.target in self._world.histories
        if is_history and any(each["operation"] in ("MERGE", "WRITE") for each in history):
            raise RequestRejected(f"{plan.target} has a history", "Drop it", code="mirror-load-again")

    def check_begins_anew(self, plan: MirroredTable, before: MirroredTable) -> None:
        if not self._world.begins_anew:
            raise RequestRejected(f"{plan.target} was dropped", "Load it again", code="mirror-load-again")

    def _last_columns(self, plan: MirroredTable, before: MirroredTable | None) -> list[str]:
        return ["id"]

    def load(self, plan: MirroredTable, rows: Any, writer: Any, key: Any) -> int:
        self._world.spark.commit(plan.target, "WRITE")
        return len(self._world.spark.history[plan.target]) - 1


def cut(lsn: int, position: int, offsets: tuple[int, ...], slot: str = "s", done: bool = True) -> Cut:
    snapshot = SnapshotState(1, done, 0)
    record = TableRecord(slot, TOPIC, "public", "t", lsn, offsets, snapshot)
    return Cut(slot, lsn, lsn, lsn, position, {TOPIC: record})


def snapshot(lsn: int) -> Any:
    writer = SimpleNamespace(names=["id"])
    return SimpleNamespace(
        tables=["public.t"], lsn=lsn, rows=lambda _: None, writer=lambda _: writer, key=lambda _: ("id",)
    )


def test_a_table_that_was_only_created_is_not_taken_for_merged() -> None:
    world = World()
    world.fails = [KafkaUnavailable("Kafka is away", "", code="kafka-unavailable")]
    mirror = world.process()
    with pytest.raises(KafkaUnavailable):
        mirror.run_once()
    mirror.run_once()  # as `cdcd spark mirror` does 10 s later; or another process
    assert world.rows[1].state == PUBLISHED
    assert len(world.merges) == 1, "published without a MERGE"


def test_another_plan_of_the_same_number_is_merged() -> None:
    world = World()
    world.process().run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.process().run_once()
    del world.rows[2]  # the runs are restored to an earlier state, or a user removed a plan that cannot be done
    world.cut = cut(lsn=300, position=30, offsets=(95,))
    world.process().run_once()
    assert len(world.merges) == 3, "published without a MERGE"


def test_a_load_replaces_a_table_that_cannot_be_merged() -> None:
    world = World()
    world.process().run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.refuses_unloaded = True  # its key has changed
    with pytest.raises(RequestRejected):
        world.process().run_once()
    mirror = world.process()
    mirror.load(snapshot(150))  # the hint
    assert world.rows[max(world.rows)].tables[0].loaded_lsn == 150
    assert world.rows[max(world.rows)].state == PUBLISHED


def test_after_a_load_the_topic_is_not_read_from_its_start() -> None:
    world = World()
    world.process().load(snapshot(100))
    [(_, before)] = world.merges
    assert before is not None
    assert before.offsets == [45], "reads from offset 0, which retention has deleted"


def test_a_run_after_a_load_that_another_process_ends_starts_from_the_load() -> None:
    world = World()
    world.process().run_once()
    loaded = world.process()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.fails = [KafkaUnavailable("dies here", "", code="kafka-unavailable")]
    with pytest.raises(KafkaUnavailable):
        loaded.load(snapshot(100))
    world.process().run_once()
    _, before = world.merges[-1]
    assert before is not None
    assert (before.loaded_lsn, before.version) == (100, 2), f"base is version {before.version}, the one before the load"


def test_a_first_load_that_another_process_ends_is_not_read_from_the_topics_start() -> None:
    world = World()
    world.fails = [KafkaUnavailable("dies here", "", code="kafka-unavailable")]
    with pytest.raises(KafkaUnavailable):
        world.process().load(snapshot(100))
    world.process().run_once()
    [(_, before)] = world.merges
    assert before is not None
    assert before.offsets == [45], "reads from offset 0, which retention has deleted"


def test_events_at_the_published_lsn_are_merged() -> None:
    world = World()
    world.cut = cut(lsn=100, position=10, offsets=(50,), done=False)  # its snapshot runs
    world.process().run_once()
    world.cut = cut(lsn=100, position=11, offsets=(80,))  # its snapshot is done; nothing was committed meanwhile
    assert world.process().run_once() is not None
    assert world.merges


def test_topics_that_were_made_again_are_refused() -> None:
    world = World()
    world.process().run_once()
    world.cut = cut(lsn=300, position=2, offsets=(7,))
    with pytest.raises(GapError):
        world.process().run_once()


def test_a_topic_that_goes_back_is_refused() -> None:
    world = World()
    world.process().run_once()
    world.cut = cut(lsn=300, position=20, offsets=(7,))
    with pytest.raises(GapError):
        world.process().run_once()


def test_a_mirror_of_another_slot_is_refused() -> None:
    world = World()
    world.process().run_once()
    world.cut = cut(lsn=300, position=20, offsets=(70,), slot="other")
    with pytest.raises(RequestRejected):
        world.process().run_once()


def test_a_run_after_a_load_is_not_published_at_an_earlier_lsn() -> None:
    world = World()
    world.newest = cut(lsn=400, position=40, offsets=(90,))
    published = world.process().load(snapshot(300))  # rows_max allows no more than LSN 100
    assert published[0].run.lsn >= 300, f"LSN {published[0].run.lsn} is published, but the table was loaded at 300"


def test_a_statement_that_meets_another_jobs_commit_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    failures: list[str] = []
    tried: list[str] = []

    def sql(statement: str) -> None:
        tried.append(statement)
        if failures:
            raise ValueError(failures.pop(0))

    said: list[str] = []
    target = Delta(SimpleNamespace(sql=sql), {}, said.append)
    failures = ["ValidationException: Missing required files to delete\n\tat x", "[DELTA_CONCURRENT_APPEND] x"]
    target.commit("lake.s.t", "MERGE")
    assert len(tried) == 3
    again = "lake.s.t has another job's commit, so the change begins again in"
    assert said == [
        f"{again} 0.5 s: ValidationException: Missing required files to delete",
        f"{again} 2 s: [DELTA_CONCURRENT_APPEND] x",
    ]
    failures = ["[DELTA_METADATA_CHANGED] MetadataChangedException: changed by a concurrent update"]
    target.commit("lake.s.t", "MERGE")
    assert len(tried) == 5
    failures = ["no such column", "ValidationException"]
    with pytest.raises(ValueError, match="no such column"):
        target.commit("lake.s.t", "MERGE")
    failures = ["CommitFailedException"] * 9
    with pytest.raises(ValueError, match="CommitFailed"):
        target.commit("lake.s.t", "MERGE")
    assert len(failures) == 4, "it gives up some day"


class History:
    """Of a table: what the metadata queries of a format collect."""

    def __init__(self, *rows: tuple[object, ...], names: Sequence[str]) -> None:
        self.rows = [dict(zip(names, row, strict=True)) for row in rows]

    def sql(self, _: str) -> History:
        return self

    def collect(self) -> list[dict[str, object]]:
        return self.rows


class HistoryIceberg(Iceberg):
    """A table without a JVM."""

    def version(self, table: str) -> int:
        return int(self.spark.rows[-1]["snapshot_id"])

    def _was_rewritten(self, *_: object) -> bool:
        return False


PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
DELTA, ICEBERG = ("version", "operation"), ("snapshot_id", "parent_id", "operation")


@pytest.mark.parametrize(
    ("later", "readable"),
    [
        ([], 5),
        ([(6, "OPTIMIZE")], 5),
        ([(6, "OPTIMIZE"), (7, "VACUUM START"), (8, "VACUUM END")], 8),
        ([(6, "MERGE"), (7, "VACUUM START"), (8, "VACUUM END")], 5),
        ([(7, "VACUUM START"), (8, "VACUUM END")], 5),  # the history does not go back to version 6
    ],
)
def test_a_version_that_vacuum_may_have_removed_is_read_from_one_with_its_rows(later: Any, readable: int) -> None:
    history: Any = History(*later, (5, "MERGE"), names=DELTA)
    assert Delta(history, {}).readable("t", 5) == readable


@pytest.mark.parametrize(("said", "tasks"), [("10000", "8"), ("3", "3")])
def test_vacuum_has_no_more_tasks_than_the_cores_are_good_for(said: str, tasks: str) -> None:
    options, listed = {PARALLELISM: said}, []

    def sql(statement: str) -> Rows:
        listed.append((statement, options[PARALLELISM]))
        return Rows()

    conf = SimpleNamespace(get=options.__getitem__, set=options.__setitem__)
    session: Any = SimpleNamespace(sql=sql, conf=conf, sparkContext=SimpleNamespace(defaultParallelism=2))
    Delta(session, {}).remove_old_files("t", datetime.now(UTC))
    assert listed == [("VACUUM t RETAIN 168 HOURS", tasks)]
    assert options == {PARALLELISM: said}


DAY = timedelta(days=1)


class BranchlessIceberg(Iceberg):
    """Iceberg without the branches that no Spark is there for."""

    def _remove_branches(self, table: str, older_than: datetime) -> None: ...


@pytest.mark.parametrize(("made", "expire"), [([9 * DAY], 9 * DAY), ([2 * DAY], 7 * DAY), ([], 7 * DAY)])
def test_a_snapshot_that_a_young_run_names_does_not_expire_however_old_it_is(made: Any, expire: timedelta) -> None:
    now = datetime(2026, 11, 27, tzinfo=UTC)
    said: list[str] = []

    def sql(statement: str) -> Rows:
        said.append(statement)
        return Rows({"committed_at": now - each} for each in made)

    BranchlessIceberg(SimpleNamespace(sql=sql), {}).remove_old_files("ice.s.t", now - 7 * DAY, 5)
    assert "ice.s.t.snapshots WHERE snapshot_id = 5" in said[0]
    since = f"older_than => timestamp_ltz '{now - expire:%Y-%m-%d %H:%M:%S}Z'"
    assert said[1] == f"CALL ice.system.expire_snapshots(table => 's.t', {since})"


@pytest.mark.parametrize(
    ("snapshots", "readable"),
    [
        ([(5, None, "append"), (6, 5, "replace")], 5),
        ([(6, 5, "replace")], 6),
        ([(6, 5, "replace"), (7, 6, "replace")], 7),
        ([(6, 5, "overwrite"), (7, 6, "replace")], None),
        ([(7, 6, "replace")], None),
    ],
)
def test_a_snapshot_that_has_expired_is_read_from_one_with_its_rows_or_refused(snapshots: Any, readable: int) -> None:
    target = HistoryIceberg(History(*snapshots, names=ICEBERG), {})
    if readable is not None:
        assert target.readable("t", 5) == readable
    else:
        with pytest.raises(GapError, match="t no longer has the snapshot 5, which a run has published"):
            target.readable("t", 5)


def two_tables(lsn: int, position: int, good: int, bad: int, name: str = "bad") -> Cut:
    tables = [("t", good), (name, bad)]
    records = {
        f"p.public.{each}": TableRecord("s", f"p.public.{each}", "public", each, lsn, (end,), SnapshotState(1, True, 0))
        for each, end in tables
    }
    return Cut("s", lsn, lsn, lsn, position, records)


def test_one_bad_table_is_in_quarantine_until_it_is_cured_and_the_others_go_on() -> None:
    world, now, said = World(), 0.0, list[str]()
    world.cut = two_tables(lsn=100, position=10, good=50, bad=50)
    mirror = world.process(say=said.append, table_errors="quarantine", clock=lambda: now)
    mirror.run_once()
    world.broken, world.cut = {"bad"}, two_tables(lsn=200, position=20, good=60, bad=60)
    mirror.run_once()
    error = "public.bad has a bad column. Rename it [mirror-schema-changed]"
    assert mirror.published().quarantined == {"public.bad": error}
    assert said[-1].endswith(f"public.bad is in quarantine, and the other tables go on without it: {error}")
    tables = world.rows[2].by_id()
    assert (tables["p.public.t"].offsets, tables["p.public.bad"].offsets) == ([60], [50])
    assert (tables["p.public.t"].version, tables["p.public.bad"].version) == (2, 1)
    tried = len(world.merges)
    assert mirror.run_once() is None, "it is not tried again for a while"
    world.cut = two_tables(lsn=300, position=30, good=70, bad=70)
    mirror.run_once()
    assert (len(world.merges), mirror.published().quarantined) == (tried + 1, {"public.bad": error})
    now = 31.0
    assert mirror.run_once() is not None, "nothing is new, but the table may be cured"
    assert mirror.published().quarantined == {"public.bad": error}
    now = 62.0
    assert mirror.run_once() is None, "the second pause is longer"
    now, world.broken = 92.0, set()
    mirror.run_once()
    assert mirror.published().quarantined == {}
    (_, before) = world.merges[-1]
    assert before is not None
    assert (before.offsets, mirror.published().by_id()["p.public.bad"].offsets) == ([50], [70])
    assert mirror.run_once() is None


def test_a_table_in_quarantine_is_tried_at_once_by_a_new_process_and_by_the_process_that_ends_its_run() -> None:
    world = World()
    world.cut = two_tables(lsn=100, position=10, good=50, bad=50)
    world.broken = {"bad"}
    world.process(table_errors="quarantine").run_once()
    assert world.rows[1].by_id()["p.public.bad"].offsets == [], "it was never published"
    world.broken = set()
    world.fails = [KafkaUnavailable("dies here", "", code="kafka-unavailable")]
    with pytest.raises(KafkaUnavailable):
        world.process(table_errors="quarantine").run_once()
    assert world.rows[2].state == PLANNED
    done = world.process(table_errors="quarantine").run_once()
    assert done is not None
    assert done.run.quarantined == {}


def test_a_table_of_several_kinds_is_a_table_in_the_lake_for_each() -> None:
    world = World()
    world.process().run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    mirror = world.process(kinds=["mirror", "changelog", "scd2"], table_errors="quarantine")
    mirror.run_once()
    names = {each.shown: each.target for each in mirror.published().tables}
    assert names == {
        "public.t": "lake.shop.`public_t`",
        "public.t as changelog": "lake.shop.`public_t_changelog`",
        "public.t as scd2": "lake.shop.`public_t_scd2`",
    }
    starts = {plan.kind: before and before.offsets for plan, before in world.merges[1:]}
    assert starts == {None: [50], "changelog": None, "scd2": None}, "a new kind begins with the topic"
    world.broken, world.cut = {"public.t as scd2"}, cut(lsn=300, position=30, offsets=(95,))
    mirror.run_once()
    assert list(mirror.published().quarantined) == ["public.t as scd2"]
    assert [each.offsets for each in mirror.published().tables] == [[95], [95], [90]]
    assert mirror.lag().events == 5, "of the table that is furthest behind"
    assert set(mirror.as_of()) == {"public.t", "public.t as changelog"}
    world.broken = set()
    world.process(kinds=["mirror", "changelog", "scd2"]).run_once()
    assert [each.offsets for each in world.rows[4].tables] == [[95]] * 3
    world.cut = cut(lsn=400, position=40, offsets=(97,))
    mirror = world.process(kinds=["mirror", "scd2"])
    mirror.load(snapshot(350))
    loaded = {each.shown: each.loaded_lsn for each in mirror.published().tables}
    assert loaded == {"public.t": 350, "public.t as scd2": 0}, "a load does not overwrite a history"
    starts = {plan.kind: before and before.offsets for plan, before in world.merges[-2:]}
    assert starts == {None: [45], "scd2": [95]}


def test_a_load_that_is_refused_has_finished_the_plan_that_an_earlier_process_has_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.histories = {"lake.shop.`public_t`"}
    world.process(kinds=["changelog"]).run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    mirror = world.process(kinds=["changelog"])

    def die(_: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(mirror, "_publish", die)
    with pytest.raises(KeyboardInterrupt):
        mirror.run_once()
    assert (world.rows[2].state, len(world.merges)) == (PLANNED, 2)
    mirror = world.process(kinds=["changelog", "scd2"])
    mirror.load(snapshot(150))  # begins the new kind
    loaded = {each.shown: (each.offsets, each.loaded_lsn) for each in mirror.published().tables}
    assert loaded == {"public.t": ([90], 0), "public.t as scd2": ([90], 150)}
    assert [plan.shown for plan, _ in world.merges[2:]] == ["public.t as scd2"], "no event comes twice"
    with pytest.raises(RequestRejected, match="has a history"):
        world.process(kinds=["changelog", "scd2"]).load(snapshot(150))


def test_a_load_checks_all_tables_before_it_overwrites_one() -> None:
    world = World()
    world.cut = two_tables(lsn=100, position=10, good=50, bad=50)
    world.process().run_once()
    world.histories = {"lake.shop.`public_bad`"}
    both = snapshot(150)
    both.tables = ["public.t", "public.bad"]
    with pytest.raises(RequestRejected, match="has a history"):
        world.process().load(both)
    assert all(each["operation"] != "WRITE" for each in world.spark.history["lake.shop.`public_t`"])


def test_a_kind_that_a_new_process_adds_is_planned_though_nothing_is_new() -> None:
    world = World()
    world.process().run_once()
    assert world.process().run_once() is None
    mirror = world.process(kinds=["mirror", "changelog"])
    assert mirror.run_once() is not None
    assert [each.offsets for each in mirror.published().tables] == [[50], [50]]
    assert mirror.run_once() is None


def test_a_load_finishes_the_plan_of_a_history_that_it_does_not_replace() -> None:
    world = World()
    world.process(kinds=["mirror", "scd2"]).run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.fails = [KafkaUnavailable("dies here", "", code="kafka-unavailable")] * 2
    with pytest.raises(KafkaUnavailable):
        world.process(kinds=["mirror", "scd2"]).run_once()
    world.fails = []
    merged = len(world.merges)
    world.process(kinds=["mirror", "scd2"]).load(snapshot(150))
    assert [plan.shown for plan, _ in world.merges[merged:]] == ["public.t as scd2", "public.t"]
    assert [each.offsets for each in world.rows[max(world.rows)].tables] == [[90], [90]]


def test_what_is_not_of_one_table_stops_all() -> None:
    for error in (
        Fenced("f", code="mirror-fenced"),
        KafkaUnavailable("k", code="kafka-unavailable"),
        ZeroDivisionError(),
    ):
        world = World()
        world.fails = [error]
        with pytest.raises(type(error)):
            world.process(table_errors="quarantine").run_once()
        assert world.rows[1].state == PLANNED


@pytest.mark.parametrize(
    "gone", ["[FAILED_READ_FILE.FILE_NOT_EXIST] f", "org.apache.iceberg.exceptions.NotFoundException"]
)
def test_a_table_whose_published_files_are_gone_is_in_quarantine_with_the_cure(gone: str) -> None:
    world = World()
    mirror = world.process(table_errors="quarantine")
    mirror.run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.fails = [RuntimeError(f"An error occurred while calling o7.count.\n: {gone}")]
    mirror.run_once()
    error = mirror.published().quarantined["public.t"]
    assert error.startswith("lake.shop.`public_t` no longer has the files of version 1, which a run has published")
    assert "load the table again with `cdcd spark snapshot`" in error


def test_a_table_whose_merge_is_done_is_not_put_into_quarantine() -> None:
    world = World()
    mirror = world.process(table_errors="quarantine")
    merge = mirror._merger.merge

    def fails_after(plan: MirroredTable, before: MirroredTable | None, attempt: Attempt) -> MirroredTable:
        merge(plan, before, attempt)
        raise GapError("the end", code="mirror-load-again")

    mirror._merger.merge = fails_after  # type: ignore[method-assign]
    with pytest.raises(GapError):
        mirror.run_once()
    assert world.process().run_once() is not None
    assert len(world.merges) == 1, "the next process finds it merged"


@pytest.mark.parametrize("came_first", ["t", "T"])
def test_of_two_tables_of_one_name_in_the_lake_the_one_that_is_there_goes_on(came_first: str) -> None:
    world = World()
    if came_first == "T":
        world.cut = two_tables(lsn=50, position=5, good=0, bad=50, name="T")
        del world.cut.tables["p.public.t"]  # type: ignore[attr-defined]
        world.process().run_once()
    world.cut = two_tables(lsn=100, position=10, good=50, bad=60, name="T")
    mirror = world.process(table_errors="quarantine")
    mirror.run_once()
    [(name, error)] = mirror.published().quarantined.items()
    assert name == {"t": "public.T", "T": "public.t"}[came_first]
    assert error.startswith(f"public.{came_first} and {name} would both become lake.shop.`public_t`")


def test_the_status_tells_the_last_run_its_files_and_the_tables_in_quarantine() -> None:
    tables = (
        MirroredTable(TOPIC, "public", "t", "lake.`public_t`", ["id"], [1], 0, 3, ["id"], events=1234, seconds=2.05),
        MirroredTable("p.public.u", "public", "u", "lake.`public_u`", None, [], 0, None, None, "it is bad"),
    )
    run = Run("mirror", 7, PUBLISHED, "s", 36896080, 1, 1, 1, tables)
    planned = datetime(2026, 11, 29, 21, 5, 3, tzinfo=UTC)
    times = {PLANNED: planned, PUBLISHED: planned + timedelta(seconds=2.5)}
    status = MirrorStatus(run, Lag(10, 2000, 1.5), times, {TOPIC: Files(12, 3_000_000)}, 5)
    assert status.as_text().splitlines() == [
        "mirror: run 7, published at 0/232FD50",
        "behind the topics: 2,000 events, 10 bytes of WAL, 1.5 s",
        "last run: 1,234 events of 1 table in 2.5 s, published 2026-11-29 21:05:05 UTC",
        "next upkeep: after run 10",
        "table     in the lake      state          events  seconds  files     size",
        "public.t  lake.`public_t`  published       1,234      2.0     12  2.9 MiB",
        "public.u  lake.`public_u`  IN QUARANTINE",
        "public.u is in quarantine: it is bad",
    ]
    found = json.loads(status.as_json())
    assert [each["quarantine"] for each in found["tables"]] == [None, "it is bad"]
    assert (found["lsn"], found["lag_events"], found["next_upkeep_run"]) == ("0/232FD50", 2000, 10)
    assert found["planned_at"] == "2026-11-29T21:05:03+00:00"
    assert found["tables"][0] | {"events": 1234, "seconds": 2.05, "files": 12, "bytes": 3_000_000} == found["tables"][0]
    idle = MirrorStatus(replace(run, tables=tables[1:]), Lag(0, 0, 0.0)).as_text()
    assert "last run: 0 events of 0 tables\nnext upkeep: never\n" in idle


def test_the_status_on_the_page() -> None:
    def table(name: str, events: int | None, seconds: float | None) -> MirroredTable:
        target = f"spark_catalog.shop.`public_{name}`"
        return MirroredTable(f"shop.{name}", "public", name, target, ["id"], [1], 0, 3, events=events, seconds=seconds)

    tables = table("orders", 750_000, 3.12), table("items", None, None)
    run = Run("mirror", 42, PUBLISHED, "s", 0x232FD50, 1, 1, 1, tables)
    published = datetime(2026, 11, 29, 21, 5, 6, tzinfo=UTC)
    times = {PLANNED: published - timedelta(seconds=3.4), PUBLISHED: published}
    files = {"shop.orders": Files(12, 94_800_000), "shop.items": Files(1, 3_600)}
    status = MirrorStatus(run, Lag(0, 0, 0.0), times, files, 100).as_text()
    assert f"```text\n{status}\n```\n" in page("spark"), f"the right text:\n\n{status}"


@pytest.mark.parametrize(("run", "due", "after"), [(99, False, 100), (100, True, 200), (101, False, 200)])
def test_the_upkeep_follows_each_hundredth_run(run: int, due: bool, after: int) -> None:
    one = Run("mirror", run, PUBLISHED, "s", 1, 1, 1, 1, ())
    assert (upkeep_is_due(one, 100), next_upkeep(one, 100)) == (due, after)
    assert (upkeep_is_due(one, 0), next_upkeep(one, 0)) == (False, None)


def test_patterns_that_match_nothing_are_named_and_publish_no_empty_run() -> None:
    world = World()
    with pytest.raises(RequestRejected, match=r"matches public\.tt \(did you mean public\.t\?\)"):
        world.process(("public.tt",)).run_once()
    with pytest.raises(RequestRejected, match=r"matches public\.\*, !\*\.t\. Write"):
        world.process(("public.*", "!*.t")).run_once()
    assert world.rows == {}
    said: list[str] = []
    mirror = world.process(("public.t", "sales.*"), said.append)
    mirror.run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    mirror.run_once()
    assert [line for line in said if "matches" in line] == ["no table with a topic matches sales.*"]


def test_a_target_that_was_dropped_is_refused() -> None:
    world = World()
    world.process().run_once()
    world.spark.history.clear()  # DROP TABLE
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    with pytest.raises(RequestRejected):
        world.process().run_once()
    world.begins_anew = True  # the daemon has copied the table again
    assert world.process().run_once() is not None
    (plan, before) = world.merges[-1]
    assert before is not None
    assert (before.version, before.offsets, plan.offsets) == (None, [50], [90])


def test_a_target_with_rows_that_no_run_knows_of_is_refused() -> None:
    world = World()
    world.process().run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.process(patterns=()).run_once()  # its pattern is taken out
    world.cut = cut(lsn=300, position=30, offsets=(95,))  # and put in again
    with pytest.raises(RequestRejected):
        world.process().run_once()


def test_an_unpublished_load_is_named_and_can_be_repeated() -> None:
    world = World()
    world.process().run_once()
    world.while_a_load_waits = lambda: 1 / 0  # it has overwritten the table
    with pytest.raises(ZeroDivisionError):
        world.process().load(snapshot(100))
    world.while_a_load_waits = lambda: None
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    with pytest.raises(RequestRejected, match="was overwritten by a load that has not been published"):
        world.process().run_once()
    world.process().load(snapshot(150))
    world.cut = cut(lsn=300, position=30, offsets=(95,))
    world.process().run_once()
    assert world.rows[max(world.rows)].tables[0].loaded_lsn == 150


def test_a_run_that_another_process_began_during_a_load_is_not_finished_on_the_loaded_tables() -> None:
    world = World()
    world.process().run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    loading, job = world.process(), world.process()

    def job_runs() -> None:
        with pytest.raises(RequestRejected, match="was overwritten by a load"):
            job.run_once()  # its plan stays

    world.while_a_load_waits = job_runs
    with pytest.raises(Fenced, match="while this process loaded its tables"):
        loading.load(snapshot(150))
    assert len(world.merges) == 1, "events from below the load's LSN were merged into it"
    world.while_a_load_waits = lambda: None
    loading.load(snapshot(160))
    last = world.rows[max(world.rows)]
    assert (last.state, last.tables[0].loaded_lsn) == (PUBLISHED, 160)


def test_a_load_of_an_idle_database_is_published_once() -> None:
    world = World()
    world.below = world.cut
    mirror = world.process()
    assert len(mirror.load(snapshot(100))) == 1
    assert mirror.run_once() is None


def test_the_key_of_a_table_that_was_only_truncated_is_asked_for() -> None:
    columns = [{"name": "id", "type": "int", "pg_type": "integer"}]
    row = {"type": "record", "name": "Row", "fields": columns}
    before = [{"name": "before", "type": ["null", row]}]
    envelope = json.dumps({"type": "record", "name": "Envelope", "namespace": "p.public.t", "fields": before})
    key = json.dumps({"type": "record", "name": "Key", "namespace": "p.public.t", "fields": columns})

    def version(name: str, _: int) -> Any:
        is_key = name.endswith("-key")
        schema = SimpleNamespace(schema_str=key if is_key else envelope)
        return SimpleNamespace(schema_id=8 if is_key else 7, schema=schema)

    client = SimpleNamespace(get_versions=lambda _: [1], get_version=version)
    plan = MirroredTable(TOPIC, "public", "t", "t", None, [1], 0, None)
    _, found = batch_schemas(RegistryWriters(client, ""), [b"\0\0\0\0\x07"], [], plan, None, lambda _: None)
    assert found == ["id"], "taken for a table without a key"


def test_a_merge_names_the_bounds_of_its_keys_so_that_other_files_are_not_read() -> None:
    key = ["id", "name", "price", "day"]
    known = {
        "id": (-3, 9),
        "name": ("", "o'neil \\"),
        "price": (Decimal("1E+3"), Decimal("0.10")),
        "day": (date(1, 1, 1), date(9999, 12, 31)),
    }
    statement = merge("t", MergeSource("s", key, ["name"], [*key, "v"], bounds=known), deletes="hard")
    assert statement.splitlines()[0] == (
        "MERGE INTO t t USING s s ON t.`id` BETWEEN -4 AND 9 AND t.`name` BETWEEN '' AND 'o\U0010ffff' AND "
        "t.`price` BETWEEN 1000BD AND 0.10BD AND t.`day` BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' AND "
        "t.`id` = s.`id` AND t.`name` <=> s.`name` AND t._unrepresentable['name'] <=> s._unrepresentable['name'] AND "
        "t.`price` = s.`price` AND t.`day` = s.`day`"
    )


@pytest.mark.parametrize(
    ("low", "high", "wide"),
    [
        (5, 5, "5 AND 5"),
        (90_001, 240_000, "65536 AND 262143"),
        (90_444, 239_000, "65536 AND 262143"),
        (-(2**31), 2**31 - 1, "-2147483648 AND 2147483647"),
        (2**63 - 3, 2**63 - 1, "9223372036854775805 AND 9223372036854775807"),
    ],
)
def test_whole_bounds_are_a_little_wider_so_that_many_runs_have_the_same(low: int, high: int, wide: str) -> None:
    source = MergeSource("s", ["id"], [], ["id"], bounds={"id": (low, high)})
    assert f"ON t.`id` BETWEEN {wide} AND t.`id` = s.`id`" in merge("t", source, deletes="hard")


def test_a_column_that_is_null_in_some_row_or_too_long_has_no_bounds() -> None:
    first, second = [1, 5, 2, "x", "x", 2, None, None, 0], [0, 3, 3, "w" * 201, "y", 3, 7, 8, 3]
    names = ["a", "b", "c"]
    assert keys_of_groups(names, [(2, first), (3, second)]) == Keys(5, {"a": (0, 5)})
    assert keys_of_groups(names, [(2, first)]) == Keys(2, {"a": (1, 5), "b": ("x", "x")})
    assert keys_of_groups(names, []) == Keys(0, {})


def test_keys_of_two_groups_have_the_bounds_that_both_have() -> None:
    some, others = Keys(2, {"id": (3, 5), "v": ("a", "b")}), Keys(1, {"id": (4, 9)})
    assert some | others == Keys(3, {"id": (3, 9)})
    assert some | Keys(0, {}) == Keys(0, {}) | some == some


def test_rows_come_back_in_a_table_that_had_soft_deletes() -> None:
    source = MergeSource("s", ["id"], [], ["id", "v"])
    hard = merge("t", source, deletes="hard", has_deleted_column=True)
    assert hard.count("_is_deleted") == 2, "set in an update, and in an insert"
    assert "t.`_is_deleted` = false" in hard
    assert "THEN DELETE" in hard
    assert "_is_deleted" not in merge("t", source, deletes="hard")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_a_run_is_read_back_with_its_time_in_any_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Run("mirror", 1, PUBLISHED, "cdcd", 100, 90, 1_762_061_400_123_456, 10, ())
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        collected = TimestampType().fromInternal(written.commit_ts)  # as `collect` gives it
        assert parse_run(Row(**asdict(written) | {"commit_ts": collected})) == written
    finally:
        monkeypatch.undo()
        time.tzset()


def test_tables_whose_joined_names_are_equal_stay_two_tables() -> None:
    here, there = ("a.b", "c"), ("a", "b.c")
    names = TopicNames("p")
    records = {
        names.topic(*table): TableRecord("s", names.topic(*table), *table, 1, (5,), SnapshotState(1, True, 0))
        for table in (here, there)
    }
    cut = Cut("s", 1, 1, 1, 1, records)
    assert list(cut.matching(("*",))) == ['"a.b".c', 'a."b.c"']
    assert cut.topic('"a.b".c') == names.topic(*here)
    assert cut.topic('a."b.c"') == names.topic(*there)
    place, quarantine = MirrorPlace("mirror", "lake.shop", TableList.of("*")), Quarantine("stop", print)
    planner = Planner(World(), names, place, 1_000, print, quarantine)  # type: ignore[arg-type]
    for name, record in cut.matching(("*",)).items():
        for below in (None, cut):
            [loaded] = planner.tables_to_load(name, below)
            assert (loaded.topic, loaded.schema, loaded.name) == (record.topic, record.schema, record.table)
            assert loaded.table == name


def test_a_table_that_a_setting_has_moved_is_read_where_the_records_say_or_refused_while_it_has_two_topics() -> None:
    records = {
        topic: TableRecord("s", topic, "public", "t", 1, (5,), SnapshotState(1, True, 0))
        for topic in ("p.old", "p.new")
    }
    place, quarantine = MirrorPlace("mirror", "lake.shop", TableList.of("*")), Quarantine("stop", print)
    planner = Planner(World(), TopicNames("p"), place, 1_000, print, quarantine)  # type: ignore[arg-type]
    moved = Cut("s", 1, 1, 1, 1, {"p.new": records["p.new"]})
    assert (moved.topic("public.t"), planner.tables_to_load("public.t", moved)[0].topic) == ("p.new", "p.new")
    both = Cut("s", 1, 1, 1, 1, records)
    for ask in (lambda: both.topic("public.t"), lambda: both.matching(("*",))):
        with pytest.raises(RequestRejected, match=r"has had two topics, p\.old and p\.new"):
            ask()
    assert both.matching(("other.*",)) == {}


def test_a_table_of_runs_that_was_put_back_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = dict.fromkeys((3, 4, 5), PUBLISHED)
    log = RunLog(Delta(SimpleNamespace(), {}), "lake.shop", "mirror", lambda _: None)
    monkeypatch.setattr(log._target, "version", lambda _: hash(tuple(rows.items())))

    def newest(condition: str) -> list[Row]:
        least = int(condition.removeprefix("run >= ")) if condition != "true" else 0
        found = [
            Run("mirror", run, rows[run], "s", 9, 9, 0, 9, ()) for run in sorted(rows, reverse=True) if run >= least
        ]
        return [Row(**asdict(run) | {"commit_ts": None}) for run in found[:2]]

    monkeypatch.setattr(log, "_newest", newest)

    def last() -> list[int | None]:
        return [None if run is None else run.run for run in log.last()]

    assert last() == [5, None]
    rows[6] = PLANNED
    assert last() == [5, 6]
    del rows[4], rows[6]
    rows[5] = PLANNED  # published 3, and another process has planned since
    assert last() == [3, 5]
    del rows[5]
    assert last() == [3, None]


def test_an_append_to_iceberg_is_done_again_after_a_commit_that_failed_and_not_after_other_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cdcd.spark.mirror.targets.target.time.sleep", lambda _: None)
    monkeypatch.setattr("cdcd.spark.mirror.targets.iceberg.f", SimpleNamespace(lit=lambda value: value))
    fails = ["CommitFailedException: base metadata location is not the current one"] * 2
    made: list[dict[str, str]] = []

    class Written:
        def writeTo(self, _: str) -> Written:  # noqa: N802  # as PySpark calls it
            return self

        def options(self, **options: str) -> Written:
            self.given = options
            return self

        def overwrite(self, _: bool) -> None:
            if fails:
                raise RuntimeError(fails.pop())
            made.append(self.given)

    target, rows = Iceberg(SimpleNamespace(), {}), Written()
    target.append("lake.t", rows, Tag("m", "token"), 7)
    assert made == [{"isolation-level": "serializable", "validate-from-snapshot-id": "7"}]
    fails = ["ValidationException: Found conflicting files that can contain rows matching false"] * 2
    with pytest.raises(RuntimeError, match="conflicting files"):
        target.append("lake.t", rows, Tag("m", "token"), 7)
    assert (len(fails), len(made)) == (1, 1)
