"""A start beats its heart while it waits on the main thread: else a probe would end a daemon that only waits."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sim.fake_kafka import FakeBroker, FakeKafkaCluster, FakeProducer

from cdcd.config.settings import Settings, SinkSettings, SourceSettings
from cdcd.daemon.clients import Clients
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.stream_startup import StreamStartup
from cdcd.errors import KafkaUnavailable, RequestRejected
from cdcd.progress.records import SlotRecord
from cdcd.sink.topics import TopicNames, own_specs
from cdcd.source.connection import SystemIdentity
from cdcd.wakeup import WakeupPipe

NAMES = TopicNames("p")


class PlayedClients(Clients):
    """The publication is there, and there is no slot. Another slot has left a transaction open in the progress."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.cluster = FakeKafkaCluster(FakeBroker())
        self.cluster.ensure(*own_specs(NAMES, 1, {}))
        record = SlotRecord("other", 0x500, 0x480, 1, "1", 1, 1, 1)
        for ends in (True, False):
            producer = FakeProducer(self.cluster.broker, "p-other")
            producer.start(lambda: False)
            producer.begin()
            producer.produce(NAMES.progress, 0, [{"key": record.key(), "value": record.value()}])
            if ends:
                producer.commit()

    def session(self) -> Any:
        return nullcontext(SimpleNamespace())

    def kafka(self) -> Any:
        return self.cluster

    def catalog(self, session: object) -> Any:
        return SimpleNamespace(wal_sender_timeout_s=lambda: 60.0)

    def slot(self, session: object) -> Any:
        return SimpleNamespace(fitting_state=lambda: None)

    def publication(self, session: object) -> Any:
        return SimpleNamespace(exists=lambda: True, tables=list)

    def replication_stream(self) -> Any:
        return nullcontext(
            SimpleNamespace(
                identify=lambda: SystemIdentity("1", 1, 0x600, "d"),
                timeline_history=lambda _: "",
                server_version=180_000,
                standby=False,
            )
        )


def test_a_first_start_beats_its_heart_while_another_slots_transaction_hides_the_progress() -> None:
    settings = Settings(source=SourceSettings(dsn="d", slot="s"), sink=SinkSettings(bootstrap_servers="b", prefix="p"))
    fallbacks = Fallbacks(binary=True)
    fallbacks.judgement = cast("Any", SimpleNamespace(judge=lambda *_, **__: True, judge_columns=lambda *_: True))
    wake, beats = WakeupPipe(), list[None]()
    startup = StreamStartup(
        settings, PlayedClients(settings), fallbacks, wake, lambda: False, lambda: beats.append(None)
    )
    with pytest.raises(KafkaUnavailable, match="left a transaction open"):
        startup.open()
    startup.close()
    wake.close()
    assert beats


@pytest.mark.parametrize(("is_to_change", "follows"), [(False, False), (True, False), (True, True)])
def test_a_table_that_is_refused_keeps_no_daemon_from_taking_it_out_of_the_publication(
    is_to_change: bool, follows: bool
) -> None:
    settings = Settings(source=SourceSettings(dsn="d", slot="s"), sink=SinkSettings(bootstrap_servers="b", prefix="p"))
    clients, fallbacks, wake, done = PlayedClients(settings), Fallbacks(binary=True), WakeupPipe(), list[str]()
    stream = SimpleNamespace(**vars(clients.replication_stream().enter_result), backend_pid=1)
    clients.replication_stream = lambda: nullcontext(stream)  # type: ignore[method-assign]
    stream.enlarge_read_buffer = lambda: None

    def judge(*_: object) -> bool:
        if "altered" not in done:
            raise RequestRejected("a table is refused", code="partition-identity-lesser")
        return True

    def follow() -> bool:
        done.extend(["altered"] if follows else [])
        return follows

    def held_by(*_: object) -> None:
        raise KafkaUnavailable("the start goes on", code="kafka-unavailable")

    fallbacks.judgement = cast("Any", SimpleNamespace(judge=judge, judge_columns=judge))
    startup: Any = StreamStartup(settings, clients, fallbacks, wake, lambda: False)
    startup._publication = SimpleNamespace(ensure=lambda **_: None, is_to_change=lambda: is_to_change, follow=follow)
    startup._slot = SimpleNamespace(ensure=lambda *_: None, start=lambda *_: done.append("started"), held_by=held_by)
    with pytest.raises(KafkaUnavailable if follows else RequestRejected):
        startup.open()
    startup.close()
    wake.close()
    assert done == (["started"] if is_to_change else []) + (["altered"] if follows else [])
