"""Parked and deferred tables: every event is on its topic or parked, in order, once, whatever is killed when."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

import pytest
from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer, FakeReading

from cdcd.errors import KafkaUnavailable, RecordTooLarge, Unpublishable
from cdcd.progress.daemon_requests import DISCARD, MESSAGES, SNAPSHOT, UNPARK, Request
from cdcd.progress.records import DeferredTable, SlotRecord, parse_slot_record
from cdcd.progress.snapshot_records import DONE, RUNNING, STOPPED, WANTED, TableSnapshot, parse_snapshot_record
from cdcd.sink.batches import BatchBuilder, Message
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.parking.state import ParkedTables, PendingParking
from cdcd.sink.parking.wire_format import ParkedChunk, ParkedEvent, PartAssembler
from cdcd.sink.publisher import Publisher, Source
from cdcd.sink.table_topics import TableTopics, TopicSettings
from cdcd.sink.topics import TopicNames, TopicRule
from cdcd.source.table_selection import TablePattern

INSERT = ord("c")
NAMES = TopicNames("p")
SOURCE = Source("s", "7", 1)
A, B = ("public", "a"), ("public", "b")

# A world in which topics refuse, producers die, and people ask


class BrokenProducer(FakeProducer):
    """Refuses records of some topics; dies now and then, before or after a commit."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.broker, "p-s")
        self._scene = scene

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        if topic in self._scene.broken:
            raise Unpublishable("too large", "raise it", topic=topic, code="row-too-large")
        self._scene.may_die()
        super().produce(topic, partition, messages, has_headers=has_headers)

    def commit(self) -> None:
        self._scene.may_die()
        super().commit()
        self._scene.may_die()


class FakeParkedReader:
    scanned_max = 100_000

    def __init__(self, broker: FakeBroker, piece: int) -> None:
        self._broker = broker
        self._piece = piece
        self.read_for: list[bytes] = []

    def read(self, key: bytes, offset: int) -> ParkedChunk:
        self.read_for.append(key)
        assembler, found = PartAssembler(), list[ParkedEvent]()
        for record in self._broker.visible(NAMES.parked)[0]:
            if record.offset >= offset and record.key == key and record.value is not None:
                event = assembler.add(record.offset, record.value)
                if event is not None:
                    found.append(event)
                    if len(found) == self._piece:
                        return ParkedChunk(found, record.offset + 1, False)
        return ParkedChunk(found, len(self._broker.log(NAMES.parked, 0)), True)


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
            self.history.append((what, b"%d" % number))

    def may_die(self) -> None:
        if self.deadly and self.rng.random() < 0.03:
            raise KafkaUnavailable("died", "", code="kafka-unavailable")

    def last(self) -> SlotRecord | None:
        reader = KafkaProgressReader(FakeReading(self.broker, NAMES.progress, end="last_stable"))
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
        """As the supervisor does."""
        assert error.table == ("public", "a")
        assert "the topic p.public.a " in error.message
        assert error.unparking or error.table not in self.parking.parked
        (self.parking.refused if error.unparking else self.parking.parked)[error.table] = error.message
        self.parked_once = True

    def live(self) -> bool:
        """One publisher's life; True if it came to the end of the history."""
        last = self.last()
        self.parking.begin(0 if last is None else last.lsn)
        producer = BrokenProducer(self)
        producer.start(lambda: False)
        reader = FakeParkedReader(self.broker, self.rng.randint(1, 9))
        topics = TableTopics(FakeAdmin(self.broker), NAMES, TopicSettings(1, 1))
        tables = ParkedTables(topics, "s", last, self.parking, reader)
        publisher = Publisher(producer, topics, SOURCE, last, tables)
        builder = BatchBuilder(tombstones=False)
        for number, (what, content) in enumerate(self.history):
            lsn = (number + 1) * 0x10
            if last is not None and lsn < last.lsn:
                continue
            if self.deadly and self.rng.random() < 0.05:
                self.broken ^= {"p.public.a"}
            builder.begin(lsn, lsn)
            builder.add(builder.open_table("public", "b" if what == "unpark" else what), INSERT, None, content)
            builder.commit(lsn + 8)
            asked = what == "unpark"
            if asked or self.rng.random() < 0.5:
                batch = builder.build()
                batch.requests = [Request(UNPARK, ("public", "a"))] * asked
                publisher.publish(batch, 0.0)
                if self.rng.random() < 0.7:
                    publisher.commit()
            while publisher.open is None and publisher.has_replay:
                publisher.replay(0.0)
        rest = builder.build()
        if rest.transactions:
            publisher.publish(rest, 0.0)
        if publisher.open is not None:
            publisher.commit()
        while publisher.has_replay:
            publisher.replay(0.0)
        return True

    def check(self) -> None:
        last = self.last()
        assert last is not None
        assert not any(table.is_replaying for table in last.parked), "who asked is not told"
        wanted = [content for what, content in self.history if what == "a"]
        there = self.broker.visible("p.public.a")[0] if "p.public.a" in self.broker.topics else []
        topic = [record.value for record in there]
        parked: list[bytes | None] = []
        for table in last.parked:
            chunk = FakeParkedReader(self.broker, 1_000_000).read(b"s/public.a", table.offset)
            parked += [event.value for event in chunk.events]
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
    scene.history.append(("unpark", b"the last"))
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


class TombstoneAlone:
    """Reads a tombstone of `a`, whose delete was in the portion before, and then an insert of `b`."""

    scanned_max = 100_000

    def read(self, key: bytes, offset: int) -> ParkedChunk:
        event = ParkedEvent(0, b"1", None, False) if key.endswith(b"a") else ParkedEvent(INSERT, b"1", b"row", False)
        return ParkedChunk([event], offset + 1, is_last=True)


def test_a_replayed_tombstone_counts_as_no_event_and_goes_out_though_it_comes_alone() -> None:
    deferred = tuple(DeferredTable(*table, 0x100, 0) for table in (A, B))
    last = SlotRecord("s", 0x100, 0x100, 1, SOURCE.system_id, 1, 1, 1, deferred=deferred)
    topics = TableTopics(FakeAdmin(FakeBroker()), NAMES, TopicSettings(1, 1))
    tables = ParkedTables(topics, "s", last, None, TombstoneAlone())
    replayed = [tables.next_chunk(0x100) for _ in range(2)]
    assert [(batch.rows, [each.messages for each in batch.tables]) for batch in replayed] == [
        (0, [[{"key": b"1", "value": None}]]),
        (1, [[{"key": b"1", "value": b"row"}]]),
    ]


# Decisions of a daemon that is not the last one that streamed


def decided(lsn: int) -> PendingParking:
    """What a daemon has decided behind the slot record of `lsn`."""
    parking = PendingParking()
    parking.begin(lsn)
    parking.parked[A] = "too large"
    parking.refused[B] = "still too large"
    return parking


@pytest.mark.parametrize("lsn", [0, 0x100])
def test_decisions_last_until_a_slot_record_holds_them(lsn: int) -> None:
    parking = decided(lsn)
    parking.begin(lsn)
    assert parking.parked
    assert parking.refused
    parking.on_commit(lsn + 8)
    assert not parking.parked
    parking.parked[A] = "too large again"
    parking.begin(lsn + 8)
    assert parking.parked, "the slot record is its own"


@pytest.mark.parametrize("lsn", [0, 0x100])
def test_decisions_are_forgotten_if_another_daemon_has_streamed_meanwhile(lsn: int) -> None:
    """A table that it has unparked was parked again at once, though its topic takes its rows; and nothing said so."""
    parking = decided(lsn)
    parking.begin(lsn + 8)
    assert not parking.parked
    assert not parking.refused


# A table that is copied while the stream goes on


class CopyScene(Scene):
    """A history of transactions of two tables, one of which is copied meanwhile, by one life after the other."""

    ROWS = 6

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.history = [(self.rng.choice("ab"), b"%d" % number) for number in range(40)]
        self.lives = 0

    def copy(self) -> TableSnapshot:
        found = KafkaProgressReader(FakeReading(self.broker, NAMES.snapshots, end="last_stable")).every(lambda: False)
        copies = [parse_snapshot_record(*record) for record in found.items()]
        return copies[0] if copies else TableSnapshot("s", "p.public.a", "public", "a", WANTED, 0)

    def live(self) -> bool:
        self.lives += 1
        last, copy = self.last(), self.copy()
        producer = BrokenProducer(self)
        producer.start(lambda: False)
        reader = FakeParkedReader(self.broker, self.rng.randint(1, 9))
        snapshots = {copy.topic: copy.snapshot}
        topics = TableTopics(FakeAdmin(self.broker), NAMES, TopicSettings(1, 1), snapshots)
        publisher = Publisher(producer, topics, SOURCE, last, ParkedTables(topics, "s", last, self.parking, reader))
        stream, copies = BatchBuilder(tombstones=False), BatchBuilder(tombstones=False)
        begins = self.rng.randint(0, 8)
        for number, (what, content) in enumerate([*self.history, *[("b", b"idle")] * 40]):
            lsn = (number + 1) * 0x10
            if last is not None and lsn < last.lsn:
                continue
            while publisher.has_replay:
                if publisher.open is not None:
                    publisher.commit()
                publisher.replay(0.0)
            if copy.state != DONE and begins == 0 and publisher.open is None:
                batch = stream.build()
                copy = replace(copy, state=RUNNING, lsn=lsn)
                batch.snapshot_records, batch.end_lsn = [copy], lsn
                publisher.publish(batch, 0.0)
            elif copy.state == RUNNING and begins < 0 and self.rng.random() < 0.5:
                copies.begin(0, 0)
                for _ in range(self.rng.randint(0, self.ROWS - copy.rows)):
                    row = b"row %d as of %d" % (copy.rows, copy.lsn // 0x10 - 1)
                    copies.add(copies.open_table("public", "a"), INSERT, None, row)
                    copy = replace(copy, rows=copy.rows + 1)
                if copy.rows == self.ROWS:
                    copy = replace(copy, state=DONE)
                batch = copies.build()
                batch.ends_inside_transaction = False
                batch.snapshot_records = [copy]
                publisher.publish(batch, 0.0)
            begins -= 1 if begins or publisher.open is not None else 0
            stream.begin(lsn, lsn)
            stream.add(stream.open_table("public", what), INSERT, None, content)
            stream.commit(lsn + 8)
            publisher.publish(stream.build(), 0.0)
            if self.rng.random() < 0.7 or begins == 0:
                publisher.commit()
        if publisher.open is not None:
            publisher.commit()
        while publisher.has_replay:
            publisher.replay(0.0)
        return copy.state == DONE

    def check(self) -> None:
        last = self.last()
        assert last is not None
        assert last.incomplete == ()
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


@pytest.mark.parametrize("ended", [DONE, STOPPED])
def test_tables_that_nothing_changed_during_their_copy_are_done_with_in_one_transaction(ended: str) -> None:
    broker, names = FakeBroker(), "abcd"
    producer = FakeProducer(broker, "p-s")
    producer.start(lambda: False)
    reader = FakeParkedReader(broker, 9)
    topics = TableTopics(FakeAdmin(broker), NAMES, TopicSettings(1, 1))
    publisher = Publisher(producer, topics, SOURCE, None, ParkedTables(topics, "s", None, reader=reader))
    copies = [TableSnapshot("s", f"p.public.{name}", "public", name, RUNNING, 0x10) for name in names]
    for lsn, state in ((0x10, RUNNING), (0x20, ended)):
        batch = BatchBuilder(tombstones=False).build()
        batch.snapshot_records, batch.end_lsn = [replace(copy, state=state) for copy in copies], lsn
        publisher.publish(batch, 0.0)
        stream = BatchBuilder(tombstones=False)
        stream.begin(lsn, lsn)
        stream.add(stream.open_table("public", "c"), INSERT, None, state.encode())
        stream.commit(lsn + 8)
        publisher.publish(stream.build(), 0.0)
        publisher.commit()
        assert publisher.has_replay == (state == ended)
    pieces = 0
    while publisher.has_replay:
        publisher.replay(0.0)
        pieces += 1
    assert pieces == 2, "a and b, with the events of c; then d"
    assert reader.read_for == [b"s/public.c"], "nothing else is on the parked topic"
    assert [record.value for record in broker.visible("p.public.c")[0]] == [RUNNING.encode(), ended.encode()]
    assert publisher.last is not None
    assert publisher.last.incomplete == ()


# Parked events that cannot be read any more: the others go on, and the table has a way back


class Life:
    """Publishers of one slot, one after the other."""

    def __init__(self, names: TopicNames = NAMES) -> None:
        self.names = names
        self.broker = FakeBroker()
        self.parking = PendingParking()
        self.lsn = 0
        self.start()

    def last(self) -> SlotRecord | None:
        found = KafkaProgressReader(FakeReading(self.broker, NAMES.progress)).last(frozenset([b"s"]), lambda: False)
        return parse_slot_record(b"s", found[b"s"]) if found else None

    def start(self, **bounds: int) -> None:
        producer = FakeProducer(self.broker, "p-s")
        producer.start(lambda: False)
        reader = KafkaParkedReader(FakeReading(self.broker, NAMES.parked), **bounds)
        topics = TableTopics(FakeAdmin(self.broker), self.names, TopicSettings(1, 1))
        last = self.last()
        tables = ParkedTables(topics, "s", last, self.parking, reader)
        self.publisher = Publisher(producer, topics, Source("s", "1", 1), last, tables)

    def publish(self, table: tuple[str, str], *values: bytes, asks: str = "", of: tuple[str, str] = ("", "")) -> None:
        builder = BatchBuilder(tombstones=False, shared_topic=self.names.shared_topic)
        self.lsn += 0x10
        builder.begin(self.lsn, self.lsn)
        for value in values:
            builder.add(builder.open_table(*table), INSERT, b"k", value)
        builder.commit(self.lsn + 8)
        batch = builder.build()
        if asks:
            batch.requests.append(Request(asks, of if of[1] else A))
        self.publisher.publish(batch, 0.0)
        self.publisher.commit()

    def topic(self, table: tuple[str, str]) -> list[bytes | None]:
        name = self.names.on_broker(*table)
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
    """As the supervisor does when a replay is refused."""
    with pytest.raises(Unpublishable) as raised:
        life.publisher.replay(0.0)
    assert (raised.value.table, raised.value.gone, raised.value.unparking) == (A, True, True)
    life.parking.refused[A] = raised.value.message
    life.start()
    while life.publisher.has_replay:
        life.publisher.replay(0.0)


def test_a_table_whose_parked_events_are_gone_stays_parked_and_the_others_go_on(life: Life) -> None:
    del life.broker.topics[NAMES.parked]
    life.publish(B, b"3", asks=UNPARK)
    refuse(life)
    last = life.last()
    assert last is not None
    [parked] = last.parked
    assert "was removed" in parked.reason
    assert not parked.is_replaying
    life.publish(B, b"4")
    assert (life.topic(A), life.topic(B)) == ([], [b"2", b"3", b"4"])


def test_what_is_given_up_is_passed_over_and_a_fresh_copy_is_wanted(life: Life) -> None:
    del life.broker.topics[NAMES.parked]
    life.publish(B, b"3", asks=UNPARK)
    refuse(life)
    life.publish(A, b"4", asks=DISCARD)
    life.publish(A, b"5")  # before the replay: parked, and behind what was given up
    life.start()
    while life.publisher.has_replay:
        life.publisher.replay(0.0)
    last = life.last()
    assert last is not None
    assert last.parked == ()
    life.publish(A, b"6")
    assert life.topic(A) == [b"5", b"6"]
    found = KafkaProgressReader(FakeReading(life.broker, NAMES.snapshots)).every(lambda: False)
    [copy] = [parse_snapshot_record(*record) for record in found.items()]
    assert (copy.schema, copy.table, copy.state) == (*A, WANTED)


def test_events_without_their_key_are_never_replayed_and_can_be_given_up(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    life.parking.parked[A] = "its key is not known"
    life.parking.keyless.add(A)
    life.start()
    life.publish(A, b"1")
    for _ in range(2):  # it is in the slot record, too
        life.publish(B, b"2", asks=UNPARK)
        assert not life.publisher.has_replay
        assert "Run: cdcd unpark --discard public.a [key-unknown]" in caplog.text
        life.start()
    life.publish(A, b"3", asks=DISCARD)
    while life.publisher.has_replay:
        life.publisher.replay(0.0)
    life.publish(A, b"4")
    assert life.topic(A) == [b"4"]


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("is_copied", [False, True])
def test_events_for_a_topic_of_another_kind_are_never_replayed_and_can_be_given_up(
    caplog: pytest.LogCaptureFixture, *, shares: bool, is_copied: bool
) -> None:
    names = [NAMES, TopicNames("p", rules=[TopicRule(TablePattern("*.*"), "{prefix}.all")])]
    before, now = names if shares else names[::-1]
    life = Life(before)
    if is_copied:
        running = TableSnapshot("s", before.topic(*A), *A, RUNNING, 0x10)
        batch = BatchBuilder(tombstones=False).build()
        batch.snapshot_records, batch.end_lsn = [running], 0x10
        life.publisher.publish(batch, 0.0)
        life.publisher.commit()
    else:
        life.parking.parked[A] = "too large"
        life.start()
    life.publish(A, b"1")
    life.names = now
    for _ in range(2):  # also once it is in the slot record
        life.start()
        assert not life.publisher.has_replay
        life.publish(B, b"2", asks=UNPARK)
        assert not life.publisher.has_replay
    assert caplog.text.count("public.a is parked: the settings give it a topic ") == 1
    last = life.last()
    assert last is not None
    assert [each.is_keyless for each in last.parked] == [True]
    assert last.deferred == ()
    life.publish(B, b"3", asks=DISCARD)
    while life.publisher.has_replay:
        life.publisher.replay(0.0)
    life.publish(A, b"4")
    assert [value for value in life.topic(A) if value in (b"1", b"4")] == [b"4"]
    found = KafkaProgressReader(FakeReading(life.broker, NAMES.snapshots)).every(lambda: False)
    copies = [parse_snapshot_record(*record) for record in found.items()]
    assert (now.topic(*A), WANTED) in [(each.topic, each.state) for each in copies]


def test_nothing_is_given_up_of_a_table_that_is_not_parked(life: Life) -> None:
    life.publish(A, b"3", asks=UNPARK)
    life.publisher.replay(0.0)
    life.publish(A, b"4", asks=DISCARD)
    assert not life.publisher.has_replay
    assert life.topic(A) == [b"1", b"3", b"4"]


def test_other_tables_events_are_passed_chunk_by_chunk(life: Life) -> None:
    life.parking.parked[B] = "too large"
    life.start(scanned_max=4)
    for number in range(10):
        life.publish(B, b"other %d" % number)
    life.publish(A, b"3", asks=UNPARK)
    offsets = []
    while life.publisher.has_replay:
        life.publisher.replay(0.0)
        offsets += [each.offset for each in life.publisher.last.parked if each.table == "a"]  # type: ignore[union-attr]
    assert life.topic(A) == [b"1", b"3"]
    assert len(offsets) >= 2, "each chunk is durable"


@pytest.mark.parametrize(("asks", "wanted"), [(UNPARK, [b"1", b"2"]), (DISCARD, [b"2"])])
def test_parked_logical_messages_come_back_or_are_given_up_as_those_of_tables(
    life: Life, asks: str, wanted: list[bytes]
) -> None:
    life.parking.parked[MESSAGES] = "too large"
    life.start()
    life.publish(MESSAGES, b"1")
    life.publish(B, b"3", asks=asks, of=MESSAGES)
    life.publish(MESSAGES, b"2")
    while life.publisher.has_replay:
        life.publisher.replay(0.0)
    assert [seen.value for seen in life.broker.visible(NAMES.messages)[0]] == wanted
    last = life.last()
    assert last is not None
    assert [(table.schema, table.table) for table in last.parked] == [A]
    assert not life.broker.visible(NAMES.snapshots)[0], "logical messages have no snapshot"


def test_a_refused_logical_message_is_told_with_the_setting_that_leaves_messages_out(life: Life) -> None:
    with pytest.raises(Unpublishable) as raised, life.publisher._parked.naming_table(lambda _: [MESSAGES]):
        raise Unpublishable("too large", "Raise the limit.", topic=NAMES.messages, code="row-too-large")
    assert "source.messages = false" in raised.value.hint


class PickyProducer(FakeProducer):
    """Its broker refuses what is larger than the topic takes."""

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        if topic == NAMES.topic(*A) and any(len(each["value"] or b"") > LIMIT for each in messages):
            raise RecordTooLarge("refused", "raise it", topic=topic, code="row-too-large")
        super().produce(topic, partition, messages, has_headers=has_headers)


LIMIT = 1_048_588
REFUSED = r"a row of 2,000,001 bytes: the topic p\.public\.a takes at most 1,048,588"


def test_a_daemon_that_is_started_again_and_refused_again_still_says_how_large_the_row_is() -> None:
    class PickyLife(Life):
        def start(self, **_: int) -> None:
            producer = PickyProducer(self.broker, "p-s")
            producer.start(lambda: False)
            settings = TopicSettings(1, 1, {"max.message.bytes": str(LIMIT)})
            topics = TableTopics(FakeAdmin(self.broker), NAMES, settings)
            last = self.last()
            reader = KafkaParkedReader(FakeReading(self.broker, NAMES.parked))
            tables = ParkedTables(topics, "s", last, self.parking, reader)
            self.publisher = Publisher(producer, topics, Source("s", "1", 1), last, tables)

    life = PickyLife()
    large = b"v" * 2_000_000
    with pytest.raises(RecordTooLarge, match=REFUSED):
        life.publish(A, large)
    life.parking.parked[A] = "as the supervisor does"
    life.start()
    life.publish(A, large)
    life.publish(B, b"1", asks=UNPARK)
    life.parking = PendingParking()  # the process has ended, and what it knew with it
    life.start()
    with pytest.raises(RecordTooLarge, match=REFUSED):
        life.publisher.replay(0.0)


def test_two_tables_of_one_topic_are_parked_apart() -> None:
    names = TopicNames("p", "{prefix}.{table}")
    topics = TableTopics(FakeAdmin(FakeBroker()), names, TopicSettings(1, 1))
    tables = ParkedTables(topics, "s", None)
    assert tables.begin_records(("public", "a")) == b"s/public.a"
    assert tables.begin_records(("x.public", "a")) == b"s/x-2epublic.a"
    assert tables.begin_records(MESSAGES) == b"s/.messages"


def test_a_table_whose_topic_is_refused_is_parked_and_its_snapshot_may_be_asked_for(life: Life) -> None:
    items, colliding = ("public", "order_items"), ("public_order", "items")
    life.publish(items, b"1")
    with pytest.raises(Unpublishable) as raised:
        life.publish(colliding, b"2")
    assert raised.value.table == colliding
    life.parking.parked[colliding] = raised.value.message
    life.start()
    life.publish(colliding, b"2", asks=DISCARD, of=("public", "a"))
    life.publish(B, b"3", asks=SNAPSHOT, of=colliding)
    life.publisher.declare_gap(0x100, life.lsn + 0x10, [colliding, B], 0.0)
    assert "p.public_order.items" not in life.broker.topics
    last = life.last()
    assert last is not None
    assert colliding in {(table.schema, table.table) for table in last.parked}
