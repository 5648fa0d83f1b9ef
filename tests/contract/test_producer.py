"""The promises of `cdcd.sink.interfaces`, kept by the real broker and by the fake that the simulation plays against."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as librdkafka
import pytest
from bench.measuring import until
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer, FakeReading, Seen
from support.proxied_kafka import proxied_kafka
from support.proxy import Link, is_end_of_transaction, is_list_offsets, is_produce

from cdcd.errors import Fenced, KafkaUnavailable, RequestRejected, SettingsError, Unpublishable
from cdcd.progress.records import SlotRecord, TableRecord, TopicState, parse_record, parse_slot_record
from cdcd.progress.topic_evidence import lost_topics
from cdcd.sink.batches import BatchBuilder, Message
from cdcd.sink.interfaces import Producer, ProgressReader, TopicAdmin
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.alternating_producer import AlternatingProducer
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.idempotent_producer import IdempotentProducer
from cdcd.sink.kafka.producer import KafkaProducer
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.kafka.range_reader import RangeReader
from cdcd.sink.kafka.stuck_client import StuckClient
from cdcd.sink.partitioner import partition_for
from cdcd.sink.publisher import Publisher, Source
from cdcd.sink.table_topics import TableTopics, TopicSettings
from cdcd.sink.topics import TopicNames, TopicSpec

NOWHERE = KafkaConnection("127.0.0.1:1", "c")


def never() -> bool:
    return False


class FakeWorld:
    prefix = "p"

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.admin: TopicAdmin = FakeAdmin(self.broker)

    def producer(self, transactional_id: str | None) -> Producer:
        if transactional_id is None:
            return FakeProducer(self.broker, None)
        return AlternatingProducer(*(FakeProducer(self.broker, f"{transactional_id}{n}") for n in range(2)))

    def reader(self, topic: str) -> ProgressReader:
        return KafkaProgressReader(FakeReading(self.broker, topic))

    def visible(self, topic: str, partitions: int, *, while_open: bool = False) -> list[list[Seen]]:
        return self.broker.visible(topic)

    def delete(self, topic: str) -> None:
        self.broker.delete(topic)

    def close(self) -> None:
        pass


class RealWorld:
    """The broker itself; what is visible is read by a plain consumer."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.connection = KafkaConnection(bootstrap, "contract")
        self.prefix = prefix
        self.real_admin = KafkaAdmin(KafkaConnection(bootstrap, "contract"))
        self.admin: TopicAdmin = self.real_admin
        self.producers: list[Producer] = []

    def producer(self, transactional_id: str | None) -> Producer:
        if transactional_id is None:
            self.producers.append(IdempotentProducer(self.connection, timeout_s=20))
            return self.producers[-1]
        ids = [f"{self.prefix}-{transactional_id}{n}" for n in range(2)]
        producers = [KafkaProducer(self.connection, own, timeout_s=20) for own in ids]
        self.producers += producers
        return AlternatingProducer(*producers)

    def reader(self, topic: str) -> ProgressReader:
        return KafkaProgressReader(self.reading(topic))

    def reading(self, topic: str, timeout_s: float = 20) -> RangeReader:
        return RangeReader(self.connection, topic, self.real_admin, timeout_s)

    def delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic], operation_timeout=10)[topic].result(10)
        until(lambda: not self.real_admin.exists(topic), 10)

    def visible(self, topic: str, partitions: int, *, while_open: bool = False) -> list[list[Seen]]:
        if not while_open:
            self._wait_for_markers(topic, partitions)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "contract",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        seen: list[list[Seen]] = [[] for _ in range(partitions)]
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
            unfinished = set(range(partitions))
            while unfinished:
                message = consumer.poll(10)
                assert message is not None, "the broker fell silent"
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if message.error() is not None:
                    unfinished.discard(partition)
                else:
                    seen[partition].append(Seen(offset, message.key(), message.value()))
        finally:
            consumer.close()
        return seen

    def close(self) -> None:
        for producer in self.producers:
            producer.close()

    def _wait_for_markers(self, topic: str, partitions: int) -> None:
        """A commit is decided before its markers are in all partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})

        def ends(level: IsolationLevel) -> list[int]:
            wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
            futures = admin.list_offsets(wanted, isolation_level=level)
            return [futures[each].result(10).offset for each in sorted(futures)]

        deadline = time.monotonic() + 10
        while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
            assert time.monotonic() < deadline, "a transaction stays open"
            time.sleep(0.01)


World = FakeWorld | RealWorld


def made(connection: KafkaConnection, transactional_id: str | None) -> KafkaProducer | IdempotentProducer:
    """One producer, without transactions if it has no id."""
    if transactional_id is None:
        return IdempotentProducer(connection, timeout_s=30)
    return KafkaProducer(connection, transactional_id, timeout_s=30)


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World
    if request.param == "fake":
        made = FakeWorld()
    else:
        made = RealWorld(request.getfixturevalue("broker"), request.getfixturevalue("prefix"))
    yield made
    made.close()


def topic_of(world: World, name: str, partitions: int = 1) -> str:
    topic = f"{world.prefix}.{name}"
    assert world.admin.ensure(TopicSpec(topic, partitions, 1)) == [partitions]
    return topic


def started(world: World, transactional_id: str | None = "id") -> Producer:
    producer = world.producer(transactional_id)
    assert producer.start(never)
    return producer


def values(partition: list[Seen]) -> list[bytes | None]:
    return [seen.value for seen in partition]


def test_a_transaction_is_visible_in_every_topic_or_in_none(world: World) -> None:
    orders, lines = topic_of(world, "orders", 2), topic_of(world, "lines")
    producer = started(world)
    producer.begin()
    producer.produce(orders, 0, [{"key": b"k", "value": b"o0"}])
    producer.produce(orders, 1, [{"value": b"o1"}, {"key": b"k", "value": None}])
    producer.produce(lines, 0, [{"value": b"l0"}])
    producer.flush()
    assert world.visible(orders, 2, while_open=True) == [[], []]
    assert world.visible(lines, 1, while_open=True) == [[]]
    producer.commit()
    assert world.visible(orders, 2) == [[Seen(0, b"k", b"o0")], [Seen(0, None, b"o1"), Seen(1, b"k", None)]]
    assert world.visible(lines, 1) == [[Seen(0, None, b"l0")]]


@pytest.mark.parametrize("transactional_id", ["headers", None])
def test_headers_reach_the_broker_and_the_records_keep_their_order(
    broker: str, prefix: str, transactional_id: str | None
) -> None:
    world = RealWorld(broker, prefix)
    topic = topic_of(world, "headers")
    producer = started(world, transactional_id)
    messages: list[Message] = [{"key": b"%d" % n, "value": b"v"} for n in range(7)]
    messages[2]["headers"] = [("a", b"1"), ("b", b"")]
    messages[3] = {"key": b"3", "value": None, "headers": [("a", b"2")]}
    messages[6] = {"value": b"v", "headers": [("a", b"3")]}
    producer.begin()
    producer.produce(topic, 0, messages, has_headers=True)
    assert producer.flush() == {(topic, 0): 7}
    producer.commit()
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "headers", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = [consumer.poll(10) for _ in range(7)]
    consumer.close()
    world.close()
    found = [(each.key(), each.value(), dict(each.headers() or ())) for each in read if each is not None]
    assert found == [
        (b"0", b"v", {}), (b"1", b"v", {}), (b"2", b"v", {"a": b"1", "b": b""}), (b"3", None, {"a": b"2"}),
        (b"4", b"v", {}), (b"5", b"v", {}), (None, b"v", {"a": b"3"}),
    ]  # fmt: skip


def test_an_aborted_transaction_is_never_visible_and_the_producer_goes_on(world: World) -> None:
    orders = topic_of(world, "orders")
    producer = started(world)
    producer.begin()
    producer.produce(orders, 0, [{"value": b"lost"}])
    producer.flush()
    producer.abort()
    producer.begin()
    producer.produce(orders, 0, [{"value": b"kept"}])
    producer.commit()
    assert values(world.visible(orders, 1)[0]) == [b"kept"]


def test_an_abort_right_after_produce_loses_nothing_else(world: World) -> None:
    orders = topic_of(world, "orders")
    producer = started(world)
    for number in range(20):
        producer.begin()
        producer.produce(orders, 0, [{"value": b"%d" % number}] * 50)
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    assert values(world.visible(orders, 1)[0]) == [b"%d" % number for number in range(0, 20, 2) for _ in range(50)]


def test_end_offsets_are_those_after_the_last_record_of_each_partition(world: World) -> None:
    orders = topic_of(world, "orders", 3)
    producer = started(world)
    producer.begin()
    producer.produce(orders, 0, [{"value": b"a"}, {"value": b"b"}])
    producer.produce(orders, 2, [{"value": b"c"}])
    assert producer.flush() == {(orders, 0): 2, (orders, 2): 1}
    producer.produce(orders, 2, [{"value": b"d"}])
    assert producer.flush() == {(orders, 0): 2, (orders, 2): 2}
    producer.commit()
    producer.begin()
    producer.produce(orders, 0, [{"value": b"e"}])
    assert producer.flush() == {(orders, 0): 4}, "the marker of the first transaction takes offset 2"
    producer.commit()
    assert [seen.offset for seen in world.visible(orders, 3)[0]] == [0, 1, 3]


def test_high_watermarks_count_markers_and_open_transactions(world: World) -> None:
    orders, lines = topic_of(world, "orders", 2), topic_of(world, "lines")
    assert world.admin.end_offsets({orders: 2}) == {orders: [0, 0]}
    producer = started(world)
    producer.begin()
    producer.produce(orders, 1, [{"value": b"a"}])
    producer.commit()
    world.visible(orders, 2)
    assert world.admin.end_offsets({orders: 2}) == {orders: [0, 2]}
    producer.begin()
    producer.produce(orders, 0, [{"value": b"b"}])
    producer.flush()
    assert world.admin.end_offsets({orders: 2, lines: 1}) == {orders: [1, 2], lines: [0]}


def test_what_a_flush_tells_is_never_beyond_what_the_topic_holds_then_or_later(world: World) -> None:
    orders = topic_of(world, "orders", 2)
    producer = started(world)
    recorded = [0, 0]
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        producer.produce(orders, 0, [{"value": b"a"}])
        producer.produce(orders, 1, [{"value": b"b"}, {"value": b"c"}])
        for (_, partition), offset in producer.flush().items():
            assert offset > recorded[partition]
            recorded[partition] = offset
        assert lost_topics({orders: TopicState("", tuple(recorded))}, world.admin.states([orders])) == {}
        end()
        assert lost_topics({orders: TopicState("", tuple(recorded))}, world.admin.states([orders])) == {}


def test_a_topic_that_is_made_again_has_another_id(world: World) -> None:
    orders, lines = topic_of(world, "orders", 2), topic_of(world, "lines")
    missing = f"{world.prefix}.missing"
    before = world.admin.states([orders, missing, lines])
    assert {topic: state.ends for topic, state in before.items()} == {orders: (0, 0), lines: (0,)}
    assert world.admin.states([]) == {}
    world.delete(orders)
    assert world.admin.states([orders]) == {}
    topic_of(world, "orders", 2)
    after = world.admin.states([orders, lines])
    assert after[lines] == before[lines]
    assert after[orders].topic_id != before[orders].topic_id
    assert after[orders].topic_id


def test_the_settings_of_topics_are_those_that_they_were_made_with(world: World) -> None:
    orders = f"{world.prefix}.orders"
    world.admin.ensure(TopicSpec(orders, 1, 1, {"cleanup.policy": "compact", "retention.ms": "5000"}))
    assert world.admin.topic_configs([]) == {}
    [(topic, config)] = world.admin.topic_configs([orders]).items()
    assert (topic, config["cleanup.policy"], config["retention.ms"]) == (orders, "compact", "5000")


@pytest.mark.parametrize("turn", [0, 1])
def test_an_older_producer_is_fenced_and_its_open_transaction_ended(world: World, turn: int) -> None:
    orders = topic_of(world, "orders")
    zombie = started(world)
    for _ in range(turn):
        open_and_commit(zombie, orders)
    zombie.begin()
    zombie.produce(orders, 0, [{"value": b"zombie"}])
    zombie.flush()
    heir = started(world)
    heir.begin()
    heir.produce(orders, 0, [{"value": b"heir"}])
    heir.commit()
    with pytest.raises(Fenced):
        commit_one_more(zombie, orders)
    assert values(world.visible(orders, 1)[0]) == [b"one more"] * turn + [b"heir"]


def commit_one_more(producer: Producer, topic: str) -> None:
    producer.produce(topic, 0, [{"value": b"one more"}])
    producer.flush()
    producer.commit()


@pytest.mark.parametrize("turn", [0, 1])
def test_an_older_producer_without_an_open_transaction_is_fenced_when_it_opens_one(world: World, turn: int) -> None:
    orders = topic_of(world, "orders")
    zombie = started(world)
    for _ in range(turn):
        open_and_commit(zombie, orders)
    started(world)
    with pytest.raises(Fenced):
        open_and_commit(zombie, orders)
    assert values(world.visible(orders, 1)[0]) == [b"one more"] * turn


def open_and_commit(producer: Producer, topic: str) -> None:
    producer.begin()
    commit_one_more(producer, topic)


def test_producers_with_different_ids_do_not_disturb_each_other(world: World) -> None:
    orders = topic_of(world, "orders")
    one, two = started(world, "one"), started(world, "two")
    one.begin()
    two.begin()
    one.produce(orders, 0, [{"value": b"one"}])
    one.flush()
    two.produce(orders, 0, [{"value": b"two"}])
    two.commit()
    assert world.visible(orders, 1, while_open=True) == [[]], "the open transaction holds back what lies behind it"
    one.commit()
    assert values(world.visible(orders, 1)[0]) == [b"one", b"two"]


def test_start_gives_way_to_a_request_to_stop(world: World) -> None:
    assert not world.producer("id").start(lambda: True)


def test_a_producer_without_transactions_makes_rows_visible_once_they_are_flushed(world: World) -> None:
    orders = topic_of(world, "orders")
    producer = started(world, None)
    producer.begin()
    producer.produce(orders, 0, [{"value": b"a"}, {"value": b"b"}])
    assert producer.flush() == {(orders, 0): 2}
    assert values(world.visible(orders, 1)[0]) == [b"a", b"b"]
    producer.commit()
    producer.begin()
    producer.produce(orders, 0, [{"value": b"c"}])
    producer.commit()
    assert values(world.visible(orders, 1)[0]) == [b"a", b"b", b"c"]


def test_ensure_takes_a_topic_as_it_is(world: World) -> None:
    orders = topic_of(world, "orders", 3)
    assert world.admin.ensure(TopicSpec(orders, 7, 1)) == [3]


def test_ensure_finds_and_makes_many_topics_together(world: World) -> None:
    there = topic_of(world, "n1", 3)
    specs = [TopicSpec(f"{world.prefix}.n{number}", 2, 1) for number in range(4)]
    assert world.admin.ensure(*specs) == [2, 3, 2, 2]
    ends = world.admin.end_offsets({spec.name: 2 for spec in specs} | {there: 3})
    assert ends == {spec.name: [0, 0] for spec in specs} | {there: [0, 0, 0]}


def test_the_reader_finds_nothing_where_there_is_nothing(world: World) -> None:
    assert world.reader(f"{world.prefix}.progress").last(frozenset([b"slot"]), never) == {}
    progress = topic_of(world, "progress")
    assert world.reader(progress).last(frozenset([b"slot"]), never) == {}


def write(producer: Producer, topic: str, *messages: tuple[bytes, bytes | None]) -> None:
    producer.begin()
    producer.produce(topic, 0, [{"key": key, "value": value} for key, value in messages])
    producer.commit()


def test_the_reader_finds_the_last_committed_value_and_not_an_aborted_one(world: World) -> None:
    progress = topic_of(world, "progress")
    producer = started(world)
    write(producer, progress, (b"slot/t", b"t1"), (b"slot", b"1"))
    write(producer, progress, (b"slot/t", b"t2"), (b"slot", b"2"))
    producer.begin()
    producer.produce(progress, 0, [{"key": b"slot", "value": b"aborted"}])
    producer.flush()
    producer.abort()
    assert world.reader(progress).last(frozenset([b"slot"]), never) == {b"slot": b"2"}
    assert world.reader(progress).last(frozenset([b"slot/t", b"slot", b"other"]), never) == {
        b"slot": b"2",
        b"slot/t": b"t2",
    }


def test_the_reader_does_not_see_what_a_zombie_left_open(world: World) -> None:
    progress = topic_of(world, "progress")
    zombie = started(world)
    write(zombie, progress, (b"slot", b"1"))
    zombie.begin()
    zombie.produce(progress, 0, [{"key": b"slot", "value": b"zombie"}])
    zombie.flush()
    started(world)
    assert world.reader(progress).last(frozenset([b"slot"]), never) == {b"slot": b"1"}


def test_the_reader_takes_a_tombstone_for_nothing(world: World) -> None:
    progress = topic_of(world, "progress")
    producer = started(world)
    write(producer, progress, (b"slot", b"1"))
    write(producer, progress, (b"slot", None))
    assert world.reader(progress).last(frozenset([b"slot"]), never) == {}


def test_the_reader_finds_a_record_behind_thousands_of_others(world: World) -> None:
    progress = topic_of(world, "progress")
    producer = started(world)
    write(producer, progress, (b"old", b"0"), (b"older", b"gone"), (b"slot", b"0"))
    for number in range(30):
        write(producer, progress, *((b"other-%d" % key, b"%d" % number) for key in range(400)))
    write(producer, progress, (b"slot", b"1"))
    for _ in range(3):
        producer.begin()
        producer.produce(progress, 0, [{"key": b"slot", "value": b"aborted"}] * 700)
        producer.flush()
        producer.abort()
    found = world.reader(progress).last(frozenset([b"slot", b"old", b"other-399"]), never)
    assert found == {b"slot": b"1", b"old": b"0", b"other-399": b"29"}


def test_a_topic_keeps_its_leader_where_there_is_but_one_broker(world: World) -> None:
    assert world.admin.keeps_leader(topic_of(world, "progress"))
    assert not world.admin.keeps_leader(f"{world.prefix}.not-made-yet")


def test_a_topic_whose_name_collides_with_another_is_refused_by_its_name(world: World) -> None:
    world.admin.ensure(TopicSpec(f"{world.prefix}.public.order_items", 1, 1))
    name = f"{world.prefix}.public_order.items"
    with pytest.raises(Unpublishable) as raised:
        world.admin.ensure(TopicSpec(f"{world.prefix}.public.other", 1, 1), TopicSpec(name, 1, 1))
    assert raised.value.topic == name


def test_what_lies_between_two_cuts_is_what_lies_between_two_lsns(world: World) -> None:
    """The publisher on either broker: offsets of the table records cut the topic at exactly their LSN."""
    names, source = TopicNames(world.prefix), Source("slot", "1", 1)
    history = [(lsn, [b"%d" % (lsn * number % 11) for number in range(lsn % 7)]) for lsn in range(100, 200, 10)]
    for crash in (120, 160, None):
        producer = started(world)
        found = world.reader(names.progress).last(frozenset([b"slot"]), never)
        last = parse_slot_record(b"slot", found[b"slot"]) if found else None
        publisher = Publisher(producer, TableTopics(world.admin, names, TopicSettings(3, 1)), source, last)
        builder = BatchBuilder(tombstones=False)
        table = builder.open_table("public", "t")
        for lsn, keys in history:
            if last is not None and lsn < last.lsn:
                continue
            builder.begin(lsn, lsn)
            for key in keys:
                builder.add(table, ord("c"), key, b"%d" % lsn)
            builder.commit(lsn + 1)
            publisher.publish(builder.build(), 0.0)
            if lsn == crash:
                producer.flush()
                break
            publisher.commit()
    progress = world.visible(names.progress, 1)[0]
    records = [parse_record(seen.key or b"", seen.value) for seen in progress if seen.value is not None]
    assert [record.lsn for record in records if isinstance(record, SlotRecord)] == [lsn + 1 for lsn, _ in history]
    rows = world.visible(f"{world.prefix}.public.t", 3)
    before: tuple[int, ...] = (0, 0, 0)
    for record in records:
        if isinstance(record, TableRecord):
            between = [
                (seen.key, seen.value)
                for partition, start, end in zip(rows, before, record.offsets, strict=True)
                for seen in partition
                if start <= seen.offset < end
            ]
            ((_, keys),) = [(lsn, keys) for lsn, keys in history if lsn == record.commit_lsn]
            assert sorted(between) == sorted((key, b"%d" % record.commit_lsn) for key in keys)
            before = record.offsets


@pytest.fixture
def real(broker: str, prefix: str) -> Iterator[RealWorld]:
    made = RealWorld(broker, prefix)
    yield made
    made.close()


def test_the_reader_waits_for_another_slots_open_transaction_and_sees_what_lies_behind_it(real: RealWorld) -> None:
    progress = topic_of(real, "progress")
    ours, other = started(real, "ours"), started(real, "other")
    write(ours, progress, (b"slot", b"1"))
    other.begin()
    other.produce(progress, 0, [{"key": b"other", "value": b"1"}])
    other.flush()
    write(ours, progress, (b"slot", b"2"))
    timer = threading.Timer(0.5, other.commit)
    timer.start()
    assert real.reader(progress).last(frozenset([b"slot"]), never) == {b"slot": b"2"}
    timer.join()


def test_where_nobody_is_fenced_the_highest_value_counts_and_a_tombstone_starts_anew(real: RealWorld) -> None:
    progress = topic_of(real, "progress")

    def last() -> dict[bytes, bytes]:
        reader = KafkaProgressReader(real.reading(progress), rank=lambda _, value: int(value))
        return reader.last(frozenset([b"slot"]), never)

    zombie, heir = started(real, None), started(real, None)
    write(zombie, progress, (b"slot", b"100"))
    write(heir, progress, *((b"slot/t%d" % number, b"x") for number in range(1_500)), (b"slot", b"300"))
    write(zombie, progress, *((b"slot/t%d" % number, b"x") for number in range(1_500)), (b"slot", b"200"))
    assert last() == {b"slot": b"300"}
    write(heir, progress, (b"slot", None))
    assert last() == {}
    write(heir, progress, (b"slot", b"50"))
    assert last() == {b"slot": b"50"}


def test_the_reader_names_the_transaction_that_nobody_ends(real: RealWorld) -> None:
    progress = topic_of(real, "progress")
    other = started(real, "other")
    other.begin()
    other.produce(progress, 0, [{"key": b"other", "value": b"1"}])
    other.flush()
    reader = KafkaProgressReader(real.reading(progress, timeout_s=1))
    with pytest.raises(KafkaUnavailable, match="left a transaction open"):
        reader.last(frozenset([b"slot"]), never)


@pytest.mark.parametrize("has_headers", [False, True])
def test_a_full_queue_delays_but_never_reorders_or_drops(real: RealWorld, has_headers: bool) -> None:
    orders = topic_of(real, "orders")
    small: dict[str, Any] = {"queue.buffering.max.kbytes": 4}
    connection = KafkaConnection(real.bootstrap, "contract", small)
    for producer in (KafkaProducer(connection, f"{real.prefix}-small"), IdempotentProducer(connection)):
        producer.start(never)
        producer.begin()
        real.visible(orders, 1)  # waits until the marker of the transaction before is there
        [start] = real.admin.end_offsets({orders: 1})[orders]
        messages: list[Message] = [{"key": b"k", "value": b"%d" % number} for number in range(5_000)]
        producer.produce(orders, 0, messages, has_headers=has_headers)
        assert producer.flush() == {(orders, 0): start + 5_000}
        producer.commit()
        producer.close()
    expected = [b"%d" % number for number in range(5_000)]
    assert values(real.visible(orders, 1)[0]) == expected + expected


def test_a_row_that_needs_the_whole_queue_passes_alone_and_in_its_place(real: RealWorld) -> None:
    orders = topic_of(real, "orders")
    connection = KafkaConnection(real.bootstrap, "contract", {"queue.buffering.max.kbytes": 1_000})
    producer = KafkaProducer(connection, f"{real.prefix}-tight")
    producer.start(never)
    producer.begin()
    sizes = [10, 300_000, 1_000_000, 10, 900_000, 900_000, 10]
    producer.produce(orders, 0, [{"value": b"x" * size} for size in sizes])
    producer.commit()
    producer.close()
    assert [len(value or b"") for value in values(real.visible(orders, 1)[0])] == sizes


@pytest.mark.parametrize(("transactional", "has_headers"), [(True, False), (False, False), (True, True)])
def test_a_row_larger_than_the_whole_queue_is_refused_with_the_cure(
    real: RealWorld, transactional: bool, has_headers: bool
) -> None:
    orders = topic_of(real, "orders")
    connection = KafkaConnection(real.bootstrap, "contract", {"queue.buffering.max.kbytes": 1_000})
    producer = made(connection, f"{real.prefix}-tight" if transactional else None)
    producer.start(never)
    producer.begin()
    messages: list[Message] = [{"value": b"a"}, {"key": b"k", "value": b"x" * 2_000_000}, {"value": b"c"}]
    began = time.monotonic()
    with pytest.raises(
        RequestRejected, match=r"row of 2,000,001 bytes.*queue\.buffering\.max\.kbytes.*max\.message\.bytes"
    ):
        producer.produce(orders, 0, messages, has_headers=has_headers)
    assert time.monotonic() - began < 10
    producer.close()


def test_a_row_of_100_mb_passes_where_the_topic_allows_it(real: RealWorld) -> None:
    topic = f"{real.prefix}.large"
    real.admin.ensure(TopicSpec(topic, 1, 1, {"max.message.bytes": str(100 * 1024 * 1024)}))
    producer = started(real)
    producer.begin()
    producer.produce(topic, 0, [{"value": bytes(100_000_000)}, {"value": b"next"}])
    assert producer.flush() == {(topic, 0): 2}
    producer.commit()


def test_a_large_list_lets_other_threads_run(real: RealWorld) -> None:
    orders = topic_of(real, "orders")
    producer = started(real)
    producer.begin()
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.0001)

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.monotonic()
    producer.produce(orders, 0, [{"key": b"k", "value": b"v" * 100} for _ in range(100_000)])
    ended = time.monotonic()
    done.set()
    thread.join()
    assert sum(began < at < ended for at in ticks) >= 20
    producer.commit()


def test_a_client_that_is_dropped_frees_its_threads_at_once(real: RealWorld) -> None:
    def threads() -> int:
        return sum(1 for _ in Path("/proc/self/task").iterdir())

    def use_admin() -> None:
        admin = KafkaAdmin(real.connection)
        assert admin.partitions([f"{real.prefix}.nosuch"]) == {}
        assert admin.ensure(TopicSpec(f"{real.prefix}.{time.monotonic_ns()}", 1, 1)) == [1]
        assert admin.transaction_timeout_max_ms()
        with pytest.raises(RequestRejected):
            admin.ensure(*(TopicSpec(f"{real.prefix}.bad{number}", 1, 99) for number in range(3)))

    def use_producer() -> None:
        producer = KafkaProducer(real.connection, f"{real.prefix}-threads")
        producer.start(never)
        write(producer, orders, (b"k", b"v"))

    def use_consumer() -> None:
        assert real.reader(orders).last(frozenset([b"k"]), never)

    orders = topic_of(real, "orders")
    for use in (use_producer, use_admin, use_consumer):
        gc.collect()
        gc.disable()
        try:
            before = threads()
            use()
            deadline = time.monotonic() + 5
            while threads() > before:  # librdkafka joins its threads; the kernel may list them a little longer
                assert time.monotonic() < deadline, use.__name__
                time.sleep(0.01)
        finally:
            gc.enable()


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_record_larger_than_the_topic_allows_is_refused_with_the_cure(
    real: RealWorld, transactional: bool, at: int
) -> None:
    topic = f"{real.prefix}.small"
    real.admin.ensure(TopicSpec(topic, 1, 1, {"max.message.bytes": "10000"}))
    connection = KafkaConnection(real.bootstrap, "contract", {"compression.type": "none"})
    producer = made(connection, f"{real.prefix}-big" if transactional else None)
    producer.start(never)
    producer.begin()
    messages: list[Any] = [{"value": b"a"}, {"value": b"b"}, {"value": b"c"}]
    messages[at] = {"value": b"x" * 50_000}
    with pytest.raises(RequestRejected, match=r"max\.message\.bytes"):
        produce_and_commit(producer, topic, messages)
    producer.close()


def produce_and_commit(producer: Producer, topic: str, messages: list[Any]) -> None:
    producer.produce(topic, 0, messages)
    producer.flush()
    producer.commit()


def test_a_transaction_that_outlived_its_timeout_is_lost_not_fenced(real: RealWorld) -> None:
    orders = topic_of(real, "orders")
    producer = KafkaProducer(real.connection, f"{real.prefix}-slow", transaction_timeout_ms=1_000)
    producer.start(never)
    producer.begin()
    producer.produce(orders, 0, [{"value": b"slow"}])
    producer.flush()
    deadline = time.monotonic() + 30
    with pytest.raises(KafkaUnavailable, match=r"transaction\.timeout\.ms"):  # noqa: PT012
        while time.monotonic() < deadline:
            time.sleep(1.0)
            producer.produce(orders, 0, [{"value": b"slow"}])
            producer.flush()
    producer.close()
    assert values(real.visible(orders, 1)[0]) == []


def test_a_transaction_that_was_prepared_begins_when_it_is_opened(real: RealWorld) -> None:
    orders = topic_of(real, "orders")
    producer, heir = (
        KafkaProducer(real.connection, f"{real.prefix}-ready", transaction_timeout_ms=1_000) for _ in range(2)
    )
    producer.start(never)
    for turn in range(2):
        producer.begin_next()
        producer.begin_next()
        time.sleep(1.5)
        if turn:
            heir.start(never)
        producer.begin()
        producer.begin_next()  # harmless: one is open
        producer.produce(orders, 0, [{"value": b"row"}])
        if not turn:
            producer.commit()
    with pytest.raises(Fenced):
        producer.flush()
    producer.close()
    heir.begin_next()
    heir.close()
    assert values(real.visible(orders, 1)[0]) == [b"row"]


def test_a_transaction_timeout_that_the_broker_does_not_allow_is_refused(real: RealWorld) -> None:
    producer = KafkaProducer(real.connection, f"{real.prefix}-long", transaction_timeout_ms=2_000_000_000)
    with pytest.raises(RequestRejected, match=r"transaction\.max\.timeout\.ms"):
        producer.start(never)
    producer.close()


def test_the_users_transaction_timeout_counts_where_the_broker_allows_less_than_we_believe(real: RealWorld) -> None:
    properties: dict[str, Any] = {"transaction.timeout.ms": 5_000}
    connection = KafkaConnection(real.bootstrap, "contract", properties)
    producer = KafkaProducer(connection, f"{real.prefix}-short", 2_000_000_000)
    assert producer.start(never)
    producer.close()


def test_the_transaction_timeout_that_the_broker_allows_is_known(broker: str) -> None:
    assert KafkaAdmin(KafkaConnection(broker, "contract")).transaction_timeout_max_ms() == 900_000


@pytest.mark.parametrize(
    "call",
    [
        lambda address: KafkaProducer(KafkaConnection(address, "c"), "id", timeout_s=1).start(never),
        lambda address: KafkaAdmin(KafkaConnection(address, "c"), timeout_s=1).ensure(TopicSpec("t", 1, 1)),
        lambda address: KafkaAdmin(KafkaConnection(address, "c"), timeout_s=1).transaction_timeout_max_ms(),
    ],
)
def test_a_broker_that_nobody_runs_is_named(call: Callable[[str], object]) -> None:
    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:1\b.*Connection refused"):
        call("127.0.0.1:1")


@pytest.mark.parametrize(
    "call",
    [
        lambda connection: KafkaProducer(connection, "id").start(never),
        lambda connection: KafkaAdmin(connection, timeout_s=2).ensure(TopicSpec("t", 1, 1)),
    ],
)
def test_refused_credentials_are_for_a_person_to_mend(
    broker: str, call: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    with pytest.raises(RequestRejected, match=r"sasl\.\*"):
        call(KafkaConnection(broker, "c", properties))
    assert len(caplog.records) <= 3, "librdkafka repeats itself at every attempt"


@pytest.mark.parametrize("make", [KafkaAdmin, IdempotentProducer, lambda connection: KafkaProducer(connection, "id")])
@pytest.mark.parametrize(
    "properties", [{"socket.nosuch": 1}, {"socket.timeout.ms": "soon"}, {"transactional.id": "mine"}]
)
def test_a_property_that_is_unknown_or_not_the_users_is_a_wrong_setting(
    make: Callable[..., object], properties: Any
) -> None:
    with pytest.raises(SettingsError):
        make(KafkaConnection("127.0.0.1:1", "c", properties))


@pytest.mark.parametrize(
    "spec", [TopicSpec("t", 1, 3), TopicSpec("t", 1, 1, {"no.such": "1"}), TopicSpec("t", 1, 1, {"retention.ms": "x"})]
)
def test_a_topic_that_cannot_be_made_is_refused_with_the_setting_to_change(real: RealWorld, spec: TopicSpec) -> None:
    spec = TopicSpec(f"{real.prefix}.{spec.name}", spec.partitions, spec.replication_factor, spec.config)
    good = TopicSpec(f"{real.prefix}.good", 1, 1)
    with pytest.raises(
        RequestRejected, match=rf"creating the topic {spec.name}:.*sink\.(replication_factor|topic_config)"
    ):
        real.admin.ensure(good, spec)


class Counting:
    """An admin client that counts the topics of each request."""

    def __init__(self, client: Any, counts: list[int]) -> None:
        self._client = client
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_topics(self, new: list[Any], **more: Any) -> Any:
        self._counts.append(len(new))
        return self._client.create_topics(new, **more)


def test_topics_are_made_by_few_requests_that_no_controller_finds_too_large(real: RealWorld) -> None:
    counts: list[int] = []
    usual, small = KafkaAdmin(real.connection), KafkaAdmin(real.connection, request_records_max=10)
    for admin in (usual, small):
        admin._calls._client = Counting(admin._calls._client, counts)  # type: ignore[assignment]
    assert usual.ensure(*(TopicSpec(f"{real.prefix}.n{n}", 1, 1) for n in range(100))) == [1] * 100
    specs = [TopicSpec(f"{real.prefix}.m{n}", 2, 1, {"retention.ms": "1"}) for n in range(5)]
    assert small.ensure(*specs, TopicSpec(f"{real.prefix}.wide", 11, 1)) == [2, 2, 2, 2, 2, 11]
    assert counts == [100, 2, 2, 1, 1]
    usual.close()
    small.close()


def test_a_topic_that_somebody_else_makes_meanwhile_is_taken_as_it_is(
    real: RealWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [TopicSpec(f"{real.prefix}.n{number}", 1, 1) for number in range(3)]
    create = real.real_admin._creation.create

    def late(missing: list[TopicSpec]) -> list[TopicSpec]:
        other = KafkaAdmin(real.connection)
        other.ensure(TopicSpec(specs[1].name, 5, 1))
        other.close()
        return create(missing)

    monkeypatch.setattr(real.real_admin._creation, "create", late)
    assert real.admin.ensure(*specs) == [1, 5, 1]


def test_two_topics_that_kafka_takes_as_one_are_refused(real: RealWorld) -> None:
    topic_of(real, "a.b_c")
    with pytest.raises(RequestRejected, match=r"sink\.topic"):
        topic_of(real, "a_b.c")
    with pytest.raises(RequestRejected, match=r"sink\.topic"):
        real.admin.ensure(*(TopicSpec(f"{real.prefix}.{name}", 1, 1) for name in ("d.e_f", "d_e.f")))


def test_tables_that_kafka_takes_as_one_are_kept_apart_by_the_template_of_the_cure(real: RealWorld) -> None:
    tables = [("sales_eu", "orders"), ("sales", "eu_orders")]
    names = TopicNames(real.prefix)
    assert real.admin.ensure(TopicSpec(names.topic(*tables[0]), 1, 1)) == [1]
    with pytest.raises(RequestRejected, match=r"\{prefix\}\.\{schema\}-\{table\}"):
        real.admin.ensure(TopicSpec(names.topic(*tables[1]), 1, 1))
    cured = TopicNames(real.prefix, "{prefix}.{schema}-{table}")
    assert real.admin.ensure(*(TopicSpec(cured.topic(*table), 1, 1) for table in tables)) == [1, 1]


def test_partitions_are_those_of_kafkas_own_murmur2_partitioner(real: RealWorld) -> None:
    topic = topic_of(real, "murmur", 7)
    keys = [b"%d" % number * (number % 9) + b"\xff" * (number % 4) for number in range(500)]
    oracle = librdkafka.Producer({"bootstrap.servers": real.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        if key:  # without a key that partitioner picks any
            oracle.produce(topic, b"v", key)
    assert oracle.flush(10) == 0
    for partition, seen in enumerate(real.visible(topic, 7)):
        for record in seen:
            assert partition_for(record.key or b"", 7) == partition


@pytest.mark.slow
def test_an_outage_of_the_broker_in_the_middle_of_a_transaction_is_waited_out(start_kafka: Callable[..., Any]) -> None:
    kafka = start_kafka()
    world = RealWorld(kafka.bootstrap, "outage")
    orders = topic_of(world, "orders")
    producer = started(world)
    producer.begin()
    producer.produce(orders, 0, [{"value": b"before"}])
    producer.flush()
    kafka.restart()
    producer.produce(orders, 0, [{"value": b"after"}])
    assert producer.flush() == {(orders, 0): 2}
    kafka.restart()
    producer.commit()
    assert values(world.visible(orders, 1)[0]) == [b"before", b"after"]
    world.close()


@pytest.mark.slow
def test_a_broker_that_does_not_come_back_is_lost_and_its_heir_goes_on_from_the_progress(
    start_kafka: Callable[..., Any],
) -> None:
    kafka = start_kafka()
    world = RealWorld(kafka.bootstrap, "lost")
    orders, progress = topic_of(world, "orders"), topic_of(world, "progress")
    producer = KafkaProducer(world.connection, "lost", timeout_s=2)
    producer.start(never)
    write(producer, progress, (b"slot", b"1"))
    producer.begin()
    producer.produce(orders, 0, [{"value": b"half"}])
    producer.flush()
    kafka.kill()
    producer.produce(progress, 0, [{"key": b"slot", "value": b"2"}])
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable, match="committing a transaction"):
        producer.commit()
    producer.close()
    assert time.monotonic() - began < 15
    kafka.start()
    heir = KafkaProducer(world.connection, "lost", timeout_s=30)
    assert heir.start(never)
    assert world.reader(progress).last(frozenset([b"slot"]), never) == {b"slot": b"1"}
    assert values(world.visible(orders, 1)[0]) == []
    write(heir, progress, (b"slot", b"2"))
    assert world.reader(progress).last(frozenset([b"slot"]), never) == {b"slot": b"2"}
    heir.close()


def test_the_answer_of_a_commit_that_was_given_up_ends_no_process(start_kafka: Callable[..., Any]) -> None:
    kafka = start_kafka()
    world = RealWorld(kafka.bootstrap, "given-up")
    orders = topic_of(world, "orders")
    producer = KafkaProducer(world.connection, "given-up", timeout_s=2)
    assert producer.start(never)
    producer.begin()
    producer.produce(orders, 0, [{"value": b"a"}])
    producer.flush()
    kafka.pause()
    with pytest.raises(KafkaUnavailable, match="committing a transaction"):
        producer.commit()
    with pytest.raises(KafkaUnavailable, match="committing a transaction"):
        producer.abort()
    kafka.resume()
    # Without an heir, who would fence the request: the answer must come while this producer is there.
    until(lambda: values(world.visible(orders, 1, while_open=True)[0]) == [b"a"], 30)
    producer.poll()
    producer.close()
    world.close()


def test_a_producer_that_kafka_has_forgotten_loses_its_transaction_and_an_heir_writes_on(
    start_kafka: Callable[..., Any],
) -> None:
    expiration = ("transactional.id.expiration.ms", "producer.id.expiration.ms")
    checks = (
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "producer.id.expiration.check.interval.ms",
    )
    kafka = start_kafka(settings=dict.fromkeys(expiration, "1000") | dict.fromkeys(checks, "200"))
    world = RealWorld(kafka.bootstrap, "idle")
    orders = topic_of(world, "orders")
    producer = started(world)
    with pytest.raises(KafkaUnavailable, match="INVALID_PRODUCER_ID_MAPPING"):  # noqa: PT012
        for idle_s in (0.0, 0.0, 2.0, 4.0, 8.0, 16.0):  # a write starts the time anew
            time.sleep(idle_s)
            write(producer, orders, (b"a", b"before"))
    before = values(world.visible(orders, 1)[0])
    heir = started(world)
    write(heir, orders, (b"a", b"after"))
    assert values(world.visible(orders, 1)[0]) == [*before, b"after"]
    world.close()


@pytest.mark.in_turns(2)
@pytest.mark.slow
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_end_that_reaches_the_broker_late_ends_no_transaction_but_its_own(end: str) -> None:
    # The first request is lost on its way and repeated; it comes when the next transaction has written its first half.
    with proxied_kafka() as (kafka, proxy):
        world = RealWorld(kafka.bootstrap, "late")
        orders, others = topic_of(world, "orders"), topic_of(world, "others")
        producer = KafkaProducer(KafkaConnection(f"127.0.0.1:{proxy.port}", "contract"), "late", timeout_s=20)
        producer.start(never)
        late = proxy.late(is_end_of_transaction)
        producer.begin()
        producer.produce(orders, 0, [{"value": b"first"}])
        producer.flush()
        getattr(producer, end)()
        with pytest.raises(KafkaUnavailable, match="may have sent the request twice"):
            producer.begin()
        producer.close()
        heir = KafkaProducer(KafkaConnection(f"127.0.0.1:{proxy.port}", "contract"), "late", timeout_s=20)
        assert heir.start(never)
        heir.begin()
        heir.produce(orders, 0, [{"value": b"half"}])
        heir.flush()
        assert late.hand_on()
        visible = [b"first"] if end == "commit" else []
        assert values(world.visible(orders, 1, while_open=True)[0]) == visible
        heir.produce(others, 0, [{"value": b"other half"}])
        heir.commit()
        assert values(world.visible(orders, 1)[0]) == [*visible, b"half"]
        assert values(world.visible(others, 1)[0]) == [b"other half"]
        heir.close()
        world.close()


@pytest.mark.slow
def test_a_record_that_reaches_the_broker_late_is_of_no_later_transaction() -> None:
    # Without verification, as up to Kafka 3.5, the broker takes it: into a transaction that the next marker ends.
    with proxied_kafka({"transaction.partition.verification.enable": "false"}) as (kafka, proxy):
        world = RealWorld(kafka.bootstrap, "late")
        orders = topic_of(world, "orders")
        producer = KafkaProducer(KafkaConnection(f"127.0.0.1:{proxy.port}", "contract"), "late", timeout_s=20)
        producer.start(never)
        late = proxy.late(is_produce)
        producer.begin()
        producer.produce(orders, 0, [{"value": b"row"}])
        until(lambda: not late.armed.waiting, 10)
        time.sleep(0.2)  # the producer has heard of it, and has not sent it again
        producer.close()
        heir = KafkaProducer(KafkaConnection(f"127.0.0.1:{proxy.port}", "contract"), "late", timeout_s=20)
        assert heir.start(never)
        assert late.hand_on()
        heir.begin()
        heir.produce(orders, 0, [{"value": b"row"}])
        heir.commit()
        heir.close()
        assert values(world.visible(orders, 1)[0]) == [b"row"]
        world.close()


@pytest.mark.whole
@pytest.mark.slow
def test_commits_that_are_all_slow_cost_one_new_producer_and_not_one_each() -> None:
    # 0.45 s each way: a commit takes 0.9 s, longer than the pause after which librdkafka may repeat its request.
    with proxied_kafka() as (kafka, proxy):
        world = RealWorld(kafka.bootstrap, "slow")
        orders = topic_of(world, "orders")
        connection = KafkaConnection(f"127.0.0.1:{proxy.port}", "contract")
        proxy.delay(0.45)
        written, renewed = [], 0
        producer = KafkaProducer(connection, "slow", timeout_s=60)
        assert producer.start(never)
        for number in range(4):
            try:
                producer.begin()
            except KafkaUnavailable as error:
                assert "may have sent the request twice" in error.message  # noqa: PT017
                renewed += 1
                producer.close()
                producer = KafkaProducer(connection, "slow", timeout_s=60)
                assert producer.start(never)
                producer.begin()
            written.append(b"%d" % number)
            producer.produce(orders, 0, [{"value": written[-1]}])
            producer.commit()
        producer.close()
        proxy.delay(0.0)
        assert renewed == 1
        assert values(world.visible(orders, 1)[0]) == written
        world.close()


@pytest.mark.slow
def test_an_offset_that_nobody_answered_is_asked_for_again() -> None:
    # librdkafka says -1001, and no error: an empty progress it would be, and all that it tells of be published again.
    with proxied_kafka() as (kafka, proxy):
        world = RealWorld(kafka.bootstrap, "cut")
        orders = topic_of(world, "orders")
        producer = started(world)
        write(producer, orders, (b"k", b"v"))
        assert values(world.visible(orders, 1)[0]) == [b"v"]
        admin = KafkaAdmin(KafkaConnection(f"127.0.0.1:{proxy.port}", "contract"))
        assert admin.end_offsets({orders: 1}) == {orders: [2]}  # and its connection is there
        lost = proxy.arm(is_list_offsets, Link.lose)
        assert admin.end_offsets({orders: 1}) == {orders: [2]}
        assert not lost.waiting
        lost = proxy.arm(is_list_offsets, Link.lose)
        assert admin.unstable(lambda topic: topic.startswith("cut.")) == {}
        assert not lost.waiting
        admin.close()
        world.close()


def test_close_is_quick_and_quiet_in_any_state(real: RealWorld) -> None:
    orders = topic_of(real, "orders")
    unreachable = KafkaProducer(NOWHERE, "id", timeout_s=0.5)
    with pytest.raises(KafkaUnavailable):
        unreachable.start(never)
    in_the_middle = started(real, "middle")
    in_the_middle.begin()
    in_the_middle.produce(orders, 0, [{"value": b"x"}] * 1_000)
    fenced = started(real, "fenced")
    fenced.begin()
    fenced.produce(orders, 0, [{"value": b"y"}])
    started(real, "fenced").close()
    for producer in (unreachable, in_the_middle, fenced):
        began = time.monotonic()
        producer.close()
        producer.close()
        assert time.monotonic() - began < 3
    assert values(real.visible(orders, 1)[0]) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.ensure(TopicSpec("t", 1, 1)),
        lambda admin: admin.end_offsets({"t": 1}),
        lambda admin: admin.transaction_timeout_max_ms(),
    ],
)
def test_a_shortened_deadline_bounds_a_question_that_is_under_way(call: Callable[[KafkaAdmin], object]) -> None:
    admin = KafkaAdmin(NOWHERE, timeout_s=60)
    threading.Timer(0.3, admin.shorten_deadlines, [0.2]).start()
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable):
        call(admin)
    assert time.monotonic() - began < 1.5
    admin.close()


def test_a_client_that_was_closed_under_a_call_says_so() -> None:
    admin, producer = KafkaAdmin(NOWHERE), IdempotentProducer(NOWHERE)
    admin.close()
    producer.close()
    with pytest.raises(KafkaUnavailable, match="admin client was closed"):
        admin.partitions(["t"])
    with pytest.raises(KafkaUnavailable, match="producer was closed"):
        producer.poll()


def test_a_shortened_deadline_bounds_a_call_that_is_under_way(broker: str) -> None:
    producer = IdempotentProducer(NOWHERE, timeout_s=60)
    producer.start(never)
    producer.begin()
    producer.produce("t", 0, [{"value": b"x"}])
    threading.Timer(0.3, producer.shorten_deadlines, [0.2]).start()
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable):
        producer.flush()
    assert time.monotonic() - began < 5
    producer.close()


class Hanging:
    """A client whose commit never ends, although the broker answers what else it asks."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def commit_transaction(self, timeout: float) -> None:
        time.sleep(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "not yet", False, True))


def test_a_client_that_hangs_although_kafka_answers_is_given_up(real: RealWorld) -> None:
    # Found by chaos: after a connection to the coordinator was cut, a commit waited for an answer for ever.
    orders = topic_of(real, "orders")
    stuck_client = StuckClient(real.connection, suspicious_s=0.3, stuck_s=0.5)
    producer = KafkaProducer(real.connection, f"{real.prefix}-hangs", timeout_s=20, stuck_client=stuck_client)
    assert producer.start(never)
    producer.begin()
    producer.produce(orders, 0, [{"key": b"k", "value": b"v"}])
    producer.flush()
    producer._client = Hanging(producer._client)  # type: ignore[assignment]
    with pytest.raises(KafkaUnavailable, match="answers, but this client makes no progress"):
        producer.commit()
