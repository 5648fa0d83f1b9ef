"""The table of runs: each row is added once, whoever else adds one, and is read only if the table has changed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from support.fix_spark import jobs

from cdcd.errors import Fenced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdcd.spark.mirror.run_log import MirroredTable
    from cdcd.spark.packages import Format


@pytest.mark.parametrize("form", [pytest.param("delta", marks=pytest.mark.whole), "iceberg"])
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


def _table() -> MirroredTable:
    from cdcd.spark.mirror.run_log import MirroredTable

    return MirroredTable("p.public.t", "public", "t", "lake.t", ["id"], [5, 7], 0, 3, ["id", "n"])
