from __future__ import annotations

import pytest
from sim.fake_kafka import FakeBroker, FakeKafkaCluster, FakeProducer

from cdcd.progress.continuity import Remains
from cdcd.progress.records import SlotRecord
from cdcd.progress.slot_beginnings import SlotBeginning
from cdcd.sink.kafka.delivery import delivery_of
from cdcd.sink.kafka.progress_store import ProgressStore
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs

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


def store(kafka: FakeKafkaCluster, mode: str = "exactly_once") -> ProgressStore:
    return ProgressStore(kafka, NAMES, "s", delivery_of(mode, "p", "s").rank)


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


def test_the_visible_record_does_not_wait_and_the_last_one_is_read_anew_if_anything_came(
    kafka: FakeKafkaCluster,
) -> None:
    commit(kafka, 0x100)
    progress = store(kafka)
    record = SlotRecord("s", 0x200, 0x1F8, 1, "1", 1, 1, 1)
    producer = FakeProducer(kafka.broker, "p-s.2")
    producer.start(lambda: False)
    producer.begin()
    producer.produce(NAMES.progress, 0, [{"key": record.key(), "value": record.value()}])
    visible = progress.visible_record()
    assert visible is not None
    assert visible.lsn == 0x100
    producer.commit()
    assert progress.last_record() == record


def test_before_the_topics_are_made_nothing_is_visible() -> None:
    progress = store(FakeKafkaCluster(FakeBroker()))
    assert progress.visible_record() is None
    assert progress.snapshots_topic().is_empty


def write(kafka: FakeKafkaCluster, topic: str, *, commit: bool = True) -> None:
    kafka.ensure(TopicSpec(topic, 2, 1))
    producer = FakeProducer(kafka.broker, "any")
    producer.start(lambda: False)
    producer.begin()
    producer.produce(topic, 1, [{"key": b"k", "value": b"v"}])
    producer.commit() if commit else producer.abort()


def test_committed_rows_are_traces_if_no_slot_has_left_a_record(kafka: FakeKafkaCluster) -> None:
    progress = store(kafka)
    found = progress.snapshots_topic()
    write(kafka, "p.public.aborted", commit=False)
    write(kafka, "p.q.public.strangers")
    write(kafka, "elsewhere.t")
    assert progress.remains(found, []).unclaimed_topics == []
    assert progress.remains(found, ["elsewhere.t"]).unclaimed_topics == ["elsewhere.t"]
    write(kafka, "p.public.t")
    assert progress.remains(found, []).unclaimed_topics == ["p.public.t"]
    assert store(kafka, "at_least_once").remains(found, []) == Remains()


def test_rows_that_another_slot_publishes_at_this_moment_are_no_traces(kafka: FakeKafkaCluster) -> None:
    """Two daemons of one prefix start for the first time at once."""
    progress = store(kafka)
    found = progress.snapshots_topic()
    producer = FakeProducer(kafka.broker, "p-other")
    producer.start(lambda: False)
    kafka.ensure(TopicSpec("p.public.t", 1, 1))
    beginning = SlotBeginning("other", "1", 5, 0x100)

    def publish(step: str) -> None:
        kafka.broker.on_call = lambda _: None
        producer.begin()
        producer.produce("p.public.t", 0, [{"key": b"k", "value": b"v"}])
        producer.produce(NAMES.snapshots, 0, [{"key": beginning.key(), "value": beginning.value()}])
        producer.commit()

    kafka.broker.on_call = publish
    assert progress.remains(found, ["p.public.t"]) == Remains(snapshots={}, unclaimed_topics=[])


def test_another_slots_records_explain_rows_and_its_database_is_known(kafka: FakeKafkaCluster) -> None:
    write(kafka, "p.public.t")
    beginning = SlotBeginning("other", "1", 5, 0x100)
    producer = FakeProducer(kafka.broker, "p-other")
    producer.start(lambda: False)
    producer.begin()
    producer.produce(NAMES.snapshots, 0, [{"key": beginning.key(), "value": beginning.value()}])
    producer.commit()
    found = store(kafka).snapshots_topic()
    assert store(kafka).remains(found, []) == Remains(snapshots={}, unclaimed_topics=[])
    assert found.slots_of_other_databases("1", 4) == ["other"]
    assert found.slots_of_other_databases("1", 5) == found.slots_of_other_databases("2", 4) == []
