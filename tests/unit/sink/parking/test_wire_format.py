"""Parked events are kept in records, and come back as they were."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.errors import GapError
from cdcd.sink.batches import BatchBuilder, TableBatch
from cdcd.sink.parking import wire_format
from cdcd.sink.parking.wire_format import ParkedEvent, PartAssembler, batch_of
from cdcd.sink.topics import PARKED_MESSAGE_BYTES

INSERT = ord("c")
DELETE = ord("d")

events = st.builds(
    ParkedEvent,
    st.sampled_from(b"cudt\0"),
    st.none() | st.binary(max_size=30),
    st.none() | st.binary(max_size=3000),
    st.booleans(),
    st.dictionaries(st.sampled_from(["__debezium.newkey", "other"]), st.binary(max_size=30)),
    st.none() | st.integers(0, 2**32 - 1),
)


@given(st.lists(events, max_size=8), st.integers(1, 700))
def test_parked_events_come_back_as_they_were(given_: list[ParkedEvent], part_bytes: int) -> None:
    batch = batch_of("public", "a", given_)
    records = list(wire_format.records(b"s/p.public.a", "too large", batch, part_bytes))
    assert {record["key"] for record in records} <= {b"s/p.public.a"}
    assembler, back = PartAssembler(), []
    for offset, record in enumerate(records):
        assert record["value"] is not None
        event = assembler.add(offset, record["value"])
        if event is not None:
            assert assembler.is_between_events
            back.append(event)
    assert back == given_
    assert assembler.is_between_events


def test_a_record_has_room_for_a_large_key_and_the_first_part_of_a_value() -> None:
    """A record has to fit into the parked topic, whatever the row is: the topic is the last resort."""
    for size in (0, 300_000, 680_000):
        batch = batch_of("public", "a", [ParkedEvent(INSERT, b"k" * size, b"x" * 2_000_000, False)])
        records = list(wire_format.records(b"s/p.public.a", "too large", batch))
        assert max(len(record["value"] or b"") for record in records) < PARKED_MESSAGE_BYTES


def test_no_key_and_no_header_is_too_large_for_a_record() -> None:
    """Whoever may write a row would stop the daemon by it, and no setting but a limit of Kafka would help."""
    given_ = [
        ParkedEvent(INSERT, b"k" * 340_000, b"x" * 2_000_000, False, {"__debezium.newkey": b"h" * 340_000}),
        ParkedEvent(INSERT, b"k" * 5_000_000, None, False, {"id": b"1", "trace": b"t" * 5_000_000, "empty": b""}),
        ParkedEvent(INSERT, b"k" * 600_000, b"v", False, {"empty": b""}),
    ]
    records = list(wire_format.records(b"s/p.public.a", "too large", batch_of("public", "a", given_)))
    assert max(len(record["value"] or b"") for record in records) < PARKED_MESSAGE_BYTES
    assembler = PartAssembler()
    back = [assembler.add(offset, record["value"] or b"") for offset, record in enumerate(records)]
    assert [event for event in back if event is not None] == given_


def test_an_event_whose_value_alone_has_parts_is_read_by_earlier_releases() -> None:
    events = [
        (ParkedEvent(INSERT, b"k", b"x" * 2_000_000, False, {"h": b"v"}), 1),
        (ParkedEvent(INSERT, b"k" * 700_000, b"x", False), 2),
    ]
    for event, version in events:
        [first, *more] = wire_format.records(b"s/p.public.a", "too large", batch_of("public", "a", [event]))
        for record in (first, *more):
            document = json.loads(record["value"] or b"")
            assert document["version"] == version
            assert version == 2 or record is first or (document["key"] is None and "headers" not in document)


def test_a_part_that_is_missing_is_a_gap() -> None:
    batch = TableBatch("public", "a")
    batch.messages.append({"key": b"k", "value": b"x" * (wire_format.PART_BYTES * 3 - 1)})
    batch.ops.append(INSERT)
    first, _, third = wire_format.records(b"key", "too large", batch)
    assembler = PartAssembler()
    assembler.add(5, first["value"] or b"")
    with pytest.raises(GapError, match="offset 9 cannot be read: part 3 comes after 1 parts"):
        assembler.add(9, third["value"] or b"")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version": 3}', b"[1]", b"\xff", b"[" * 100_000])
def test_what_is_no_parked_record_is_a_gap(data: bytes) -> None:
    with pytest.raises(GapError, match="cannot be read"):
        PartAssembler().add(0, data)


def test_a_row_that_is_deleted_and_its_tombstone_come_back_as_two_records() -> None:
    builder = BatchBuilder(tombstones=True)
    builder.begin(1, 1)
    builder.add(builder.open_table("public", "a"), DELETE, b"k", b"v")
    builder.commit(2)
    [table] = builder.build().tables
    assembler = PartAssembler()
    back = [
        assembler.add(n, record["value"] or b"")
        for n, record in enumerate(wire_format.records(b"k", "too large", table))
    ]
    assert [(event.op, event.value) for event in back if event] == [(DELETE, b"v"), (0, None)]
    again = batch_of("public", "a", [event for event in back if event])
    assert again.messages == table.messages
    assert again.counts == table.counts
