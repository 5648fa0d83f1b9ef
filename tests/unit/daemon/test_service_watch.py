from __future__ import annotations

from threading import Event
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from cdcd.config.settings import AvroSettings, Settings, SinkSettings, SourceSettings
from cdcd.daemon.clients import Clients
from cdcd.daemon.service_watch import SINK_IDLE_S, SINK_STUCK_S, KafkaWatch, ServiceWatch, services
from cdcd.errors import AccessDenied, CdcdError, KafkaUnavailable
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.reachability import KAFKA, POSTGRESQL, REGISTRY, Reachability
from cdcd.monitoring.status import QueueDepths, Status
from cdcd.sink.kafka.cluster_probe import ClusterProbe
from cdcd.sink.kafka.errors import to_cdcd_error


class PlayedProbe:
    """A cluster that a test speaks for."""

    def __init__(self) -> None:
        self.is_there = True
        self.unwritable = ""
        self.looked_at: list[list[str]] = []

    def ask(self) -> tuple[str, int]:
        if not self.is_there:
            raise KafkaUnavailable("Kafka did not answer in time", code="kafka-unavailable")
        return "id", 3

    def raise_if_unwritable(self, topics: list[str]) -> None:
        self.looked_at.append(topics)
        if self.unwritable in topics:
            raise KafkaUnavailable(
                f"Kafka takes no records: the topic {self.unwritable} lacks replicas", code="kafka-unavailable"
            )


class Played:
    """Work for Kafka has waited since 1000 s, and nothing moves."""

    def __init__(self) -> None:
        self.status = Status(Identity("1.0", "slot", "pub"), 1000.0)
        self.status.reachability = Reachability((KAFKA,))
        self.status.depths = lambda: QueueDepths(topics=("p.public.t",))
        self.status.begin_stream(1000.0)
        self.status.stages.sink.note(1000.0, True, 1)
        self.probe = PlayedProbe()
        self.watch = KafkaWatch(cast("ClusterProbe", self.probe), self.status, ["p.progress"])


@pytest.fixture
def played() -> Played:
    return Played()


def test_a_kafka_that_answers_is_asked_nothing_else_while_work_moves(played: Played) -> None:
    played.watch.ask(1000.0 + SINK_IDLE_S - 1)
    assert played.probe.looked_at == []
    assert played.status.servers.kafka == "cluster id, 3 brokers"


def test_a_kafka_that_does_not_answer_is_an_error_whether_work_waits_or_not(played: Played) -> None:
    played.probe.is_there = False
    with pytest.raises(KafkaUnavailable, match="did not answer"):
        played.watch.ask(1001.0)


def test_work_that_does_not_move_lets_the_topics_of_the_open_transaction_be_looked_at(played: Played) -> None:
    played.watch.ask(1000.0 + SINK_IDLE_S)
    assert played.probe.looked_at == [["p.public.t", "p.progress"]]


def test_a_topic_that_takes_nothing_makes_kafka_lost_within_ten_seconds_from_the_last_move_on(played: Played) -> None:
    played.probe.unwritable = "p.public.t"
    with pytest.raises(KafkaUnavailable, match=r"the topic p\.public\.t lacks replicas"):
        played.watch.ask(1000.0 + SINK_IDLE_S)
    played.status.reachability.judge(1000.0 + SINK_IDLE_S + 1)
    assert played.status.reachability.losses()[KAFKA].since_s == 1000.0
    assert not played.status.is_ready()


def test_a_kafka_that_takes_nothing_for_long_is_lost_whatever_the_reason(played: Played) -> None:
    played.watch.ask(1000.0 + SINK_STUCK_S - 1)
    with pytest.raises(KafkaUnavailable, match="answers, but has taken nothing for 60 s"):
        played.watch.ask(1000.0 + SINK_STUCK_S)


@pytest.mark.parametrize(("url", "more"), [(None, set()), ("http://r", {REGISTRY})])
def test_the_registry_is_watched_if_there_is_one(url: str | None, more: set[str]) -> None:
    avro = AvroSettings(registry_url=url)
    settings = Settings(source=SourceSettings(dsn=""), sink=SinkSettings(bootstrap_servers="k:9092"), avro=avro)
    assert set(services(settings)) == {POSTGRESQL, KAFKA} | more


class FailingClients(Clients):
    """Its Kafka is a probe with a bug."""

    def probe(self, topic: str) -> Any:
        return self

    def ask(self) -> None:
        raise ZeroDivisionError

    def close(self) -> None:
        pass


class RefusedClients(Clients):
    """Its Kafka answers; what makes its PostgreSQL password cannot be run, which counts as a refusal."""

    def probe(self, topic: str) -> Any:
        return PlayedProbe()


def test_a_postgresql_that_refuses_the_log_in_has_not_answered() -> None:
    source = SourceSettings(dsn="host=127.0.0.1 port=1 user=u", password_command=["/nowhere/to/be/found"])
    settings = Settings(source=source, sink=SinkSettings(bootstrap_servers="k:9092"))
    status, closed = Status(Identity("1.0", "slot", "pub"), 1000.0), Event()
    failed: list[CdcdError] = []

    class Noted(Reachability):
        def failed(self, service: str, since_s: float, error: CdcdError) -> None:
            if service == POSTGRESQL:
                failed.append(error)
                closed.set()

    status.reachability = Noted(services(settings))
    watch = ServiceWatch(settings, RefusedClients(settings), status, Metrics("pure"), lambda: None)
    try:
        assert closed.wait(10)
        assert type(failed[0]) is AccessDenied
    finally:
        watch.close()


class DeniedClients(Clients):
    """Its Kafka denies a right."""

    def probe(self, topic: str) -> Any:
        return self

    def ask(self) -> None:
        raise to_cdcd_error(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), "asking", "k:9092")

    def close(self) -> None:
        pass


def test_the_command_in_the_hint_of_a_lost_service_names_the_brokers_of_the_settings() -> None:
    source = SourceSettings(dsn="host=127.0.0.1 port=1")
    settings = Settings(source=source, sink=SinkSettings(bootstrap_servers="k:9092"))
    status, heard = Status(Identity("1.0", "slot", "pub"), 1000.0), Event()
    hints: list[str] = []

    class Noted(Reachability):
        def failed(self, service: str, since_s: float, error: CdcdError) -> None:
            if service == KAFKA:
                hints.append(error.hint)
                heard.set()

    status.reachability = Noted(services(settings))
    watch = ServiceWatch(settings, DeniedClients(settings), status, Metrics("pure"), lambda: None)
    try:
        assert heard.wait(10)
        assert hints[0].endswith("--bootstrap-server k:9092")
    finally:
        watch.close()


def test_a_thread_of_the_watch_does_not_end_alone() -> None:
    source = SourceSettings(dsn="host=127.0.0.1 port=1")
    settings = Settings(source=source, sink=SinkSettings(bootstrap_servers="k:9092"))
    status, woken = Status(Identity("1.0", "slot", "pub"), 1000.0), Event()
    status.reachability = Reachability(services(settings))
    watch = ServiceWatch(settings, FailingClients(settings), status, Metrics("pure"), woken.set)
    try:
        assert woken.wait(10)
        assert watch.has_failed
        with pytest.raises(ZeroDivisionError):
            watch.raise_failure()
    finally:
        watch.close()
