"""Asks for offsets of partitions: their starts, their ends, and where undecided transactions begin.

Before: `admin` knows the partitions. After: the brokers.
Source: Kafka protocol guide, ListOffsets.

Trap: if a leader is lost during ListOffsets, librdkafka 2.16 answers the offset -1001, without an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from cdcd.sink.kafka.admin_calls import PAUSE_S, AdminCalls
from cdcd.sink.kafka.errors import kafka_error

UNKNOWN_TOPIC: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_NOT_YET: Final = frozenset(  # a broker may not know yet that it is the leader which the metadata names
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,  # the metadata knows of a later epoch than the leader does
        KafkaError.FENCED_LEADER_EPOCH,  # or of an earlier one
        KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know yet how far the records are replicated
        KafkaError._TRANSPORT,
        KafkaError._NOENT,  # no leader is known while the client reconnects
        *UNKNOWN_TOPIC,
    }
)
LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # a class without annotations
EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # as above


def offsets(
    calls: AdminCalls,
    places: Iterable[tuple[str, int]],
    spec: OffsetSpec = LATEST,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[tuple[str, int], int]:
    """Return the offset of each place, a topic and a partition. Raises KafkaException.

    Only those that have no answer yet are asked for again: a broker takes its time for 1,000 new topics.
    """
    found: dict[tuple[str, int], int] = {}
    wanted = set(places)
    deadline = calls.deadline.of_call()
    while True:
        asked = {TopicPartition(*place): spec for place in wanted}
        futures = {**calls.client.list_offsets(asked, isolation_level=isolation, request_timeout=calls.timeout_s)}
        for each in asked:
            try:
                (answer,) = calls.answers({"": futures.pop(each)}).values()
                if answer.offset < 0:
                    raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no answer to ListOffsets"))
            except KafkaException as error:
                if kafka_error(error).code() not in _NOT_YET or calls.deadline.is_over(deadline):
                    raise
            else:
                found[each.topic, each.partition] = answer.offset
        wanted -= found.keys()
        if not wanted:
            return found
        time.sleep(PAUSE_S)
