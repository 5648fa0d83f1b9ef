from __future__ import annotations

import pytest
from sim.fake_kafka import FakeBroker, FakeKafkaCluster, FakeProducer

from cdcd.errors import KafkaUnavailable
from cdcd.progress.records import SlotRecord, TableRecord, TopicState
from cdcd.progress.slot_beginnings import SlotBeginning
from cdcd.sink.hanging_transactions import committed
from cdcd.sink.kafka.undecided_transactions import OTHERS_S, UndecidedTransactions
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs

NAMES = TopicNames("p", has_transactions=True)
TABLE = NAMES.topic("public", "t")


class Slot:
    """The slot "s" and another one write to the same cluster; a pause takes as long as it says."""

    def __init__(self, topics: list[str]) -> None:
        self.kafka = FakeKafkaCluster(FakeBroker())
        self.kafka.ensure(*own_specs(NAMES, 1, {}), TopicSpec(TABLE, 1, 1))
        self.now_s = 0.0
        self.undecided = UndecidedTransactions(
            self.kafka, NAMES, "s", topics, self.pause, lambda: False, lambda: self.now_s
        )

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def leave_open(self, slot: str, *topics: str) -> FakeProducer:
        producer = FakeProducer(self.kafka.broker, f"p-{slot}")
        producer.start(lambda: False)
        producer.begin()
        for topic in topics:
            producer.produce(topic, 0, [{"key": f"{slot}/x".encode(), "value": b"{}"}])
        return producer

    def write(self, slot: str, topic: str, record: SlotRecord | TableRecord | SlotBeginning) -> FakeProducer:
        producer = self.leave_open(slot)
        producer.produce(topic, 0, [{"key": record.key(), "value": record.value()}])
        return producer

    def found(self) -> set[str]:
        return {topic for topic, _ in self.undecided.unstable()}


def test_the_key_says_whose_an_undecided_record_of_a_shared_topic_is() -> None:
    slot = Slot([TABLE])
    slot.leave_open("s", NAMES.snapshots)
    slot.leave_open("other", NAMES.progress)
    assert slot.found() == {NAMES.snapshots}


def test_schemas_have_no_owner_so_each_may_be_this_slots() -> None:
    slot = Slot([TABLE])
    slot.leave_open("other", NAMES.schemas)
    assert slot.found() == {NAMES.schemas}


@pytest.mark.parametrize(("topics", "found"), [([TABLE], {TABLE}), ([], set())])
def test_a_tables_topic_belongs_to_the_slot_that_publishes_the_table(topics: list[str], found: set[str]) -> None:
    slot = Slot(topics)
    slot.write("other", NAMES.snapshots, SlotBeginning("other", "1", 1, 0x100)).commit()
    slot.leave_open("other", TABLE)
    assert slot.found() == found


def test_without_another_slot_a_topic_of_a_table_that_had_another_name_is_this_slots() -> None:
    slot = Slot([])
    slot.write("s", NAMES.snapshots, SlotBeginning("s", "1", 1, 0x100)).commit()
    slot.leave_open("s", TABLE)
    assert slot.found() == {TABLE}


def test_the_open_progress_of_another_slot_is_waited_for_but_not_without_end() -> None:
    slot = Slot([TABLE])
    slot.leave_open("other", NAMES.progress)
    with pytest.raises(
        KafkaUnavailable, match=r"another slot's Kafka transaction has been open on p\.progress for 60 s"
    ):
        slot.undecided.wait_for_others()
    assert slot.now_s >= OTHERS_S


def test_nobody_waits_once_the_progress_can_be_read_or_if_the_slots_own_record_hides_it() -> None:
    slot = Slot([TABLE])
    slot.leave_open("other", NAMES.progress).commit()
    slot.undecided.wait_for_others()
    slot.leave_open("s", NAMES.progress)
    slot.undecided.wait_for_others()
    assert slot.now_s == 0


def test_a_topic_without_the_prefix_is_looked_at_if_the_slot_publishes_to_it_and_no_stranger_is() -> None:
    slot = Slot(["public.t"])
    slot.kafka.ensure(TopicSpec("public.t", 1, 1), TopicSpec("strangers.t", 1, 1))
    slot.leave_open("s", "public.t", "strangers.t")
    assert slot.found() == {"public.t"}


def test_the_topics_of_a_longer_prefix_are_never_looked_at() -> None:
    slot = Slot([TABLE])
    theirs = [TopicNames("p.q").topic("public", "t"), "p.q.progress", "p.q.messages"]
    slot.kafka.ensure(*(TopicSpec(topic, 1, 1) for topic in theirs))
    slot.leave_open("s", *theirs)
    assert slot.found() == set()


@pytest.mark.parametrize("topic", NAMES.tableless)
def test_the_slots_own_table_record_counts_its_events_on_a_topic_that_others_write_to_as_well(topic: str) -> None:
    # Found by the simulation: they were aborted, and the server did not send them again.
    slot = Slot([*NAMES.tableless, TABLE])
    slot.kafka.ensure(TopicSpec(topic, 1, 1))
    counted = TableRecord("s", topic, "", topic.rpartition(".")[2], 0x100, (1,))
    slot.write("s", NAMES.progress, counted).commit()
    slot.leave_open("s", topic)
    hanging = slot.undecided.unstable()
    evidence = slot.undecided.gather_evidence(0x100, hanging)
    assert evidence.tables == {topic: counted}
    assert committed(hanging, evidence) == hanging.keys() == {(topic, 0)}


@pytest.mark.parametrize("topic", NAMES.tableless)
def test_what_is_visible_on_such_a_topic_is_no_evidence(topic: str) -> None:
    slot = Slot([*NAMES.tableless, TABLE])
    slot.kafka.ensure(TopicSpec(topic, 1, 1))
    slot.leave_open("other", topic).commit()
    producer = slot.write("s", NAMES.progress, TableRecord("s", topic, "", topic.rpartition(".")[2], 0x100, (1,)))
    hanging = slot.undecided.unstable()
    assert hanging.keys() == {(NAMES.progress, 0)}
    assert not slot.undecided.gather_evidence(0x100, hanging).rows_visible
    producer.abort()


def test_the_first_slot_record_was_committed_if_the_beginning_can_be_read() -> None:
    slot = Slot([TABLE])
    first, beginning = SlotRecord("s", 0x200, 0, 0, "1", 1, 0, 0), SlotBeginning("s", "1", 1, 0x100)
    slot.write("s", NAMES.progress, first)
    hanging = slot.undecided.unstable()
    assert not slot.undecided.gather_evidence(0x100, hanging).rows_visible
    slot.write("other", NAMES.snapshots, beginning).commit()
    assert slot.undecided.gather_evidence(0x100, hanging).rows_visible


OLD, OTHER = "1", "2"


class LeftOpen:
    """The slot has a first record. Then its transaction with a row, a schema, a snapshot and a record is undecided."""

    def __init__(self, system_id: str, *decided: str, commit: bool = False) -> None:
        """`decided`: the topics that got the transaction's marker."""
        self.slot = slot = Slot([TABLE])
        first = SlotRecord("s", 0x100, 0, 0, OLD, 1, 0, 0, own_topics=self._ends(1, 1))
        producer = slot.leave_open("s", NAMES.schemas, NAMES.snapshots)
        self._write(producer, NAMES.progress, first)
        producer.commit()
        slot.kafka.broker.loses_markers = lambda each: {place for place in each.touched if place[0] not in decided}
        self._producer = producer = slot.leave_open("s", NAMES.schemas, NAMES.snapshots, TABLE)
        self._write(producer, NAMES.snapshots, SlotBeginning("s", system_id, 1, 0x200))
        self._write(producer, NAMES.progress, TableRecord("s", TABLE, "public", "t", 0x180, (1,)))
        self._write(
            producer, NAMES.progress, SlotRecord("s", 0x200, 0x180, 1, system_id, 1, 1, 1, own_topics=self._ends(3, 4))
        )
        (producer.commit if commit else producer.abort)()

    @staticmethod
    def _ends(schemas: int, snapshots: int) -> dict[str, TopicState]:
        return {NAMES.schemas: TopicState("", (schemas,)), NAMES.snapshots: TopicState("", (snapshots,))}

    @staticmethod
    def _write(producer: FakeProducer, topic: str, record: SlotRecord | TableRecord | SlotBeginning) -> None:
        producer.produce(topic, 0, [{"key": record.key(), "value": record.value()}])

    def is_committed(self, confirmed_lsn: int | None = None) -> bool:
        hanging = self.slot.undecided.unstable()
        to_commit = committed(hanging, self.slot.undecided.gather_evidence(confirmed_lsn, hanging))
        assert to_commit in (set(), set(hanging))
        return bool(to_commit)


def test_an_adoption_commits_what_nobody_has_dropped_because_the_old_server_cannot_be_asked() -> None:
    # It was refused: the old server may be gone, and nothing else was left to do.
    assert LeftOpen(OLD).is_committed()
    assert not LeftOpen(OLD).is_committed(0x100)


@pytest.mark.parametrize("dropped", [TABLE, NAMES.schemas, NAMES.snapshots])
def test_an_adoption_aborts_what_one_partition_has_dropped(dropped: str) -> None:
    assert not LeftOpen(OLD, dropped).is_committed()


def test_the_record_of_an_adoption_that_was_killed_is_aborted() -> None:
    assert not LeftOpen(OTHER).is_committed()
    assert not LeftOpen(OTHER).is_committed(0x100)


def test_the_record_of_an_adoption_was_committed_if_the_beginning_can_be_read() -> None:
    for confirmed_lsn in (None, 0x100):
        assert LeftOpen(OTHER, NAMES.snapshots, commit=True).is_committed(confirmed_lsn)
    # No beginning comes with what follows an adoption.
    slot = Slot([TABLE])
    producer = slot.write("s", NAMES.snapshots, SlotBeginning("s", OTHER, 1, 0x200))
    LeftOpen._write(producer, NAMES.progress, SlotRecord("s", 0x200, 0, 0, OTHER, 1, 0, 0))
    producer.commit()
    slot.write("s", NAMES.progress, SlotRecord("s", 0x200, 0, 0, OTHER, 1, 0, 5))
    assert not slot.undecided.gather_evidence(0x200, slot.undecided.unstable()).rows_visible
