"""Each delivery mode makes its producers, ranks the progress and makes the schedule."""

from __future__ import annotations

import pytest
from sim.fake_kafka import FakeBroker, FakeKafkaCluster, FakeProducer, FakeReading

from cdcd.progress.records import SlotRecord
from cdcd.sink.batch_queue import QueueHead
from cdcd.sink.batches import Batch
from cdcd.sink.commit_schedule import Step
from cdcd.sink.kafka.alternating_producer import AlternatingProducer
from cdcd.sink.kafka.delivery import delivery_of
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.kafka_transaction import KafkaTransaction
from cdcd.sink.topics import TopicSpec


class Cluster(FakeKafkaCluster):
    """Notes the producers."""

    def __init__(self) -> None:
        super().__init__(FakeBroker())
        self.ids: list[str | None] = []

    def transactional_producer(self, transactional_id: str, timeout_ms: int, known_topic: str) -> FakeProducer:
        self.ids.append(transactional_id)
        return super().transactional_producer(transactional_id, timeout_ms, known_topic)

    def idempotent_producer(self, timeout_ms: int) -> FakeProducer:
        self.ids.append(None)
        return super().idempotent_producer(timeout_ms)


def test_exactly_once_takes_two_transactional_ids_of_this_slot_alone() -> None:
    kafka = Cluster()
    delivery = delivery_of("exactly_once", "p", "s")
    producers = list(delivery.producers(kafka, 60_000, ""))
    assert kafka.ids == ["p-s", "p-s.2"]
    assert isinstance(delivery.combined(producers), AlternatingProducer)


def test_at_least_once_takes_one_producer_without_transactions() -> None:
    kafka = Cluster()
    delivery = delivery_of("at_least_once", "p", "s")
    producers = list(delivery.producers(kafka, 60_000, ""))
    assert kafka.ids == [None]
    assert delivery.combined(producers) is producers[0]
    assert not producers[0].is_transactional


def test_a_producer_is_made_when_it_is_asked_for() -> None:
    kafka = Cluster()
    next(delivery_of("exactly_once", "p", "s").producers(kafka, 60_000, ""))
    assert kafka.ids == ["p-s"]


@pytest.mark.parametrize(("mode", "lsn"), [("exactly_once", 200), ("at_least_once", 300)])
def test_the_highest_progress_counts_where_a_zombie_may_have_written_last(mode: str, lsn: int) -> None:
    broker = FakeBroker()
    broker.create(TopicSpec("p.progress", 1, 1))
    producer = FakeProducer(broker, None)
    records = [SlotRecord("s", at, 0, 0, "1", 1, 0, 0) for at in (100, 300, 200)]
    producer.begin()
    producer.produce("p.progress", 0, [{"key": each.key(), "value": each.value()} for each in records])
    producer.commit()
    reader = KafkaProgressReader(FakeReading(broker, "p.progress"), delivery_of(mode, "p", "s").rank)
    [last] = [each for each in records if each.lsn == lsn]
    assert reader.last(frozenset({b"s"}), lambda: False) == {b"s": last.value()}


@pytest.mark.parametrize(("mode", "action"), [("exactly_once", Step.PREPARE), ("at_least_once", Step.COMMIT)])
def test_only_transactions_have_partitions_to_wait_for(mode: str, action: Step) -> None:
    schedule = delivery_of(mode, "p", "s").schedule(100, 1_000, 500, 60_000)
    transaction = KafkaTransaction(0.0)
    transaction.rows = 1
    assert schedule.next(0.0, QueueHead(Batch()), None, has_replay=False) is Step.PUBLISH
    assert schedule.next(0.0, QueueHead(), transaction, has_replay=False) is action


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_a_backlog_is_committed_long_before_kafka_ends_the_transaction(mode: str) -> None:
    schedule = delivery_of(mode, "p", "s").schedule(100, 1_000, 500_000, 60_000)
    transaction = KafkaTransaction(0.0)
    transaction.rows = 1
    more = QueueHead(Batch(), has_stream_batch=True)
    assert schedule.next(0.0, more, None, has_replay=False) is Step.PUBLISH
    assert schedule.next(14.9, more, transaction, has_replay=False) is Step.PUBLISH
    assert schedule.next(15.0, more, transaction, has_replay=False) is Step.COMMIT
