"""Partitions are those of Kafka's Java clients; order within a partition is the order of the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.sink.batches import Message
from cdcd.sink.partitioner import partition_for, split
from cdcd.transaction.key_hash import murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_partition_exists(key: bytes, partitions: int) -> None:
    assert 0 <= murmur2(key) < 1 << 32
    assert 0 <= partition_for(key, partitions) < partitions


def test_records_without_a_key_go_to_partition_0() -> None:
    messages: list[Message] = [{"value": b"a"}, {"value": b"b"}]
    assert split(messages, [], 3) == [messages, [], []]


def test_records_for_everywhere_are_in_every_partition_at_their_place() -> None:
    messages: list[Message] = [{"key": b"%d" % number, "value": b"%d" % number} for number in range(9)]
    messages.insert(0, {"value": b"first"})
    messages.insert(5, {"value": b"middle"})
    messages.append({"value": b"last"})
    lists = split(messages, [0, 5, 11], 2)
    early = messages[1:5]
    for partition, records in enumerate(lists):
        assert [record["value"] for record in records if b"t" in (record["value"] or b"") or record is messages[5]] == [
            b"first",
            b"middle",
            b"last",
        ]
        middle = records.index(messages[5])
        assert records[1:middle] == [m for m in early if partition_for(m["key"] or b"", 2) == partition]


@given(st.lists(st.tuples(st.none() | st.binary(max_size=8), st.booleans()), max_size=60), st.integers(1, 7))
def test_every_record_is_in_its_partition_once_and_in_order(rows: list[tuple[bytes | None, bool]], n: int) -> None:
    messages: list[Message] = []
    for number, (key, _) in enumerate(rows):
        value = b"%d" % number
        messages.append({"value": value} if key is None else {"key": key, "value": value})
    everywhere = [number for number, (key, all_) in enumerate(rows) if key is None and all_]
    lists = split(messages, everywhere, n)
    assert len(lists) == n
    for partition, records in enumerate(lists):
        expected = []
        for number, message in enumerate(messages):
            key = message.get("key")
            if number in everywhere or partition == (0 if key is None else partition_for(key, n)):
                expected.append(message)
        assert records == expected


def test_a_hash_that_a_record_brings_decides_its_partition() -> None:
    messages: list[Message] = [{"key": b"%d" % number, "value": b"", "hash": number} for number in range(6)]
    messages.append({"key": b"a", "value": b""})
    lists = split(messages, [], 3, has_hashes=True)
    assert [[each["hash"] for each in records if "hash" in each] for records in lists] == [[0, 3], [1, 4], [2, 5]]
    assert messages[-1] in lists[partition_for(b"a", 3)]


def test_the_lists_are_new_but_the_records_are_shared() -> None:
    messages: list[Message] = [{"value": b"a"}]
    (only,) = split(messages, [0], 1)
    assert only is not messages
    assert only[0] is messages[0]
