"""A slot is made only by a start that knows that there is no progress, and that is not about to stop."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sim.fake_kafka import FakeBroker, FakeKafkaCluster, FakeProducer

from cdcd.config.settings import Settings, SinkSettings, SourceSettings
from cdcd.daemon.slot_setup import SlotSetup
from cdcd.errors import GapError, PostgresUnavailable, RequestRejected
from cdcd.progress.continuity import Server
from cdcd.progress.records import SlotRecord
from cdcd.sink.topics import TopicNames, own_specs
from cdcd.source.server_errors import SlotActive
from cdcd.source.slot import SlotState

HERE = Server("1", 1, "", 0x600, 0)
NAMES = TopicNames("p")


class PlayedSession:
    def rows(self, query: object, parameters: object = None) -> list[Any]:
        return []

    def lock_timeout(self, seconds: float) -> Any:
        return nullcontext()


class PlayedSlot:
    """There is no slot, until it is made."""

    found: SlotState | None = None

    def state(self) -> SlotState | None:
        return self.found

    fitting_state = state

    def database_oid(self) -> int:
        return 5

    def writers(self) -> tuple[str, ...]:
        return ()


class PlayedStream:
    created = 0
    standby = False

    def create_slot(self, slot: str, **_: Any) -> Any:
        self.created += 1
        return SimpleNamespace(consistent_lsn=0x700)


class PlayedCluster(FakeKafkaCluster):
    def validate(self, *_: Any) -> list[Any]:
        return []


class Start:
    """One start of a daemon."""

    def __init__(self, on_slot_lost: str = "stop") -> None:
        source = SourceSettings(dsn="d", slot="s").model_copy(update={"on_slot_lost": on_slot_lost})
        settings = Settings(source=source, sink=SinkSettings(bootstrap_servers="b", prefix="p"))
        self.kafka = PlayedCluster(FakeBroker())
        self.kafka.ensure(*own_specs(NAMES, 1, {}))
        self.stream = PlayedStream()
        self.stops = False
        self.slot = PlayedSlot()
        clients = SimpleNamespace(slot=lambda _: self.slot, monotonic_s=lambda: 0.0, registry=lambda: None)
        publication = SimpleNamespace(tables=list)
        self.setup = SlotSetup(
            settings, cast("Any", clients), cast("Any", PlayedSession()), cast("Any", publication), self.kafka,
            lambda: self.stops,
        )  # fmt: skip

    def stop(self, step: str) -> None:
        self.stops = self.stops or step == "read"

    def publish(self, record: SlotRecord) -> None:
        producer = FakeProducer(self.kafka.broker, "p-s")
        producer.start(lambda: False)
        producer.begin()
        producer.produce(NAMES.progress, 0, [{"key": record.key(), "value": record.value()}])
        producer.commit()

    def ensure(self, server: Server = HERE) -> int:
        """How many slots were made."""
        self.setup.ensure(cast("Any", self.stream), server)
        return self.stream.created


LAST = SlotRecord("s", 0x500, 0x480, 1, "1", 1, 1, 1, database_oid=5)


def test_a_first_start_makes_the_slot() -> None:
    assert Start().ensure() == 1


@pytest.mark.parametrize("published", [True, False])
def test_a_start_that_is_stopped_while_it_reads_the_progress_makes_no_slot(published: bool) -> None:
    start = Start()
    if published:
        start.publish(LAST)
    start.kafka.broker.on_call = start.stop
    assert start.ensure() == 0


@pytest.mark.parametrize("on_slot_lost", ["resnapshot", "repair"])
def test_a_slot_that_is_gone_is_made_again_only_for_new_snapshots_or_repairs(on_slot_lost: str) -> None:
    start = Start()
    start.publish(LAST)
    with pytest.raises(GapError, match="does not exist any more"):
        start.ensure()
    again = Start(on_slot_lost=on_slot_lost)
    again.publish(LAST)
    assert again.ensure() == 1


@pytest.mark.parametrize(
    "record", [SlotRecord("s", 1, 0, 0, "2", 1, 0, 0), SlotRecord("s", 1, 0, 0, "1", 1, 0, 0, database_oid=6)]
)
def test_no_slot_is_made_on_another_server_or_in_another_database(record: SlotRecord) -> None:
    start = Start(on_slot_lost="resnapshot")
    start.publish(record)
    with pytest.raises(GapError, match=r"Check source\.dsn"):
        start.ensure()
    assert start.stream.created == 0


def held(active_pid: int | None, confirmed_lsn: int | None = 0x480) -> SlotState:
    return SlotState(
        "s", "pgoutput", "d", False, active_pid is not None, active_pid, confirmed_lsn, 0x400, "reserved", None, False,
        False, "", 0x700, database_oid=5,
    )  # fmt: skip


def test_the_positions_of_the_slot_count_if_the_session_sees_that_the_stream_holds_it() -> None:
    start = Start()
    start.slot.found = held(active_pid=7)
    stream = cast("Any", SimpleNamespace(backend_pid=7))
    assert start.setup.held_by(HERE, stream) == replace(HERE, wal_lsn=0x700, confirmed_lsn=0x480, database_oid=5)


@pytest.mark.parametrize("active_pid", [None, 8])
def test_a_session_that_was_led_to_another_server_than_the_stream_ends_the_start(active_pid: int | None) -> None:
    """The primary of before may still answer: its slot stands where the progress ends, whatever the new one lacks."""
    start = Start()
    start.slot.found = held(active_pid)
    stream = SimpleNamespace(backend_pid=7, raise_if_ended=lambda: None)
    with pytest.raises(PostgresUnavailable, match="is not held by the connection that streams from it"):
        start.setup.held_by(HERE, cast("Any", stream))


def test_a_stream_that_the_server_has_ended_already_says_why() -> None:
    def ended() -> None:
        raise RequestRejected("the server cannot decode it", "Set source.two_phase = false", code="statement-refused")

    start = Start()
    start.slot.found = held(None)
    with pytest.raises(RequestRejected, match="cannot decode"):
        start.setup.held_by(HERE, cast("Any", SimpleNamespace(backend_pid=7, raise_if_ended=ended)))


def test_a_slot_that_the_session_does_not_see_ends_the_start() -> None:
    with pytest.raises(PostgresUnavailable, match="disappeared during the start"):
        Start().setup.held_by(HERE, cast("Any", SimpleNamespace(backend_pid=7)))


class BusyStream:
    def __init__(self, pid: int, *, is_foreign: bool = False) -> None:
        self._error = SlotActive("s", pid, "cdcd", is_foreign=is_foreign)

    def start(self, *_: object) -> None:
        raise self._error


def test_the_lost_connection_of_the_own_process_does_not_keep_the_slot() -> None:
    start, ended = Start(), list[int]()

    def end_walsender(pid: int) -> bool:
        ended.append(pid)
        return True

    start.slot.end_walsender = end_walsender  # type: ignore[attr-defined]
    for stream in (BusyStream(7), BusyStream(8, is_foreign=True)):
        with pytest.raises(SlotActive):
            start.setup.start(cast("Any", stream), {}, 8)
    assert ended == []
    with pytest.raises(PostgresUnavailable, match="ended PostgreSQL's process 8"):
        start.setup.start(cast("Any", BusyStream(8)), {}, 8)
    assert ended == [8]
