"""cdcd's own topics keep what they must keep, or the daemon does not start."""

from __future__ import annotations

import pytest
from sim.fake_kafka import FakeBroker, FakeKafkaCluster

from cdcd.errors import RequestRejected
from cdcd.sink.own_topics import faults
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs, parked_spec

NAMES = TopicNames("p")


def test_topics_as_cdcd_makes_them_have_no_fault() -> None:
    specs = [*own_specs(NAMES, 1, {}), parked_spec(NAMES, 1, {})]
    assert {spec.name for spec in specs} == set(NAMES.own)
    partitions = {spec.name: spec.partitions for spec in specs}
    assert list(faults(NAMES, partitions, {spec.name: spec.config for spec in specs})) == []


def test_topics_that_do_not_exist_or_cannot_be_seen_have_no_fault() -> None:
    assert list(faults(NAMES, {}, {})) == []
    assert list(faults(NAMES, dict.fromkeys(NAMES.own, 1), {})) == []


@pytest.mark.parametrize("topic", NAMES.compacted)
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_compacted_topic_that_expires_is_fatal(topic: str, policy: str) -> None:
    [fault] = faults(NAMES, {}, {topic: {"cleanup.policy": policy}})
    assert fault.is_fatal
    assert f"{topic} has cleanup.policy={policy}" in fault.message
    assert f"--entity-name {topic} --add-config cleanup.policy=compact" in fault.hint


def test_parked_events_that_are_compacted_are_fatal_and_those_that_expire_are_not() -> None:
    [compacted] = faults(NAMES, {}, {"p.parked": {"cleanup.policy": "compact"}})
    [expiring] = faults(NAMES, {}, {"p.parked": {"cleanup.policy": "delete", "retention.ms": "604800000"}})
    assert compacted.is_fatal
    assert not expiring.is_fatal


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (TopicSpec("p.progress", 3, 1, {"cleanup.policy": "compact"}), "p.progress has 3 partitions"),
        (TopicSpec("p.snapshots", 1, 1, {"cleanup.policy": "delete"}), "p.snapshots has cleanup.policy=delete"),
    ],
)
def test_a_start_is_refused_for_what_is_fatal(spec: TopicSpec, said: str) -> None:
    kafka = FakeKafkaCluster(FakeBroker())
    kafka.check_own_topics(NAMES)
    kafka.broker.create(spec)
    with pytest.raises(RequestRejected, match=said):
        kafka.check_own_topics(NAMES)
