"""A mirror's runs through failures, without a session: what is taken for done, what a load leaves, what is skipped."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import Row, TimestampType

from cdcd.errors import Fenced, GapError, KafkaUnavailable, RequestRejected
from cdcd.progress.records import SnapshotState, TableRecord
from cdcd.sink.topics import TopicNames
from cdcd.spark.mirror import mirror as mirrors
from cdcd.spark.mirror import run_log
from cdcd.spark.mirror.run_log import PLANNED, PUBLISHED, MirroredTable, Run
from cdcd.spark.mirror.table_merge import Applied
from cdcd.spark.mirror.targets.delta import Delta
from cdcd.spark.reading.cuts import Cut

TOPIC = "p.public.t"


class Rows(list):
    def where(self, condition: str) -> Rows:
        wanted = dict(re.findall(r"(\w+) = '([^']*)'", condition))
        return Rows(row for row in self if all(row[name] == value for name, value in wanted.items()))

    def first(self) -> Any:
        return self[0] if self else None

    def count(self) -> int:  # type: ignore[override]
        return len(self)


class Spark:
    """As much of a session as a mirror of Delta tables asks for.

    Every commit takes the session's commitInfo.userMetadata, DDL too: DeltaSuite, "history includes user-defined
    metadata for SQL API"; OptimisticTransaction.commitImpl, getUserMetadata(op).
    """

    def __init__(self) -> None:
        self.set: dict[str, str] = {}
        self.conf = SimpleNamespace(set=self.set.__setitem__, unset=lambda name: self.set.pop(name, None))
        self.catalog = SimpleNamespace(tableExists=lambda name: name in self.history)
        self.history: dict[str, Rows] = {}

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


class MemoryRuns:
    """The table of runs, in memory: it outlives processes."""

    def __init__(self, rows: dict[int, Run]) -> None:
        self.rows = rows

    def create(self) -> None: ...

    def last(self) -> tuple[Run | None, Run | None]:
        newest = [self.rows[run] for run in sorted(self.rows, reverse=True)[:2]]
        planned = newest[0] if newest and newest[0].state == PLANNED else None
        return next((run for run in newest if run.state == PUBLISHED), None), planned

    def write(self, run: Run) -> None:
        self.rows[run.run] = run


class World:
    """What outlives processes: the lake, the runs, the topics' newest cut; and what was merged from where."""

    def __init__(self) -> None:
        self.spark = Spark()
        self.rows: dict[int, Run] = {}
        self.cut = cut(lsn=100, position=10, offsets=(50,))
        self.newest: Cut | None = None
        """Where `cut` is what rows_max allows."""
        self.below: Cut | None = cut(lsn=90, position=9, offsets=(45,))
        self.merges: list[tuple[MirroredTable, MirroredTable | None]] = []
        self.fails: list[Exception] = []
        self.refuses_unloaded = False
        self.writers = SimpleNamespace(of=lambda *_: [SimpleNamespace(key=("id",))])

    def process(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A mirror that knows nothing, as in a new process."""
        monkeypatch.setattr(mirrors, "Runs", lambda *_: MemoryRuns(self.rows))
        names = TopicNames("p")
        cdc = SimpleNamespace(spark=self.spark, kafka=None, writers=self.writers, names=names)
        cdc.progress = SimpleNamespace(
            within=lambda *_: (self.rows and self.newest) or self.cut, at=lambda *_: self.newest or self.cut
        )
        cdc.cut = lambda *_: self.newest or self.cut
        cdc.cut_below = lambda _: self.below
        cdc.tables = lambda _, of: {f"{r.schema}.{r.table}": r for r in of.tables.values()}
        made = mirrors.Mirror(cdc, ["*"], "lake.shop", "delta")
        made._applier = SimpleNamespace(apply=self.apply, load=self.load)
        return made

    def apply(self, plan: MirroredTable, before: MirroredTable | None, token: str) -> Applied:
        Delta(self.spark, {}).create(plan.target, "id int")  # as _evolve does, within `tagging`
        if self.refuses_unloaded and not plan.loaded_lsn:
            raise RequestRejected("the key of public.t has changed", "Load it anew")
        if self.fails:
            raise self.fails.pop(0)
        self.merges.append((plan, before))
        self.spark.commit(plan.target, "MERGE")
        return Applied(replace(plan, key=["id"], version=len(self.spark.history[plan.target]) - 1), 1)

    def load(self, table: str, rows: Any, writer: Any, key: Any) -> int:
        self.spark.commit(table, "WRITE")
        return len(self.spark.history[table]) - 1


def cut(lsn: int, position: int, offsets: tuple[int, ...], slot: str = "s", done: bool = True) -> Cut:
    snapshot = SnapshotState(1, done, 0)
    record = TableRecord(slot, TOPIC, "public", "t", lsn, offsets, snapshot)
    return Cut(slot, lsn, lsn, lsn, position, {TOPIC: record})


def snapshot(lsn: int) -> Any:
    nothing = lambda _: None  # noqa: E731
    return SimpleNamespace(tables=["public.t"], lsn=lsn, rows=nothing, writer=nothing, key=lambda _: ("id",))


def test_a_table_that_was_only_created_is_not_taken_for_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.fails = [KafkaUnavailable("Kafka is away", "")]
    mirror = world.process(monkeypatch)
    with pytest.raises(KafkaUnavailable):
        mirror.run_once()
    mirror.run_once()  # as jobs.mirror does 10 s later; or another process
    assert world.rows[1].state == PUBLISHED
    assert len(world.merges) == 1, "published without a MERGE"


def test_another_plan_of_the_same_number_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.process(monkeypatch).run_once()
    del world.rows[2]  # the runs are restored to an earlier state, or somebody took a plan away that cannot be done
    world.cut = cut(lsn=300, position=30, offsets=(95,))
    world.process(monkeypatch).run_once()
    assert len(world.merges) == 3, "published without a MERGE"


def test_a_load_replaces_a_table_that_cannot_be_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.refuses_unloaded = True  # its key has changed
    with pytest.raises(RequestRejected):
        world.process(monkeypatch).run_once()
    mirror = world.process(monkeypatch)
    mirror.load(snapshot(150))  # the hint
    assert world.rows[max(world.rows)].tables[0].loaded_lsn == 150
    assert world.rows[max(world.rows)].state == PUBLISHED


def test_after_a_load_the_topic_is_not_read_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).load(snapshot(100))
    [(_, before)] = world.merges
    assert before is not None
    assert before.offsets == [45], "reads from offset 0, which retention has deleted"


def test_a_run_after_a_load_that_another_process_ends_starts_from_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    loaded = world.process(monkeypatch)
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    world.fails = [KafkaUnavailable("dies here", "")]
    with pytest.raises(KafkaUnavailable):
        loaded.load(snapshot(100))
    world.process(monkeypatch).run_once()
    _, before = world.merges[-1]
    assert before is not None
    assert (before.loaded_lsn, before.version) == (100, 2), f"base is version {before.version}, the one before the load"


def test_a_first_load_that_another_process_ends_is_not_read_from_the_topics_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.fails = [KafkaUnavailable("dies here", "")]
    with pytest.raises(KafkaUnavailable):
        world.process(monkeypatch).load(snapshot(100))
    world.process(monkeypatch).run_once()
    [(_, before)] = world.merges
    assert before is not None
    assert before.offsets == [45], "reads from offset 0, which retention has deleted"


def test_what_comes_at_the_same_lsn_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.cut = cut(lsn=100, position=10, offsets=(50,), done=False)  # being copied
    world.process(monkeypatch).run_once()
    world.cut = cut(lsn=100, position=11, offsets=(80,))  # copied; nothing was committed meanwhile
    assert world.process(monkeypatch).run_once() is not None
    assert world.merges


def test_topics_that_were_made_anew_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    world.cut = cut(lsn=300, position=2, offsets=(7,))
    with pytest.raises(GapError):
        world.process(monkeypatch).run_once()


def test_a_topic_that_goes_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    world.cut = cut(lsn=300, position=20, offsets=(7,))
    with pytest.raises(GapError):
        world.process(monkeypatch).run_once()


def test_a_mirror_of_another_slot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    world.cut = cut(lsn=300, position=20, offsets=(70,), slot="other")
    with pytest.raises(RequestRejected):
        world.process(monkeypatch).run_once()


def test_what_is_published_after_a_load_is_not_of_an_earlier_lsn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.newest = cut(lsn=400, position=40, offsets=(90,))
    published = world.process(monkeypatch).load(snapshot(300))  # rows_max allows no more than LSN 100
    assert published[0].run.lsn >= 300, f"LSN {published[0].run.lsn} is said to be what was loaded as of 300"


def test_a_target_that_was_dropped_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    world.spark.history.clear()  # DROP TABLE
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    with pytest.raises(RequestRejected):
        world.process(monkeypatch).run_once()


def test_a_target_with_rows_that_no_run_knows_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    without = world.process(monkeypatch)
    without._cdc.tables = lambda *_: {}  # its pattern is taken out
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    without.run_once()
    world.cut = cut(lsn=300, position=30, offsets=(95,))  # and put in again
    with pytest.raises(RequestRejected):
        world.process(monkeypatch).run_once()


def test_a_load_that_nobody_has_published_is_told_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    dies = world.process(monkeypatch)
    dies._cdc.cut = lambda: 1 / 0  # it has overwritten the table, and waits for the topics
    with pytest.raises(ZeroDivisionError):
        dies.load(snapshot(100))
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    with pytest.raises(RequestRejected, match="was overwritten by a load that has not been published"):
        world.process(monkeypatch).run_once()
    world.process(monkeypatch).load(snapshot(150))
    world.cut = cut(lsn=300, position=30, offsets=(95,))
    world.process(monkeypatch).run_once()
    assert world.rows[max(world.rows)].tables[0].loaded_lsn == 150


def test_a_run_that_another_process_began_during_a_load_is_not_finished_on_what_was_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.process(monkeypatch).run_once()
    world.cut = cut(lsn=200, position=20, offsets=(90,))
    loading, job = world.process(monkeypatch), world.process(monkeypatch)

    def while_it_waits() -> Cut:
        with pytest.raises(RequestRejected, match="was overwritten by a load"):
            job.run_once()  # its plan stays
        return world.cut

    loading._cdc.cut = while_it_waits
    with pytest.raises(Fenced, match="while its tables were loaded"):
        loading.load(snapshot(150))
    assert len(world.merges) == 1, "events from below the load's LSN were merged into it"
    loading._cdc.cut = lambda: world.cut
    loading.load(snapshot(160))
    last = world.rows[max(world.rows)]
    assert (last.state, last.tables[0].loaded_lsn) == (PUBLISHED, 160)


def test_a_load_of_an_idle_database_is_published_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.below = world.cut
    mirror = world.process(monkeypatch)
    assert len(mirror.load(snapshot(100))) == 1
    assert mirror.run_once() is None


def test_the_key_of_a_table_that_was_only_truncated_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from unittest.mock import MagicMock

    from cdcd.spark.mirror import table_merge
    from cdcd.spark.reading.writer_schemas import RegistryWriters

    envelope = '{"type":"record","name":"Envelope","fields":[]}'
    key = '{"type":"record","name":"Key","fields":[{"name":"id","type":"int","pg_type":"integer"}]}'
    writers = RegistryWriters.__new__(RegistryWriters)
    writers._known, writers._url = {}, ""

    def version(name: str, _: int) -> Any:
        is_key = name.endswith("-key")
        schema = SimpleNamespace(schema_str=key if is_key else envelope)
        return SimpleNamespace(schema_id=8 if is_key else 7, schema=schema)

    writers._client = SimpleNamespace(get_versions=lambda _: [1], get_version=version)
    monkeypatch.setattr(table_merge, "f", MagicMock())
    monkeypatch.setattr(table_merge, "start", MagicMock())
    raw = MagicMock()
    raw.select().distinct().collect.return_value = [{"value": bytearray(b"\0\0\0\0\x07"), "key": None}]
    made = table_merge.Applier(SimpleNamespace(), writers, Delta(Spark(), {}), "hard", follow=False)
    _, found = made._met(raw, MirroredTable(TOPIC, "public", "t", "t", None, [1], 0, None), None)
    assert found == ["id"], "taken for a table without a key"


def test_rows_come_back_in_a_table_that_had_soft_deletes() -> None:
    from cdcd.spark.mirror.merge_sql import merge

    hard = merge("t", "s", ["id"], [], ["id", "v"], [], deletes="hard", marked=True)
    assert hard.count("_is_deleted") == 2, "set in an update, and in an insert"
    assert "t.`_is_deleted` = false" in hard
    assert "THEN DELETE" in hard
    assert "_is_deleted" not in merge("t", "s", ["id"], [], ["id", "v"], [], deletes="hard")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_a_run_is_read_back_with_its_time_in_any_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Run("mirror", 1, PUBLISHED, "cdcd", 100, 90, 1_762_061_400_123_456, 10, ())
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        collected = TimestampType().fromInternal(written.commit_ts)  # as `collect` gives it
        assert run_log._run(Row(**asdict(written) | {"commit_ts": collected})) == written
    finally:
        monkeypatch.undo()
        time.tzset()
