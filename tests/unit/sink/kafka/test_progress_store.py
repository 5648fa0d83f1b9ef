from __future__ import annotations

import pytest
from sim.fake_kafka import FakeBroker, FakeKafkaCluster, FakeProducer

from cdcd.progress.records import SlotRecord
from cdcd.sink.kafka.delivery import delivery_of
from cdcd.sink.kafka.progress_store import ProgressStore
from cdcd.sink.topics import TopicNames, own_specs

NAMES = TopicNames("p")


@pytest.fixture
def kafka() -> FakeKafkaCluster:
    cluster = FakeKafkaCluster(FakeBroker())
    cluster.ensure(*own_specs(NAMES, 1, {}))
    return cluster


def commit(kafka: FakeKafkaCluster, *lsns: int, slot: str = "s") -> None:
    producer = FakeProducer(kafka.broker, f"p-{slot}")
    producer.start(lambda: False)
    for lsn in lsns:
        record = SlotRecord(slot, lsn, lsn - 8, 1, "1", 1, 1, 1)
        producer.begin()
        producer.produce(NAMES.progress, 0, [{"key": record.key(), "value": record.value()}])
        producer.commit()


def last_lsn(kafka: FakeKafkaCluster, *, mode: str) -> int | None:
    last = ProgressStore(kafka, NAMES, "s", delivery_of(mode, "p", "s").rank).last_record()
    return None if last is None else last.lsn


def test_before_the_first_commit_there_is_no_record_with_and_without_the_topic(kafka: FakeKafkaCluster) -> None:
    assert last_lsn(kafka, mode="exactly_once") is None
    assert last_lsn(FakeKafkaCluster(FakeBroker()), mode="exactly_once") is None


def test_each_slot_has_a_record_of_its_own(kafka: FakeKafkaCluster) -> None:
    commit(kafka, 0x100)
    commit(kafka, 0x900, slot="other")
    assert last_lsn(kafka, mode="exactly_once") == 0x100


def test_a_zombie_that_writes_last_counts_only_where_producers_are_fenced(kafka: FakeKafkaCluster) -> None:
    commit(kafka, 0x100, 0x300, 0x200)
    assert last_lsn(kafka, mode="exactly_once") == 0x200
    assert last_lsn(kafka, mode="at_least_once") == 0x300
