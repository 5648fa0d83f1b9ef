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
from cdcd.errors import KafkaUnavailable
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
