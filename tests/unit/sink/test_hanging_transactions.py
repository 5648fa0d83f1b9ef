"""The progress tells what became of the transactions that Kafka left undecided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer

from cdcd.progress.records import SlotRecord, TableRecord, TopicState
from cdcd.sink.hanging_transactions import LOOKS, Evidence, TopicPartition, committed, decide_hanging
from cdcd.sink.topics import TopicSpec


def slot_record(lsn: int) -> SlotRecord:
    return SlotRecord("s", lsn, lsn - 8, 1, "1", 1, 1, 1)


def known(
    confirmed: int, visible: int, undecided: int = 0, offsets: tuple[int, ...] = (), rows_visible: bool = False
) -> Evidence:
    table = TableRecord("s", "p.t", "public", "t", 1, offsets)
    return Evidence(
        confirmed,
        slot_record(visible) if visible else None,
        slot_record(undecided) if undecided else None,
        rows_visible,
        {"p.t": table} if offsets else {},
        {},
    )


HANGING = {("p.t", 0): 10, ("p.t", 1): 5, ("p.progress", 0): 7}


def test_what_postgresql_was_acknowledged_was_committed() -> None:
    assert committed(HANGING, known(confirmed=0x200, visible=0x100, undecided=0x200)) == set(HANGING)
    assert committed(HANGING, known(confirmed=0x200, visible=0, undecided=0x200)) == set(HANGING)


def test_what_postgresql_will_send_again_was_not() -> None:
    assert committed(HANGING, known(confirmed=0x100, visible=0x100, undecided=0x200)) == set()
    assert committed(HANGING, known(confirmed=0x100, visible=0x100)) == set()


def test_where_the_slot_began_is_no_acknowledgement() -> None:
    assert committed(HANGING, known(confirmed=0x100, visible=0, undecided=0x200)) == set()


def test_an_undecided_record_that_does_not_reach_the_slot_explains_nothing() -> None:
    assert committed(HANGING, known(confirmed=0x300, visible=0x100, undecided=0x200)) == set()


def test_rows_that_a_visible_table_record_counts_were_committed() -> None:
    hanging = {("p.t", 0): 10, ("p.t", 1): 5, ("p.u", 0): 0}
    assert committed(hanging, known(confirmed=0x100, visible=0x100, offsets=(11, 5))) == {("p.t", 0)}


def test_schemas_and_snapshots_that_the_visible_slot_record_counts_were_committed() -> None:
    # Found by the simulation: they were aborted, and readers had rows without their schema.
    visible = replace(
        slot_record(0x100), own_topics={"p.schemas": TopicState("", (4, 4)), "p.snapshots": TopicState("", (9,))}
    )
    hanging = {("p.schemas", 0): 3, ("p.schemas", 1): 4, ("p.schemas", 2): 0, ("p.snapshots", 0): 8, ("p.parked", 0): 0}
    evidence = replace(known(confirmed=0x100, visible=0x100), visible=visible)
    assert committed(hanging, evidence) == {("p.schemas", 0), ("p.snapshots", 0)}


def test_progress_whose_rows_can_be_read_was_committed_though_postgresql_was_not_told() -> None:
    hanging = {("p.progress", 0): 7}
    assert committed(hanging, known(confirmed=0x100, visible=0x100, undecided=0x200, rows_visible=True)) == set(hanging)
    assert committed(hanging, known(confirmed=0x100, visible=0x100, undecided=0x200)) == set()


def test_a_stop_amid_the_evidence_decides_nothing() -> None:
    class Admin:
        def unstable(self) -> Mapping[TopicPartition, int]:
            return HANGING

    stops = False

    def know(hanging: Mapping[TopicPartition, int]) -> Evidence:
        nonlocal stops
        stops = True
        return known(confirmed=0x200, visible=0)

    broker = FakeBroker()
    producer = FakeProducer(broker, "p-s")
    producer.start(lambda: False)
    assert decide_hanging(Admin(), [producer], know, lambda _: None, lambda: stops) == 0
    assert not broker.topics


def test_the_record_that_aborts_progress_says_which_slot_wrote_it() -> None:
    # Its own marker may be lost, too. Without the slot's key the next start took it for another slot's, and waited.
    class Admin:
        looks = 0

        def unstable(self) -> Mapping[TopicPartition, int]:
            self.looks += 1
            return {("p.progress", 0): 0} if self.looks <= LOOKS else {}

    broker = FakeBroker()
    broker.create(TopicSpec("p.progress", 1, 1))
    producers = [FakeProducer(broker, "p-s"), FakeProducer(broker, "p-s.2")]
    for producer in producers:
        producer.start(lambda: False)
    given_up = replace(known(confirmed=0x100, visible=0x100), fillers={"p.progress": {"key": b"s/", "value": None}})
    assert decide_hanging(Admin(), producers, lambda _: given_up, lambda _: None, lambda: False) == 1
    entries = [(entry.key, entry.state) for entry in broker.log("p.progress", 0) if not entry.is_marker]
    assert entries == [(b"s/", "aborted"), (b"s/", "aborted")]


def test_what_a_forgotten_producer_has_left_undecided_is_named_with_what_ends_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Admin:
        def unstable(self) -> Mapping[TopicPartition, int]:
            return FakeAdmin(broker).unstable(lambda topic: topic == "p.t")

    broker = FakeBroker()
    broker.create(TopicSpec("p.t", 1, 1))
    broker.loses_markers = lambda transaction: {("p.t", 0)} if transaction.records[0].value == b"hangs" else set()
    for producer, value in ((FakeProducer(broker, "p-s"), b"hangs"), (FakeProducer(broker, "p-s"), b"goes on")):
        producer.start(lambda: False)
        producer.begin()
        producer.produce("p.t", 0, [{"value": value}])
        producer.commit()
        if value == b"hangs":
            broker.forget("p-s")
    unacknowledged = known(confirmed=0x100, visible=0x100)
    decide_hanging(Admin(), [producer], lambda _: unacknowledged, lambda _: None, lambda: False)
    [line] = [record.message for record in caplog.records if "stay undecided" in record.message]
    assert "p.t partition 0 offset 0" in line
    assert "kafka-transactions.sh abort" in line
