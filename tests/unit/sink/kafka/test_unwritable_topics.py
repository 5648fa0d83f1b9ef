from __future__ import annotations

import pytest
from confluent_kafka.admin import TopicMetadata
from confluent_kafka.admin._metadata import PartitionMetadata

from cdcd.sink.kafka.unwritable_topics import TRANSACTION_STATE, judge


def topic(*partitions: tuple[int, int, int]) -> TopicMetadata:
    """Give a topic: leader, replicas and replicas in sync of each partition."""
    made = TopicMetadata()
    for number, (leader, replicas, in_sync) in enumerate(partitions):
        partition = PartitionMetadata()
        partition.id, partition.leader = number, leader
        partition.replicas, partition.isrs = list(range(replicas)), list(range(in_sync))
        made.partitions[number] = partition
    return made


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"t": topic((1, 3, 3))}, ""),
        ({"t": topic((1, 3, 2))}, ""),
        ({"other": topic((-1, 3, 1))}, ""),
        ({"t": topic((1, 1, 1))}, ""),
        ({}, ""),
        ({"t": topic((1, 1, 1), (-1, 1, 0))}, "partition 1 of the topic t has no leader (LEADER_NOT_AVAILABLE)"),
        (
            {"t": topic((1, 3, 3), (1, 3, 1))},
            "partition 1 of the topic t has 1 of 3 replicas in sync, min.insync.replicas is 2 (NOT_ENOUGH_REPLICAS)",
        ),
    ],
)
def test_a_topic_that_takes_no_records_is_named_with_the_reason(known: dict[str, TopicMetadata], said: str) -> None:
    assert judge(known, ["t"], lambda names: dict.fromkeys(names, 2)) == said


def test_kafkas_own_topic_of_transactions_must_take_records_too() -> None:
    known = {TRANSACTION_STATE: topic((1, 3, 1)), "t": topic((1, 3, 3))}
    assert judge(known, ["t"], lambda names: dict.fromkeys(names, 2)).startswith(
        "partition 0 of the topic __transaction_state has 1 of 3"
    )


def test_without_the_right_to_see_the_setting_the_reason_is_a_guess() -> None:
    assert "perhaps fewer than it needs" in judge({"t": topic((1, 3, 2))}, ["t"], lambda _: {})
