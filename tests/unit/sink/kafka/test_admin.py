"""What the admin client does with brokers that answer in odd ways, without brokers."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from cdcd.errors import CdcdError, KafkaUnavailable, RequestRejected
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs, parked_spec


class JustStarted:
    """A cluster that names no broker in its first answers."""

    def __init__(self, empty_answers: float) -> None:
        self.empty_answers = empty_answers

    def list_topics(self, *topics: str, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        self.empty_answers -= 1
        names_broker = self.empty_answers < 0
        named = dict.fromkeys(topics, "topic")
        return SimpleNamespace(
            brokers={1: "broker"} if names_broker else {}, topics=named, cluster_id="c" * names_broker
        )

    def poll(self, timeout: float) -> int:
        return 0


class StillDeleting(JustStarted):
    """A cluster that still deletes a topic: it does not show the topic, and lets nobody make it yet."""

    def __init__(self) -> None:
        super().__init__(0)
        self.tries = 0

    def create_topics(self, new: list[Any], **_: object) -> dict[str, Future[None]]:
        self.tries += 1
        deleting = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)) if self.tries == 1 else None
        return {each.topic: answer(deleting) for each in new}

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:
        partition = SimpleNamespace(leader=SimpleNamespace(id=1), id=0, replicas=[1])
        if self.tries < 2:
            return {"t": answer(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))}
        return {"t": answer(SimpleNamespace(partitions=[partition]))}

    def list_offsets(self, wanted: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        return {place: answer(SimpleNamespace(topic=place.topic, partition=0, offset=0)) for place in wanted}


class Managed(JustStarted):
    """A cluster with a policy against min.compaction.lag.ms, or against retention.ms=-1."""

    def __init__(self, forbidden: str) -> None:
        super().__init__(0)
        self.forbidden = forbidden

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:
        unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return {name: answer(unknown) for name in ("p.progress", "p.snapshots", "p.schemas", "p.parked")}

    def create_topics(self, new: list[Any], *, validate_only: bool, **_: object) -> dict[str, Future[None]]:
        assert validate_only
        refused = KafkaException(KafkaError(KafkaError.POLICY_VIOLATION, f"no {self.forbidden}"))
        return {each.topic: answer(refused if self.forbidden in each.config else None) for each in new}


class Forbidding(JustStarted):
    """A managed cluster, whose policy allows no topic a setting of its own."""

    def __init__(self) -> None:
        super().__init__(0)
        self.made: list[Any] = []

    def create_topics(self, new: list[Any], **_: object) -> dict[str, Future[None]]:
        forbidden = KafkaException(KafkaError(KafkaError.POLICY_VIOLATION, "not allowed"))
        self.made += [each for each in new if not each.config]
        return {each.topic: answer(forbidden if each.config else None) for each in new}


def answer(found: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
    return future


def admin_of(cluster: JustStarted, timeout_s: float) -> KafkaAdmin:
    admin = KafkaAdmin(KafkaConnection("127.0.0.1:1", "test", {}), timeout_s)
    admin._calls._client = cast("AdminClient", cluster)
    return admin


def test_a_cluster_is_believed_only_once_it_names_a_broker() -> None:
    assert admin_of(JustStarted(2), 5.0).cluster_id() == "c"


def test_a_cluster_that_never_names_a_broker_is_unavailable() -> None:
    with pytest.raises(KafkaUnavailable):
        admin_of(JustStarted(float("inf")), 0.2).cluster_id()


def test_a_topic_that_is_still_being_deleted_is_made_as_soon_as_it_is_gone() -> None:
    cluster = StillDeleting()
    assert admin_of(cluster, 5.0).ensure(TopicSpec("t", 1, 1)) == [1]
    assert cluster.tries == 2


OWN = [*own_specs(TopicNames("p"), 1, {}), parked_spec(TopicNames("p"), 1, {})]


def test_a_setting_that_the_cluster_forbids_and_cdcd_can_do_without_is_found_before_the_topic_is_made() -> None:
    [found] = admin_of(Managed("min.compaction.lag.ms"), 5.0).validate(*OWN)
    assert found.name == "p.progress"


def test_a_setting_that_the_cluster_forbids_and_parked_events_need_is_refused_before_the_topic_is_made() -> None:
    with pytest.raises(RequestRejected, match=r"p\.parked.*no retention\.ms"):
        admin_of(Managed("retention.ms"), 5.0).validate(*OWN)


def test_a_topic_is_made_without_what_a_policy_forbids_if_it_can_do_without() -> None:
    cluster = Forbidding()
    lag = {"min.compaction.lag.ms": "1"}
    [refused] = admin_of(cluster, 5.0)._creation.create([TopicSpec("t", 1, 1, lag, frozenset(lag))])
    assert [each.topic for each in cluster.made] == [refused.name] == ["t"]


def test_a_topic_that_needs_what_a_policy_forbids_is_refused() -> None:
    with pytest.raises(CdcdError, match="not allowed") as refused:
        admin_of(Forbidding(), 5.0)._creation.create([TopicSpec("t", 1, 1, {"cleanup.policy": "compact"})])
    assert "policy" in refused.value.hint
