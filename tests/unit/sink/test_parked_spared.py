"""What nothing changed during its copy is not looked for on the parked topic, however much stands there."""

from __future__ import annotations

from dataclasses import replace

from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer

from cdcd.progress.copies import COPYING, DONE, TableCopy
from cdcd.sink.batches import BatchBuilder
from cdcd.sink.parking import ParkedPiece
from cdcd.sink.publisher import Publisher, Source, TopicSettings
from cdcd.sink.topics import TopicNames

NAMES = TopicNames("p")


class Reader:
    def __init__(self) -> None:
        self.read_for: list[bytes] = []

    def read(self, key: bytes, offset: int) -> ParkedPiece:
        self.read_for.append(key)
        return ParkedPiece([], 1 << 30, True)


def test_only_those_of_whom_something_was_set_aside_are_looked_for() -> None:
    broker, reader = FakeBroker(), Reader()
    producer = FakeProducer(broker, "p-s")
    producer.start(lambda: False)
    publisher = Publisher(
        producer, FakeAdmin(broker), NAMES, TopicSettings(1, 1), Source("s", "7", 1), None, parked_reader=reader
    )
    copies = [TableCopy("s", f"p.public.{name}", "public", name, COPYING, 0x10) for name in "abcd"]
    for lsn, state in ((0x10, COPYING), (0x20, DONE)):
        batch = BatchBuilder(tombstones=False).take()
        batch.copies, batch.end_lsn = [replace(copy, state=state) for copy in copies], lsn
        publisher.publish(batch, 0.0)
        stream = BatchBuilder(tombstones=False)
        stream.begin(lsn, lsn)
        stream.add(stream.open_table("public", "c"), ord("c"), None, b"x")
        stream.commit(lsn + 8)
        publisher.publish(stream.take(), 0.0)
        publisher.commit()
    while publisher.unparking:
        publisher.unpark(0.0)
    assert reader.read_for == [b"s/p.public.c"]
