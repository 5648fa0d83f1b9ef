"""Parked events are read back, or their loss is told."""

from __future__ import annotations

import pytest
from sim.fake_kafka import FakeBroker, FakeReading

from cdcd.errors import GapError
from cdcd.sink.kafka.parked_reader import KafkaParkedReader


def test_a_parked_topic_that_is_not_there_is_a_gap() -> None:
    with pytest.raises(GapError, match="was removed"):
        KafkaParkedReader(FakeReading(FakeBroker(), "p.parked")).read(b"s/p.public.a", 0)
