"""How a run's records are read, without a session: how many tasks read a range, and what an error of one topic does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cdcd.errors import GapError
from cdcd.spark.mirror.batches import SMALL_MAX, Batches
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.reading.kafka import KafkaReader


@pytest.mark.parametrize(
    ("ends", "tasks"),
    [([10, 10], None), ([149_999, 0], None), ([150_000, 0], 3), ([9_000_000, 9_000_000], 16)],
)
def test_a_long_range_is_read_by_more_tasks_than_it_has_partitions(ends: list[int], tasks: int | None) -> None:
    given: dict[str, Any] = {}

    class Reader:
        def options(self, **more: Any) -> Reader:
            given.update(more)
            return self

        def option(self, name: str, value: Any) -> Reader:
            return self.options(**{name: value})

        def load(self) -> None: ...

    conf = SimpleNamespace(get=lambda _: "kafka,orc", set=lambda *_: None)
    context = SimpleNamespace(defaultParallelism=4)
    session: Any = SimpleNamespace(read=SimpleNamespace(format=lambda _: Reader()), conf=conf, sparkContext=context)
    KafkaReader(session, "k:9092", {}).ranges({"p.t": ([0, 0], ends)})
    assert given.get("minPartitions") == tasks


def test_a_topic_that_cannot_be_read_does_not_keep_the_others_from_being_read() -> None:
    asked: list[list[str]] = []

    class Kafka:
        parallelism = 2

        def ranges(self, ranges: dict[str, object]) -> None:
            asked.append(sorted(ranges))
            raise GapError("retention has deleted the start", "", code="events-expired")

    def planned(name: str, end: int) -> tuple[MirroredTable, None]:
        return MirroredTable(f"p.public.{name}", "public", name, name, ["id"], [end], 0, None), None

    kafka: Any = Kafka()
    work = [planned("a", 5), planned("b", SMALL_MAX), planned("idle", 0), planned("long", SMALL_MAX + 1)]
    with Batches(kafka, None).together(work):  # type: ignore[arg-type]
        assert asked == [["p.public.a", "p.public.b"]]
