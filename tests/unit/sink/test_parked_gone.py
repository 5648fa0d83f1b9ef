"""Parked events that cannot be read any more: the others go on, and the table is given a way back."""

from __future__ import annotations

import pytest
from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer, FakeReading

from cdcd.avro.event_encoder import CREATE
from cdcd.errors import GapError, Unpublishable
from cdcd.progress.daemon_requests import DISCARD, UNPARK, request
from cdcd.progress.records import SlotRecord, parse_slot_record
from cdcd.progress.snapshot_records import WANTED, parse_copy
from cdcd.sink.batches import BatchBuilder
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.parking.wire_format import SCANNED_MAX, PendingParking
from cdcd.sink.publisher import Publisher, Source, TopicSettings
from cdcd.sink.topics import TopicNames

NAMES = TopicNames("p")
A, B = ("public", "a"), ("public", "b")


class Life:
    """Publishers of one slot, one after the other."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.parking = PendingParking()
        self.lsn = 0
        self.scanned_max = SCANNED_MAX
        self.start()

    def last(self) -> SlotRecord | None:
        found = KafkaProgressReader(FakeReading(self.broker, NAMES.progress)).last(frozenset([b"s"]), lambda: False)
        return parse_slot_record(b"s", found[b"s"]) if found else None

    def start(self) -> None:
        producer = FakeProducer(self.broker, "p-s")
        producer.start(lambda: False)
        reader = KafkaParkedReader(FakeReading(self.broker, NAMES.parked), scanned_max=self.scanned_max)  # type: ignore[arg-type]
        self.publisher = Publisher(
            producer,
            FakeAdmin(self.broker),
            NAMES,
            TopicSettings(1, 1),
            Source("s", "1", 1),
            self.last(),
            parking=self.parking,
            parked_reader=reader,
        )

    def publish(self, table: tuple[str, str], *values: bytes, asks: str = "") -> None:
        builder = BatchBuilder(tombstones=False)
        self.lsn += 0x10
        builder.begin(self.lsn, self.lsn)
        for value in values:
            builder.add(builder.open_table(*table), CREATE, b"k", value)
        if asks:
            builder.request(request(asks, *A).encode())
        builder.commit(self.lsn + 8)
        self.publisher.publish(builder.take(), 0.0)
        self.publisher.commit()

    def topic(self, table: tuple[str, str]) -> list[bytes | None]:
        name = NAMES.topic(*table)
        return [seen.value for seen in self.broker.visible(name)[0]] if name in self.broker.topics else []


@pytest.fixture
def life() -> Life:
    """Table a is parked, with an event; b is published."""
    life = Life()
    life.parking.parked[A] = "too large"
    life.start()
    life.publish(A, b"1")
    life.publish(B, b"2")
    assert (life.topic(A), life.topic(B)) == ([], [b"2"])
    return life


def refuse(life: Life) -> None:
    """What the supervisor does with a replay that is refused."""
    with pytest.raises(Unpublishable) as raised:
        life.publisher.unpark(0.0)
    assert (raised.value.table, raised.value.gone, raised.value.unparking) == (A, True, True)
    life.parking.refused[A] = raised.value.message
    life.start()
    while life.publisher.unparking:
        life.publisher.unpark(0.0)


def test_a_table_whose_parked_events_are_gone_stays_parked_and_the_others_go_on(life: Life) -> None:
    del life.broker.topics[NAMES.parked]
    life.publish(B, b"3", asks=UNPARK)
    refuse(life)
    last = life.last()
    assert last is not None
    [parked] = last.parked
    assert "was removed" in parked.reason
    assert not parked.unparking
    life.publish(B, b"4")
    assert (life.topic(A), life.topic(B)) == ([], [b"2", b"3", b"4"])


def test_what_is_given_up_is_passed_over_and_a_fresh_copy_is_wanted(life: Life) -> None:
    del life.broker.topics[NAMES.parked]
    life.publish(B, b"3", asks=UNPARK)
    refuse(life)
    life.publish(A, b"4", asks=DISCARD)
    life.publish(A, b"5")  # before the replay: parked, and behind what was given up
    life.start()
    while life.publisher.unparking:
        life.publisher.unpark(0.0)
    last = life.last()
    assert last is not None
    assert last.parked == ()
    life.publish(A, b"6")
    assert life.topic(A) == [b"5", b"6"]
    found = KafkaProgressReader(FakeReading(life.broker, NAMES.snapshots)).every(lambda: False)
    [copy] = [parse_copy(*record) for record in found.items()]
    assert (copy.schema, copy.table, copy.state) == (*A, WANTED)


def test_nothing_is_given_up_of_a_table_that_is_not_parked(life: Life) -> None:
    life.publish(A, b"3", asks=UNPARK)
    life.publisher.unpark(0.0)
    life.publish(A, b"4", asks=DISCARD)
    assert not life.publisher.unparking
    assert life.topic(A) == [b"1", b"3", b"4"]


def test_other_tables_events_are_passed_piece_by_piece(life: Life) -> None:
    life.scanned_max = 4
    life.parking.parked[B] = "too large"
    life.start()
    for number in range(10):
        life.publish(B, b"other %d" % number)
    life.publish(A, b"3", asks=UNPARK)
    offsets = []
    while life.publisher.unparking:
        life.publisher.unpark(0.0)
        offsets += [each.offset for each in life.publisher.last.parked if each.table == "a"]  # type: ignore[union-attr]
    assert life.topic(A) == [b"1", b"3"]
    assert len(offsets) >= 2, "each piece is durable"


def test_a_parked_topic_that_is_not_there_is_a_gap() -> None:
    with pytest.raises(GapError, match="was removed"):
        KafkaParkedReader(FakeReading(FakeBroker(), NAMES.parked)).read(b"s/p.public.a", 0)  # type: ignore[arg-type]
