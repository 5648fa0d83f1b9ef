"""The watch tells of a topic that lost records, once it is sure."""

from __future__ import annotations

from threading import Event
from typing import cast

import pytest
from sim.fake_kafka import Entry, FakeBroker, FakeKafkaCluster, nothing

from cdcd.daemon.topic_watch import CONFIRM_S, INTERVAL_S, TopicWatch
from cdcd.errors import AccessDenied, KafkaUnavailable, TopicLost
from cdcd.progress.records import TopicState
from cdcd.sink.topics import TopicSpec


class NoPauses:
    """Plays an event that is never set, and that nobody waits for."""

    def wait(self, timeout_s: float) -> bool:
        return False


class Watched:
    """One topic of a table, and the progress, whose end nobody records."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        for name in ("p.t", "p.progress"):
            self.broker.create(TopicSpec(name, 1, 1))
            self.broker.topics[name] = [[Entry(None, b"", None, (name, 0))] * 5]
        self.recorded = {"p.t": TopicState(self.broker.ids["p.t"], (5,))}
        self.woken = 0
        self.watch = TopicWatch(
            lambda: FakeKafkaCluster(self.broker), lambda: self.recorded, frozenset({"p.progress"}), self.wake, Event()
        )

    def wake(self) -> None:
        self.woken += 1

    def make_again(self, topic: str, records: int = 0) -> None:
        self.broker.create(self.broker.delete(topic))
        self.broker.topics[topic] = [[Entry(None, b"", None, (topic, 0))] * records]

    def assert_lost(self, said: str) -> None:
        self.watch.check()
        self.watch.raise_loss()
        assert self.watch.pause_s == CONFIRM_S
        self.watch.check()
        assert self.woken == 1
        with pytest.raises(TopicLost, match=said):
            self.watch.raise_loss()


def test_topics_that_are_as_they_were_are_no_loss() -> None:
    watched = Watched()
    for _ in range(3):
        watched.watch.check()
    watched.watch.raise_loss()
    assert watched.watch.pause_s == INTERVAL_S


def test_an_error_that_no_broker_causes_ends_the_stream_and_not_the_watch_alone() -> None:
    def fail() -> dict[str, TopicState]:
        raise ZeroDivisionError

    woken = Event()
    kafka = FakeKafkaCluster(FakeBroker())
    watch = TopicWatch(lambda: kafka, fail, frozenset(), woken.set, cast("Event", NoPauses()))
    watch.start()
    assert woken.wait(10)
    with pytest.raises(ZeroDivisionError):
        watch.raise_loss()


def test_a_topic_that_gets_more_partitions_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.broker.topics["p.t"].append([])
    for _ in range(3):
        watched.watch.check()
    watched.watch.raise_loss()
    [line] = [record for record in caplog.records if "more partitions" in record.message]
    assert (line.__dict__["topic"], line.__dict__["partitions"]) == ("p.t", 2)


def test_a_deleted_topic_is_lost() -> None:
    watched = Watched()
    watched.broker.delete("p.t")
    watched.assert_lost("the topic p.t does not exist any more")


def test_a_topic_that_was_made_again_is_lost_even_if_it_has_grown() -> None:
    watched = Watched()
    watched.make_again("p.t", 50)
    watched.assert_lost("the topic p.t was deleted and made again")


def test_a_topic_that_was_cut_is_lost() -> None:
    watched = Watched()
    watched.broker.cut("p.t", 0, 2)
    watched.assert_lost("the topic p.t ends at offset 2 of partition 0")


def test_a_topic_without_records_of_its_own_is_compared_with_what_was_seen_before() -> None:
    watched = Watched()
    watched.watch.check()
    watched.make_again("p.progress", 50)
    watched.assert_lost("the topic p.progress was deleted and made again")


def test_a_right_that_is_withdrawn_is_told_once_and_again_after_it_has_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched()
    rounds = iter([False, True, True, False, True])
    asked = Event()

    class Rounds:
        """Plays an event that is set once all rounds are over."""

        def wait(self, timeout_s: float) -> bool:
            watched.broker.on_call = refuse if (denied := next(rounds, None)) else nothing
            if denied is None:
                asked.set()
            return denied is None

    def refuse(step: str) -> None:
        raise AccessDenied("Kafka refused describing topics", "Grant it.", code="kafka-acl-missing")

    watch = TopicWatch(
        lambda: FakeKafkaCluster(watched.broker), lambda: watched.recorded, frozenset(), watched.wake,
        cast("Event", Rounds()),
    )  # fmt: skip
    watch.start()
    assert asked.wait(10)
    said = "Kafka refused describing topics. Grant it. [kafka-acl-missing]"
    assert [record.message for record in caplog.records if "cannot be watched" in record.message] == [
        f"the topics cannot be watched, and the next start will be refused: {said}"
    ] * 2
    watch.raise_loss()


def test_an_answer_that_lacks_a_topic_once_is_no_loss() -> None:
    watched = Watched()
    topic = watched.broker.topics.pop("p.t")
    watched.watch.check()
    watched.broker.topics["p.t"] = topic
    watched.watch.check()
    watched.watch.check()
    watched.watch.raise_loss()


def test_brokers_that_do_not_answer_are_no_loss() -> None:
    watched = Watched()

    def fail(step: str) -> None:
        raise KafkaUnavailable("away", code="kafka-unavailable")

    watched.broker.on_call = fail
    with pytest.raises(KafkaUnavailable):
        watched.watch.check()
    watched.watch.raise_loss()
