"""Two producers take turns, and exactly once needs both."""

from __future__ import annotations

import pytest
from sim.fake_kafka import FakeBroker, FakeProducer

from cdcd.errors import Fenced
from cdcd.sink.kafka.alternating_producer import AlternatingProducer
from cdcd.sink.topics import TopicSpec


def never() -> bool:
    return False


class World:
    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.broker.create(TopicSpec("t", 1, 1))

    def both(self) -> tuple[FakeProducer, FakeProducer]:
        return FakeProducer(self.broker, "p-s"), FakeProducer(self.broker, "p-s.2")

    def ids(self) -> list[str | None]:
        return [transaction.producer for transaction in self.broker.committed]


def commit(producer: AlternatingProducer) -> None:
    producer.begin()
    producer.produce("t", 0, [{"value": b"v"}])
    producer.commit()


def test_each_commit_passes_the_turn_and_an_abort_does_not() -> None:
    world = World()
    producer = AlternatingProducer(*world.both())
    assert producer.start(never)
    commit(producer)
    producer.begin()
    producer.abort()
    commit(producer)
    commit(producer)
    assert world.ids() == ["p-s", "p-s.2", "p-s"]


def test_the_one_that_is_next_begins_early() -> None:
    first, second = World().both()
    told: list[str] = []
    first.begin_next = lambda: told.append("first")  # type: ignore[method-assign]
    second.begin_next = lambda: told.append("second")  # type: ignore[method-assign]
    producer = AlternatingProducer(first, second)
    producer.start(never)
    producer.begin()
    producer.begin_next()
    producer.commit()
    producer.begin()
    producer.begin_next()
    assert told == ["second", "first"]


def test_of_two_that_start_at_once_none_commits_what_the_other_does_not_find() -> None:
    world = World()
    (first, second), (heirs_first, heirs_second) = world.both(), world.both()
    one, two = AlternatingProducer(first, second), AlternatingProducer(heirs_first, heirs_second)
    for each in (first, heirs_first, heirs_second, second):  # as it comes if `one` is held up while it starts
        each.start(never)
    with pytest.raises(Fenced):
        commit(one)
    commit(two)
    with pytest.raises(Fenced):
        commit(two)
    assert world.ids() == ["p-s"]


def test_who_is_told_to_stop_takes_over_no_more() -> None:
    world = World()
    assert not AlternatingProducer(*world.both()).start(lambda: True)
    assert not world.broker.owners
