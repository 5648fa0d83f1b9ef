"""Parked events are read back, or their loss is told."""

from __future__ import annotations

import pytest
from mypy_extensions import u8
from sim.fake_kafka import Entry, FakeBroker, FakeReading

from cdcd.errors import GapError
from cdcd.sink.batches import DELETE, TOMBSTONE, TableBatch
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.parking.wire_format import records
from cdcd.sink.topics import TopicSpec


def test_a_parked_topic_that_is_not_there_is_a_gap() -> None:
    with pytest.raises(GapError, match="was removed"):
        KafkaParkedReader(FakeReading(FakeBroker(), "p.parked")).read(b"s/p.public.a", 0)


KEY = b"s/p.public.a"


def parked(*ops: int) -> FakeBroker:
    """A parked topic with events of one table: a delete is 0x64, a tombstone 0."""
    broker = FakeBroker()
    broker.create(TopicSpec("p.parked", 1, 1))
    table = TableBatch("public", "a")
    for op in ops:
        table.messages.append({"key": b"k", "value": None if op == TOMBSTONE else b"v"})
        table.ops.append(u8(op))
    broker.log("p.parked", 0).extend(
        Entry(message["key"], message["value"], None, ("p.parked", 0)) for message in records(KEY, "why", table)
    )
    return broker


@pytest.mark.parametrize("events_max", [1, 2, 3])
def test_a_chunk_ends_behind_the_tombstone_of_a_delete(events_max: int) -> None:
    ops = [DELETE, TOMBSTONE, 0x63, DELETE, TOMBSTONE, DELETE, 0x63, DELETE]
    reader = KafkaParkedReader(FakeReading(parked(*ops), "p.parked"), events_max)
    offset, chunks, is_last = 0, [], False
    while not is_last:
        chunk = reader.read(KEY, offset)
        offset, is_last = chunk.offset, chunk.is_last
        chunks.append([event.op for event in chunk.events])
    assert [op for chunk in chunks for op in chunk] == ops
    assert all(chunk[:1] != [TOMBSTONE] for chunk in chunks)
    assert all(len(chunk) <= events_max + 1 for chunk in chunks)
