"""How a run's records are read, without a session: how many tasks read a range, and what an error of one topic does."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cdcd.errors import GapError, KafkaUnavailable
from cdcd.spark.mirror.batches import (
    _HELD_BYTES_MAX,
    _HELD_TOGETHER_BYTES_MAX,
    SMALL_MAX,
    Batches,
    Headers,
    _fitting,
)
from cdcd.spark.mirror.per_table import Kind
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.reading.cuts import Cut, Cuts
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


def test_small_batches_are_read_together_by_their_session_and_an_error_does_not_keep_others_from_being_read() -> None:
    asked: list[list[str]] = []

    class Kafka:
        parallelism = 2

        def ranges(self, ranges: dict[str, object], _: object) -> None:
            asked.append(sorted(ranges))
            raise GapError("retention has deleted the start", "", code="events-expired")

    def planned(name: str, end: int) -> tuple[MirroredTable, None]:
        return MirroredTable(f"p.public.{name}", "public", name, name, ["id"], [end], 0, None), None

    def session_for_few(*targets: str) -> Any:
        if targets == ("broken",):
            raise GapError("the table's files are gone", "", code="mirror-load-again")
        return "own" if any(target.startswith("large") for target in targets) else "few"

    kafka: Any = Kafka()
    names = ["a", "b", "large 1", "large 2", "broken"]
    work = [*(planned(name, SMALL_MAX) for name in names), planned("idle", 0), planned("long", SMALL_MAX + 1)]
    with Batches(kafka, None, session_for_few).together(work):  # type: ignore[arg-type]
        assert asked == [["p.public.a", "p.public.b"], ["p.public.large 1", "p.public.large 2"]]


def test_the_driver_holds_small_batches_and_not_too_many_of_them() -> None:
    sizes = {"huge": _HELD_BYTES_MAX + 1, "tiny": 1} | {f"b{n:03}": _HELD_BYTES_MAX for n in range(100)}
    fitting = _fitting({topic: Headers([], [], size) for topic, size in sizes.items()})
    assert fitting[0] == "tiny"
    assert "huge" not in fitting
    assert sum(sizes[topic] for topic in fitting) <= _HELD_TOGETHER_BYTES_MAX < (len(fitting) + 1) * _HELD_BYTES_MAX


def test_a_topic_of_several_kinds_is_read_once_unless_they_begin_at_different_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Records:
        def __getattr__(self, _: str) -> Any:
            return lambda *_: self

    class Kafka:
        errors = staticmethod(nullcontext)
        parallelism = 2

        def ranges(self, ranges: dict[str, tuple[list[int], list[int]]], _: object) -> Records:
            asked.extend(f"{topic} {start[0]}" for topic, (start, _) in ranges.items())
            return Records()

    def planned(name: str, kind: Kind | None, at: int) -> tuple[MirroredTable, MirroredTable]:
        before = MirroredTable(name, "public", name, name, ["id"], [at], 0, None, kind=kind)
        return replace(before, offsets=[10 * SMALL_MAX]), before

    kafka: Any = Kafka()
    monkeypatch.setattr("cdcd.spark.mirror.batches._headers", lambda *_: [])
    monkeypatch.setattr("cdcd.spark.mirror.batches._place", lambda: None)
    batches = Batches(kafka, None, lambda _: None)  # type: ignore[arg-type]
    work = [planned("a", None, 0), planned("a", "scd2", 0), planned("b", None, 7), planned("b", "changelog", 0)]
    with batches.together(work):
        for each in work:
            with batches.read(*each) as batch:
                assert batch.is_read == (each[0].topic == "a")
    assert asked == ["a 0", "b 7", "b 0"]


def test_progress_is_read_only_if_its_topic_has_grown_and_from_its_beginning_if_it_was_made_again() -> None:
    ends: list[int | None] = [12, 12, 15, 15, 15, None, None, 4]
    positions, reads = iter([10, 10, 14, 14, 2]), []

    class OneTopic(Cuts):
        def _read(self, slot: str, since: Cut | None, progress_offset: int | None) -> Cut:
            reads.append(None if since is None else since.progress_offset)
            position = next(positions)
            return Cut(slot, position, position, 0, position, {})

    kafka: Any = SimpleNamespace(end=lambda _: ends.pop(0))
    cuts = OneTopic(kafka, "p.progress", "s")
    first = cuts.at()
    assert cuts.at(None, first) is first
    assert cuts.at(None, first).progress_offset == 10, "another slot's records"
    assert cuts.at(None, first).progress_offset == 10
    assert cuts.at().progress_offset == 10
    assert reads == [None, 10]
    assert [cuts.at(None, first).progress_offset for _ in range(2)] == [14, 14], "Spark alone can ask"
    assert cuts.at(None, first).progress_offset == 2
    assert reads == [None, 10, 10, 10, None]


@pytest.mark.parametrize(
    ("error", "is_away"),
    [("org.apache.kafka.common.errors.TimeoutException: listOffsets", True), ("SaslAuthenticationException", False)],
)
def test_an_end_that_only_spark_may_ask_for_is_left_to_it(error: str, is_away: bool) -> None:
    asked = 0

    def create(options: dict[str, str]) -> None:
        nonlocal asked
        asked += 1
        assert options["security.protocol"] == "SASL_SSL"
        raise RuntimeError(error)

    admin = SimpleNamespace(Admin=SimpleNamespace(create=create), ListOffsetsOptions=lambda _: None)
    common = SimpleNamespace(TopicPartition=lambda *_: None, IsolationLevel=SimpleNamespace(READ_COMMITTED=1))
    kafka = SimpleNamespace(clients=SimpleNamespace(admin=admin), common=common)
    session: Any = SimpleNamespace(_jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(kafka=kafka))))
    reader = KafkaReader(session, "k:9092", {"security.protocol": "SASL_SSL"})
    for _ in range(2):
        if is_away:
            with pytest.raises(KafkaUnavailable):
                reader.end("p.progress")
        else:
            assert reader.end("p.progress") is None
    assert asked == 1 + is_away
