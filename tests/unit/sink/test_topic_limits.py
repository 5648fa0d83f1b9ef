"""Batches become as small as the topics ask; only then is a row too large."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim.fake_kafka import FakeAdmin, FakeBroker

from cdcd.errors import BatchTooLarge, RecordTooLarge
from cdcd.sink.batches import Message, TableBatch
from cdcd.sink.producer_bounds import BATCH_BYTES, BATCH_BYTES_MIN, ProducerBounds
from cdcd.sink.topic_limits import TopicLimits
from cdcd.sink.topics import TopicSpec


class Limits(TopicLimits):
    """Of a broker with one topic, `t`."""

    def __init__(self, limit: int | None) -> None:
        self.broker = FakeBroker()
        self.broker.create(TopicSpec("t", 1, 1))
        self.bounds = ProducerBounds()
        self.set(limit)
        super().__init__(FakeAdmin(self.broker), self.bounds)

    def set(self, limit: int | None) -> None:
        config = {} if limit is None else {"max.message.bytes": str(limit)}
        self.broker.specs["t"] = replace(self.broker.specs["t"], config=config)


def refusal() -> RecordTooLarge:
    return RecordTooLarge("Kafka refused writing records", "Raise it", topic="t", code="row-too-large")


def test_a_topic_with_kafkas_own_limit_leaves_the_batches_as_they_are() -> None:
    limits = Limits(1_048_588)
    limits.look(["t"])
    assert limits.bounds.batch_bytes == BATCH_BYTES


def test_a_topic_that_takes_less_makes_the_next_streams_batches_smaller() -> None:
    limits = Limits(100_000)
    with pytest.raises(BatchTooLarge, match=r"t takes at most 100,000 bytes in one batch \(max\.message\.bytes\)"):
        limits.look(["t"])
    assert limits.bounds.batch_bytes == 96_000
    limits.look(["t"])


def test_a_limit_that_became_smaller_is_found_when_the_topic_refuses() -> None:
    limits = Limits(1_048_588)
    limits.look(["t"])
    limits.set(50_000)
    assert isinstance(limits.explain(refusal()), BatchTooLarge)
    assert limits.bounds.batch_bytes == 48_000


def test_a_limit_that_nobody_may_see_is_found_by_trying() -> None:
    limits, tries = Limits(None), 0
    limits.look(["t"])
    while isinstance(limits.explain(refusal()), BatchTooLarge):
        tries += 1
    assert limits.bounds.batch_bytes <= BATCH_BYTES_MIN
    assert tries == 6


def test_a_row_that_is_too_large_is_named_with_its_size_and_the_limit() -> None:
    limits = Limits(50_000)
    with pytest.raises(BatchTooLarge):
        limits.look(["t"])
    limits.look(["t"])
    large: Message = {"key": b"k" * 10, "value": b"v" * 60_000, "headers": [("op", b"c")]}
    batch = TableBatch("public", "a")
    batch.messages = [large, {"value": b"v" * 90}]
    limits.note("t", 60_103, batch)
    error = limits.explain(refusal())
    assert isinstance(error, RecordTooLarge)
    assert "a row of 60,013 bytes: the topic t takes at most 50,000 bytes (max.message.bytes)" in error.message
    assert error.topic == "t"


def test_small_batches_are_not_measured() -> None:
    limits = Limits(50_000)
    limits.note("t", 47_000, TableBatch("public", "a"))
    assert not limits._largest
