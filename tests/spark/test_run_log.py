"""The table of runs: each row is added once, whoever else adds one, and is read only if the table has changed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from support.fix_spark import DELTA_WHOLE, FORMATS, jobs

from cdcd.errors import Fenced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdcd.spark.mirror.run_log import MirroredTable
    from cdcd.spark.packages import Format


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_of_two_processes_that_have_one_plan_or_two_of_one_number_one_publishes_it(
    spark: SparkSession, lake: Callable[[str], str], form: Format
) -> None:
    from cdcd.spark.mirror.run_log import PLANNED, PUBLISHED, Run, RunLog
    from cdcd.spark.mirror.targets.delta import Delta
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    target, catalog = {"delta": Delta, "iceberg": Iceberg}[form](spark, {}), lake(form)
    first, second, other = (
        RunLog(target, catalog, mirror, lambda _: None) for mirror in ("mirror", "mirror", "another")
    )
    first.create()
    assert first.last() == (None, None)
    plan = Run("mirror", 1, PLANNED, "s", 100, 100, 1_700_000_000_123_457, 10, (_table(),))
    first.write(plan)
    began = jobs(spark)
    assert first.last() == (None, plan)
    assert jobs(spark) == began, "a process need not read what it has just written"
    for state in PLANNED, PUBLISHED:
        with pytest.raises(Fenced, match="another process runs the mirror"):
            second.write(replace(plan, state=state, token="of another plan"))
    assert second.last() == (None, plan)
    other.write(replace(plan, mirror="another"))
    done = replace(plan, state=PUBLISHED)
    second.write(done)  # it has taken the plan over
    with pytest.raises(Fenced):
        first.write(done)
    assert first.last() == second.last() == (done, None)
    other.write(replace(plan, mirror="another", run=2))
    third = replace(plan, run=2)
    second.write(third)  # not the next version after the one that it has read
    second.write(replace(third, state=PUBLISHED))
    assert first.last() == second.last() == (replace(third, state=PUBLISHED), None)

    began, barrier = jobs(spark), Barrier(2)
    assert first.last() == second.last() == (replace(third, state=PUBLISHED), None)
    assert jobs(spark) == began

    def wins(log: RunLog) -> bool:
        barrier.wait()
        try:
            log.write(Run("mirror", 3, PLANNED, "s", 200, 200, 0, 20, ()))
        except Fenced:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(wins, (first, second))) == [False, True]
    published, planned = first.last()
    assert published == replace(third, state=PUBLISHED)
    assert planned is not None
    assert planned.run == 3
    assert spark.table(first.table).where("mirror = 'mirror' AND run = 3").count() == 1


@pytest.mark.parametrize("form", FORMATS)
def test_a_row_is_added_once_whatever_is_committed_just_before_it_and_whatever_answer_is_lost(
    spark: SparkSession, lake: Callable[[str], str], form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdcd.spark.mirror.run_log import PLANNED, PUBLISHED, Run, RunLog
    from cdcd.spark.mirror.targets import target as targets
    from cdcd.spark.mirror.targets.delta import Delta
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    monkeypatch.setattr(targets, "_PAUSES_S", (0.0,))
    kind, catalog = {"delta": Delta, "iceberg": Iceberg}[form], lake(form)
    target = kind(spark, {})
    own = RunLog(target, catalog, "mirror", lambda _: None)
    peer, other = (RunLog(kind(spark, {}), catalog, name, lambda _: None) for name in ("mirror", "another"))
    own.create()
    began = jobs(spark)
    assert own.last() == (None, None)
    assert jobs(spark) == began, "a table that it has just made is not read"
    before: list[Callable[[], object]] = []
    answers: list[str] = []
    put = target.put

    def put_among_others(table: str, rows: DataFrame, seen: int | None) -> None:
        while before:
            before.pop()()
        put(table, rows, seen)
        if answers:
            raise RuntimeError(answers.pop())

    monkeypatch.setattr(target, "put", put_among_others)

    def plan(run: int) -> Run:
        return Run("mirror", run, PLANNED, "s", 100, 100, 0, 10, (_table(),))

    def publish(log: RunLog, planned: Run) -> None:
        log.write(replace(planned, state=PUBLISHED))

    first, second, third = map(plan, (1, 2, 3))
    own.write(first)
    before.append(lambda: other.write(replace(first, mirror="another")))
    publish(own, first)
    before.append(peer.remove_old_files)
    own.write(second)
    answers.append("ConcurrentAppendException: an earlier try has made this commit")
    publish(own, second)
    before.append(lambda: peer.prune(1, datetime.fromtimestamp(0, UTC)))
    answers.append("killed")
    with pytest.raises(RuntimeError, match="killed"):
        own.write(third)
    assert peer.last() == (replace(second, state=PUBLISHED), third)
    before.append(lambda: publish(peer, third))  # it has taken the plan over
    with pytest.raises(Fenced):
        publish(own, third)
    before.append(lambda: peer.write(plan(4)))
    with pytest.raises(Fenced):
        publish(own, plan(4))  # as `compact` does, without a plan
    columns = ", ".join("5 run" if name == "run" else name for name in spark.table(own.table).columns)
    row = f"INSERT INTO {own.table} SELECT {columns} FROM {own.table} WHERE mirror = 'mirror' AND run = 4"
    before.append(lambda: spark.sql(row))  # whoever has written it, and however
    with pytest.raises(Fenced):
        own.write(plan(5))
    rows = spark.table(own.table).where("mirror = 'mirror'").select("run", "state").collect()
    wanted = [(run, state) for run in (2, 3) for state in (PLANNED, PUBLISHED)] + [(4, PLANNED), (5, PLANNED)]
    assert sorted(map(tuple, rows)) == wanted


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_a_row_costs_one_job_and_the_next_one_needs_no_reading(
    spark: SparkSession, lake: Callable[[str], str], form: Format
) -> None:
    from cdcd.spark.mirror.run_log import PUBLISHED, Run, RunLog
    from cdcd.spark.mirror.targets.delta import Delta
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    log = RunLog({"delta": Delta, "iceberg": Iceberg}[form](spark, {}), lake(form), "mirror", lambda _: None)
    log.create()
    for number in range(1, 5):
        began = jobs(spark)
        log.write(Run("mirror", number, PUBLISHED, "s", 100, 100, 0, 10, (_table(),)))
        if number > 1:
            assert jobs(spark) - began == 1


def _table() -> MirroredTable:
    from cdcd.spark.mirror.run_log import MirroredTable

    return MirroredTable("p.public.t", "public", "t", "lake.t", ["id"], [5, 7], 0, 3, ["id", "n"])
