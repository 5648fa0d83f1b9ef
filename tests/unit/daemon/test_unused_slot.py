"""A slot that a start has made and not used is dropped, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest
from sim.fake_kafka import FakeBroker, FakeKafkaCluster, FakeProducer

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.unused_slot import RELEASE_S, drop_unused_slot
from cdcd.errors import KafkaUnavailable
from cdcd.progress.records import SlotRecord
from cdcd.sink.topics import TopicNames, progress_spec
from cdcd.source.server_errors import SlotActive


class PlayedClients(Clients):
    """Plays a server with one slot, and a cluster."""

    def __init__(self, settings: Settings, cluster: Callable[[], Any], held_until_s: float) -> None:
        super().__init__(settings)
        self._cluster = cluster
        self._held_until_s = held_until_s
        self.now_s = 0.0
        self.dropped = False
        self.on_wait: Callable[[], None] = lambda: None

    def kafka(self) -> Any:
        return self._cluster()

    def session(self) -> Any:
        return self

    def slot(self, session: Any) -> Any:
        return self

    def drop(self) -> bool:
        if self.now_s < self._held_until_s:
            raise SlotActive("cdcd", 4711)
        self.dropped = True
        return True

    def event(self) -> Any:
        return self

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.on_wait()

    def monotonic_s(self) -> float:
        return self.now_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


SETTINGS = Settings(source={"dsn": "host=x"}, sink={"bootstrap_servers": "k:9092"})
RECORD = SlotRecord("cdcd", 0x20, 0x18, 1, "7", 1, transactions=1, rows=1)


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.create(progress_spec(TopicNames("cdcd"), 1))
    return broker


def publish(broker: FakeBroker, record: SlotRecord) -> None:
    producer = FakeProducer(broker, "cdcd-cdcd")
    producer.start(lambda: False)
    producer.begin()
    producer.produce("cdcd.progress", 0, [{"key": record.key(), "value": record.value()}])
    producer.commit()


@pytest.mark.parametrize("held_until_s", [0.5, 5.0])
def test_a_slot_of_which_kafka_holds_nothing_is_dropped_once_its_last_reader_has_let_it_go(
    broker: FakeBroker, held_until_s: float
) -> None:
    """The reader was this start, or another replica that is refused, too."""
    clients = PlayedClients(SETTINGS, lambda: FakeKafkaCluster(broker), held_until_s)
    assert drop_unused_slot(SETTINGS, clients)
    assert clients.dropped


def test_a_slot_that_another_daemon_has_published_from_stays(broker: FakeBroker) -> None:
    publish(broker, RECORD)
    clients = PlayedClients(SETTINGS, lambda: FakeKafkaCluster(broker), held_until_s=0.0)
    assert drop_unused_slot(SETTINGS, clients)
    assert not clients.dropped


def test_a_slot_that_another_daemon_streams_from_stays(broker: FakeBroker) -> None:
    clients = PlayedClients(SETTINGS, lambda: FakeKafkaCluster(broker), held_until_s=1e9)
    assert drop_unused_slot(SETTINGS, clients)
    assert not clients.dropped
    assert clients.now_s == pytest.approx(RELEASE_S, abs=0.3)


def test_a_slot_stays_if_another_daemon_publishes_while_it_has_it(broker: FakeBroker) -> None:
    clients = PlayedClients(SETTINGS, lambda: FakeKafkaCluster(broker), held_until_s=3.0)
    clients.on_wait = lambda: publish(broker, RECORD)
    assert drop_unused_slot(SETTINGS, clients)
    assert not clients.dropped


def test_a_slot_stays_if_kafka_cannot_say_whether_it_was_used() -> None:
    def away() -> Any:
        raise KafkaUnavailable("Kafka is away", code="kafka-unavailable")

    clients = PlayedClients(SETTINGS, away, held_until_s=0.0)
    assert not drop_unused_slot(SETTINGS, clients)
    assert not clients.dropped
