"""Parked tables: every event on its topic or on the parked one, in order, once, whatever is killed when."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer, FakeReading

from cdcd.errors import GapError, KafkaUnavailable, Unpublishable
from cdcd.progress.daemon_requests import UNPARK, request, table_of
from cdcd.progress.records import ParkedTable, SlotRecord, parse_slot_record
from cdcd.progress.snapshot_records import COPYING, DONE, WANTED, TableSnapshot, parse_copy
from cdcd.sink.batches import BatchBuilder, Message, TableBatch
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.parking import wire_format
from cdcd.sink.parking.wire_format import ParkedEvent, ParkedPiece, PartAssembler, PendingParking, batch_of
from cdcd.sink.publisher import Publisher, Source, TopicSettings
from cdcd.sink.topics import TopicNames

INSERT = ord("c")
DELETE = ord("d")
NAMES = TopicNames("p")
PARKED = ParkedTable("public", "a", "too large", 0x100, 7)
SOURCE = Source("s", "7", 1)

events = st.builds(
    ParkedEvent,
    st.sampled_from(b"cudt\0"),
    st.none() | st.binary(max_size=30),
    st.none() | st.binary(max_size=3000),
    st.booleans(),
)


@given(st.lists(events, max_size=8), st.integers(1, 700))
def test_parked_events_come_back_as_they_were(given_: list[ParkedEvent], part_bytes: int) -> None:
    batch = batch_of(PARKED, given_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_format, "PART_BYTES", part_bytes)
        records = list(wire_format.records(b"s/p.public.a", PARKED, batch))
    assert {record["key"] for record in records} <= {b"s/p.public.a"}
    assembly, back = PartAssembler(), []
    for offset, record in enumerate(records):
        assert record["value"] is not None
        event = assembly.add(offset, record["value"])
        if event is not None:
            assert assembly.whole
            back.append(event)
    assert back == given_
    assert assembly.whole


def test_a_part_that_is_missing_is_a_gap() -> None:
    batch = TableBatch("public", "a")
    batch.messages.append({"key": b"k", "value": b"x" * (wire_format.PART_BYTES * 3)})
    batch.ops.append(INSERT)
    first, _, third = wire_format.records(b"key", PARKED, batch)
    assembly = PartAssembler()
    assembly.add(5, first["value"] or b"")
    with pytest.raises(GapError, match="offset 9 cannot be read: part 3 comes after 1 parts"):
        assembly.add(9, third["value"] or b"")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version": 2}', b"[1]", b"\xff"])
def test_what_is_no_parked_record_is_a_gap(data: bytes) -> None:
    with pytest.raises(GapError, match="cannot be read"):
        PartAssembler().add(0, data)


def test_a_request_names_any_table() -> None:
    for table in (("public", "t"), ("a.b", 'c"d'), ("ñ", " ")):
        assert table_of(UNPARK, request(UNPARK, *table).encode()) == table
    for other in (b"", b"{}", b'{"unpark": 5}', b'{"snapshot": {}}', b"\xff"):
        assert table_of(UNPARK, other) is None


def test_the_slot_record_carries_what_is_parked() -> None:
    record = SlotRecord("s", 2, 1, 1, "7", 1, 1, 1, (PARKED, ParkedTable("x", "y", "z", 0, 0, unparking=True)))
    assert parse_slot_record(record.key(), record.value()) == record
    assert b"parked" not in SlotRecord("s", 2, 1, 1, "7", 1, 1, 1).value()


# A world in which topics refuse, producers die, and people ask


class BrokenProducer(FakeProducer):
    """Refuses records of some topics; dies now and then, before or after a commit."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.broker, "p-s")
        self._scene = scene

    def produce(self, topic: str, partition: int, messages: list[Message]) -> None:
        if topic in self._scene.broken:
            raise Unpublishable("too large", "raise it", topic=topic)
        self._scene.may_die()
        super().produce(topic, partition, messages)

    def commit(self) -> None:
        self._scene.may_die()
        super().commit()
        self._scene.may_die()


class FakeParkedReader:
    def __init__(self, broker: FakeBroker, piece: int) -> None:
        self._broker = broker
        self._piece = piece
        self.scanned_max = wire_format.SCANNED_MAX
        self.read_for: list[bytes] = []

    def read(self, key: bytes, offset: int) -> ParkedPiece:
        self.read_for.append(key)
        assembly, found = PartAssembler(), list[ParkedEvent]()
        for record in self._broker.visible(NAMES.parked)[0]:
            if record.offset >= offset and record.key == key and record.value is not None:
                event = assembly.add(record.offset, record.value)
                if event is not None:
                    found.append(event)
                    if len(found) == self._piece:
                        return ParkedPiece(found, record.offset + 1, False)
        return ParkedPiece(found, len(self._broker.log(NAMES.parked, 0)), True)


class Scene:
    """A history of transactions of two tables and requests, published by one publisher after the other."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.broker = FakeBroker()
        self.broken: set[str] = set()
        self.deadly = True
        self.parking = PendingParking()
        self.parked_once = False
        self.history: list[tuple[str, bytes]] = []
        for number in range(60):
            what = self.rng.choices(["a", "b", "unpark"], [5, 5, 1])[0]
            content = request(UNPARK, "public", "a").encode() if what == "unpark" else b"%d" % number
            self.history.append((what, content))

    def may_die(self) -> None:
        if self.deadly and self.rng.random() < 0.03:
            raise KafkaUnavailable("died", "")

    def last(self) -> SlotRecord | None:
        reader = KafkaProgressReader(FakeReading(self.broker, NAMES.progress, stable=True))
        found = reader.last(frozenset([b"s"]), lambda: False)
        return parse_slot_record(b"s", found[b"s"]) if found else None

    def run(self) -> None:
        for _ in range(10_000):
            try:
                if self.live():
                    return
            except KafkaUnavailable:
                if self.rng.random() < 0.5:
                    self.parking = PendingParking()  # the process died, and what it had learned with it
            except Unpublishable as error:
                self.learn(error)
        raise AssertionError("it never comes to its end")

    def learn(self, error: Unpublishable) -> None:
        """What the supervisor does."""
        assert error.table == ("public", "a")
        assert "the topic p.public.a " in error.message
        assert error.unparking or error.table not in self.parking.parked
        (self.parking.refused if error.unparking else self.parking.parked)[error.table] = error.message
        self.parked_once = True

    def live(self) -> bool:
        """One publisher's life; True if it came to the end of the history."""
        last = self.last()
        producer = BrokenProducer(self)
        producer.start(lambda: False)
        reader = FakeParkedReader(self.broker, self.rng.randint(1, 9))
        settings = TopicSettings(1, 1)
        publisher = Publisher(
            producer, FakeAdmin(self.broker), NAMES, settings, SOURCE, last, None, self.parking, reader
        )
        builder = BatchBuilder(tombstones=False)
        for number, (what, content) in enumerate(self.history):
            lsn = (number + 1) * 0x10
            if last is not None and lsn < last.lsn:
                continue
            if self.deadly and self.rng.random() < 0.05:
                self.broken ^= {"p.public.a"}
            builder.begin(lsn, lsn)
            builder.add(builder.open_table("public", "b" if what == "unpark" else what), INSERT, None, content)
            if what == "unpark":
                builder.request(content)
            builder.commit(lsn + 8)
            if self.rng.random() < 0.5:
                publisher.publish(builder.take(), 0.0)
                if self.rng.random() < 0.7:
                    publisher.commit()
            while publisher.open is None and publisher.unparking:
                publisher.unpark(0.0)
        rest = builder.take()
        if rest.transactions:
            publisher.publish(rest, 0.0)
        if publisher.open is not None:
            publisher.commit()
        while publisher.unparking:
            publisher.unpark(0.0)
        return True

    def check(self) -> None:
        last = self.last()
        assert last is not None
        assert not any(table.unparking for table in last.parked), "who asked is not told"
        wanted = [content for what, content in self.history if what == "a"]
        there = self.broker.visible("p.public.a")[0] if "p.public.a" in self.broker.topics else []
        topic = [record.value for record in there]
        parked: list[bytes | None] = []
        for table in last.parked:
            piece = FakeParkedReader(self.broker, 1_000_000).read(b"s/p.public.a", table.offset)
            parked += [event.value for event in piece.events]
        assert topic + parked == wanted
        others = [record.value for record in self.broker.visible("p.public.b")[0]]
        assert others == [content for what, content in self.history if what != "a"]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_refused_and_whenever_it_dies_every_event_is_there_once_and_in_order(seed: int) -> None:
    scene = Scene(seed)
    scene.run()
    scene.check()
    # Mended for good, and asked: all of it comes home.
    scene.broken.clear()
    scene.deadly = False
    scene.history.append(("unpark", request(UNPARK, "public", "a").encode()))
    scene.history.append(("a", b"the end"))
    scene.run()
    scene.check()
    last = scene.last()
    assert last is not None
    assert last.parked == ()


def test_the_seeds_park_and_unpark() -> None:
    parked = 0
    for seed in range(20):
        scene = Scene(seed)
        scene.run()
        parked += scene.parked_once
    assert parked > 10


def test_a_row_that_is_deleted_and_its_tombstone_come_back_as_two_records() -> None:
    builder = BatchBuilder(tombstones=True)
    builder.begin(1, 1)
    builder.add(builder.open_table("public", "a"), DELETE, b"k", b"v")
    builder.commit(2)
    [table] = builder.take().tables
    assembly = PartAssembler()
    back = [
        assembly.add(n, record["value"] or b"") for n, record in enumerate(wire_format.records(b"k", PARKED, table))
    ]
    assert [(event.op, event.value) for event in back if event] == [(DELETE, b"v"), (0, None)]
    again = batch_of(PARKED, [event for event in back if event])
    assert again.messages == table.messages
    assert again.counts == table.counts


# A table that is copied while the stream goes on


class CopyScene(Scene):
    """A history of transactions of two tables, one of which is copied meanwhile, by one life after the other."""

    ROWS = 6

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.history = [(self.rng.choice("ab"), b"%d" % number) for number in range(40)]
        self.lives = 0

    def copy(self) -> TableSnapshot:
        found = KafkaProgressReader(FakeReading(self.broker, NAMES.snapshots, stable=True)).every(lambda: False)
        copies = [parse_copy(*record) for record in found.items()]
        return copies[0] if copies else TableSnapshot("s", "p.public.a", "public", "a", WANTED, 0)

    def live(self) -> bool:
        self.lives += 1
        last, copy = self.last(), self.copy()
        producer = BrokenProducer(self)
        producer.start(lambda: False)
        reader = FakeParkedReader(self.broker, self.rng.randint(1, 9))
        publisher = Publisher(
            producer, FakeAdmin(self.broker), NAMES, TopicSettings(1, 1), SOURCE, last,
            {copy.topic: copy.snapshot}, self.parking, reader,
        )  # fmt: skip
        stream, copies = BatchBuilder(tombstones=False), BatchBuilder(tombstones=False)
        begins = self.rng.randint(0, 8)
        for number, (what, content) in enumerate([*self.history, *[("b", b"idle")] * 40]):
            lsn = (number + 1) * 0x10
            if last is not None and lsn < last.lsn:
                continue
            while publisher.unparking:
                if publisher.open is not None:
                    publisher.commit()
                publisher.unpark(0.0)
            if copy.state != DONE and begins == 0 and publisher.open is None:
                batch = stream.take()
                copy = replace(copy, state=COPYING, lsn=lsn)
                batch.copies, batch.end_lsn = [copy], lsn
                publisher.publish(batch, 0.0)
            elif copy.state == COPYING and begins < 0 and self.rng.random() < 0.5:
                copies.begin(0, 0)
                for _ in range(self.rng.randint(0, self.ROWS - copy.rows)):
                    row = b"row %d as of %d" % (copy.rows, copy.lsn // 0x10 - 1)
                    copies.add(copies.open_table("public", "a"), INSERT, None, row)
                    copy = replace(copy, rows=copy.rows + 1)
                if copy.rows == self.ROWS:
                    copy = replace(copy, state=DONE)
                batch = copies.take()
                batch.open = False
                batch.copies = [copy]
                publisher.publish(batch, 0.0)
            begins -= 1 if begins or publisher.open is not None else 0
            stream.begin(lsn, lsn)
            stream.add(stream.open_table("public", what), INSERT, None, content)
            stream.commit(lsn + 8)
            publisher.publish(stream.take(), 0.0)
            if self.rng.random() < 0.7 or begins == 0:
                publisher.commit()
        if publisher.open is not None:
            publisher.commit()
        while publisher.unparking:
            publisher.unpark(0.0)
        return copy.state == DONE

    def check(self) -> None:
        last = self.last()
        assert last is not None
        assert last.parked == ()
        topic = [record.value or b"" for record in self.broker.visible("p.public.a")[0]]
        changes = [value for value in topic if b"row" not in value]
        assert changes == [value for what, value in self.history if what == "a"]
        rows = [(at, value.split()) for at, value in enumerate(topic) if b"row" in value]
        assert [int(words[1]) for _, words in rows] == list(range(self.ROWS))
        for at, words in rows:
            for place, value in enumerate(topic):
                if b"row" not in value:
                    assert (int(value) < int(words[-1])) == (place < at), f"{value!r} and {topic[at]!r}"


@pytest.mark.parametrize("seed", range(100))
def test_the_rows_of_a_snapshot_stand_where_it_was_taken_though_the_stream_goes_on(seed: int) -> None:
    scene = CopyScene(seed)
    scene.deadly = seed % 3 > 0
    scene.run()
    scene.check()


def test_an_ordinary_copy_is_not_told_as_a_table_that_is_unparked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        scene = CopyScene(0)
        scene.deadly = False
        scene.run()
    scene.check()
    assert "unpark" not in caplog.text


def test_tables_that_nothing_changed_during_their_copy_are_done_with_in_one_transaction() -> None:
    broker, names = FakeBroker(), "abcd"
    producer = FakeProducer(broker, "p-s")
    producer.start(lambda: False)
    reader = FakeParkedReader(broker, 9)
    publisher = Publisher(
        producer,
        FakeAdmin(broker),
        NAMES,
        TopicSettings(1, 1),
        SOURCE,
        None,
        parking=PendingParking(),
        parked_reader=reader,
    )
    copies = [TableSnapshot("s", f"p.public.{name}", "public", name, COPYING, 0x10) for name in names]
    for lsn, state in ((0x10, COPYING), (0x20, DONE)):
        batch = BatchBuilder(tombstones=False).take()
        batch.copies, batch.end_lsn = [replace(copy, state=state) for copy in copies], lsn
        publisher.publish(batch, 0.0)
        stream = BatchBuilder(tombstones=False)
        stream.begin(lsn, lsn)
        stream.add(stream.open_table("public", "c"), INSERT, None, state.encode())
        stream.commit(lsn + 8)
        publisher.publish(stream.take(), 0.0)
        publisher.commit()
        assert publisher.unparking == (state == DONE)
    pieces = 0
    while publisher.unparking:
        publisher.unpark(0.0)
        pieces += 1
    assert pieces == 2, "a and b, with the events of c; then d"
    assert reader.read_for == [b"s/p.public.c"], "nothing else is on the parked topic"
    assert [record.value for record in broker.visible("p.public.c")[0]] == [COPYING.encode(), DONE.encode()]
    assert publisher.last is not None
    assert publisher.last.parked == ()
