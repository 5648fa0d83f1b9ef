from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.supervisor import ACCESS_RETURNS_S, BACKOFF_MAX_S, FIRST_STREAM_WITHIN_S, Supervisor
from cdcd.errors import (
    AccessDenied,
    CdcdError,
    FatalError,
    KafkaUnavailable,
    PostgresUnavailable,
    TextUnconvertible,
    Unpublishable,
)
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import State, Status
from cdcd.sink.kafka.errors import to_cdcd_error
from cdcd.sink.kafka.refusals import SIZE
from cdcd.source.server_errors import SlotActive
from cdcd.wakeup import WakeupPipe

TABLE = ("public", "a")


class SetClock(Clients):
    """Makes no connection; its clock stands until it is set."""

    now_s = 0.0
    step_s = 0.0
    """How far each look at the clock moves it."""

    def monotonic_s(self) -> float:
        self.now_s += self.step_s
        return self.now_s


class FailingStartup:
    """Plays StreamStartup: fails as it is told to, each time with the next error; the last one once more."""

    slot_created = False

    def __init__(self, fail: Callable[[], CdcdError]) -> None:
        self._fail = fail

    def __call__(self, *arguments: Any) -> Any:
        return self

    def open(self) -> None:
        raise self._fail()

    def close(self) -> None:
        pass


class Daemon:
    """A supervisor with nothing around it."""

    def __init__(self, fail: Callable[[], CdcdError], binary: str | bool = "auto", **sink: Any) -> None:
        settings = Settings(source={"dsn": "host=x", "binary": binary}, sink={"bootstrap_servers": "k:9092", **sink})
        self.clients = SetClock(settings)
        self.status = Status(Identity("test", "s", "p"), 0.0)
        self.wake = WakeupPipe()
        self.stops = False
        self.supervisor = Supervisor(
            settings, self.clients, self.status, Metrics("pure"), self.wake, lambda: self.stops, FailingStartup(fail)
        )


@pytest.fixture
def make() -> Iterator[Callable[..., Daemon]]:
    made: list[Daemon] = []

    def make(fail: Callable[[], CdcdError], **settings: Any) -> Daemon:
        made.append(Daemon(fail, **settings))
        return made[-1]

    yield make
    for each in made:
        each.wake.close()


@pytest.mark.parametrize("after_s", [0.0, 3600.0])
def test_a_stream_that_ends_while_it_is_told_to_stop_is_not_started_again(
    make: Callable[..., Daemon], caplog: pytest.LogCaptureFixture, after_s: float
) -> None:
    """Not even a daemon that never streamed fails then, however long it has tried."""

    def fail() -> CdcdError:
        assert not daemon.stops, "it starts again"
        daemon.clients.now_s += after_s
        daemon.stops = True
        return KafkaUnavailable("Kafka is away", "Look at it.", code="kafka-unavailable")

    daemon = make(fail)
    with caplog.at_level(logging.INFO, "cdcd.daemon.supervisor"):
        daemon.supervisor.run()
    assert daemon.status.state is State.STOPPING
    [line] = caplog.messages
    assert line.startswith("stopped; ")
    assert "Kafka is away" in line


@pytest.mark.parametrize("slot_created", [True, False])
def test_a_first_start_that_is_stopped_says_that_its_slot_stays(
    make: Callable[..., Daemon], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, slot_created: bool
) -> None:
    def fail() -> CdcdError:
        daemon.stops = True
        return KafkaUnavailable("Kafka is away", "Look at it.", code="kafka-unavailable")

    monkeypatch.setattr(FailingStartup, "slot_created", slot_created)
    daemon = make(fail)
    daemon.supervisor.run()
    assert "made the slot" not in caplog.text
    daemon.supervisor.close()
    assert (
        "made the slot cdcd, which keeps WAL until it is read; cdcd slot drop --force" in caplog.text
    ) is slot_created


def test_a_daemon_that_never_streamed_gives_up_after_a_minute(make: Callable[..., Daemon]) -> None:
    def fail() -> CdcdError:
        daemon.clients.now_s += FIRST_STREAM_WITHIN_S
        return PostgresUnavailable("PostgreSQL is away", "Look at it.", code="postgres-interrupted")

    daemon = make(fail)
    with pytest.raises(FatalError, match="no stream started within 60 s: PostgreSQL is away"):
        daemon.supervisor.run()
    assert daemon.status.state is State.FAILED


def test_a_daemon_that_never_streamed_waits_for_kafka_without_end(make: Callable[..., Daemon]) -> None:
    def fail() -> CdcdError:
        daemon.clients.now_s += FIRST_STREAM_WITHIN_S
        daemon.stops = daemon.status.errors.restarts == 100
        return KafkaUnavailable("Kafka is away", "Look at it.", code="kafka-unavailable")

    daemon = make(fail)
    daemon.clients.step_s = BACKOFF_MAX_S
    daemon.supervisor.run()
    assert daemon.status.state is State.STOPPING


def test_access_that_a_stream_has_had_may_come_back(make: Callable[..., Daemon]) -> None:
    def fail() -> CdcdError:
        denied.append(daemon.clients.now_s)
        return AccessDenied("Kafka refused writing records", "Grant Write.", code="login-refused")

    denied: list[float] = []
    daemon = make(fail)
    daemon.clients.step_s = 5.0
    daemon.supervisor._has_streamed = True
    daemon.supervisor._streamed_s = daemon.clients.now_s
    with pytest.raises(AccessDenied):
        daemon.supervisor.run()
    assert denied[-1] - denied[0] > ACCESS_RETURNS_S - 3 * BACKOFF_MAX_S
    assert daemon.status.errors.restarts > 10


def test_new_settings_get_their_own_time_to_gain_access_and_forget_what_the_old_ones_taught(
    make: Callable[..., Daemon],
) -> None:
    def fail() -> CdcdError:
        daemon.stops = True
        return AccessDenied("no such password", "Check it.", code="login-refused")

    daemon = make(fail)
    supervisor = daemon.supervisor
    supervisor._has_streamed, supervisor._streamed_s = True, 0.0
    supervisor._fallbacks.binary, supervisor._fallbacks.streaming_allowed = False, False
    supervisor._fallbacks.walsender_pid = 7
    daemon.clients.now_s = ACCESS_RETURNS_S
    with pytest.raises(AccessDenied):
        supervisor.run()
    daemon.stops = False
    new = Settings(source={"dsn": "host=y"}, sink={"bootstrap_servers": "k:9092"})
    supervisor.renew(new, daemon.clients)
    supervisor.run()  # it would raise the error at once
    assert daemon.status.errors.restarts == 0
    assert supervisor._fallbacks.binary is None
    assert supervisor._fallbacks.streaming_allowed
    assert supervisor._fallbacks.walsender_pid == 7


def test_access_that_no_stream_has_had_is_refused_at_once(make: Callable[..., Daemon]) -> None:
    daemon = make(lambda: AccessDenied("Kafka refused writing records", "Grant Write.", code="login-refused"))
    with pytest.raises(AccessDenied):
        daemon.supervisor.run()
    assert daemon.status.errors.restarts == 0


@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
)
def test_the_commands_in_its_hints_name_its_brokers_its_prefix_its_slot_and_its_user(
    make: Callable[..., Daemon], code: int
) -> None:
    daemon = make(
        lambda: to_cdcd_error(KafkaError(code), "writing records", "k:9092"),
        prefix="shop",
        librdkafka={"sasl.username": "app"},
    )
    with pytest.raises(AccessDenied) as denied:
        daemon.supervisor.run()
    assert "--bootstrap-server k:9092 --command-config admin.properties" in denied.value.hint
    assert "--allow-principal User:app " in denied.value.hint
    assert "--topic shop. " in denied.value.hint or "--transactional-id shop-cdcd.2 " in denied.value.hint
    assert not re.search("PREFIX|SLOT|BROKERS", denied.value.hint)
    assert daemon.status.errors.last()[-1].hint == denied.value.hint, "the page shows the same"


@pytest.mark.parametrize("setting", ["stop", "park"])
def test_a_daemon_does_not_stop_for_parked_events_that_are_gone_whatever_the_setting(
    make: Callable[..., Daemon], setting: str
) -> None:
    def fail() -> CdcdError:
        if daemon.status.errors.restarts:
            daemon.stops = True
            return KafkaUnavailable("Kafka is away", "Look at it.", code="kafka-unavailable")
        error = Unpublishable("the events were removed", "Keep them", table=TABLE, gone=True, code="parked-events-gone")
        error.unparking = True
        return error

    daemon = make(fail, on_unpublishable=setting)
    daemon.supervisor.run()
    assert daemon.supervisor._fallbacks.parking.refused == {TABLE: "the events were removed [parked-events-gone]"}


def test_events_without_their_key_are_to_be_discarded(
    make: Callable[..., Daemon], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> CdcdError:
        if daemon.status.errors.restarts:
            daemon.stops = True
            return KafkaUnavailable("Kafka is away", "Look at it.", code="kafka-unavailable")
        hint = 'Set sink.on_unpublishable = "park"'
        return Unpublishable("the key of public.a is not known", hint, table=TABLE, keyless=True, code="key-unknown")

    daemon = make(fail)
    daemon.supervisor.run()
    assert caplog.messages[0] == (
        "the table public.a is parked: the key of public.a is not known. "
        "Run: cdcd unpark --discard public.a, which also takes a new snapshot of the table [key-unknown]"
    )
    assert daemon.supervisor._fallbacks.parking.keyless == {TABLE}


def test_the_command_of_a_hint_runs_nothing_that_stands_in_the_name_of_a_table(
    make: Callable[..., Daemon], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> CdcdError:
        daemon.stops = True
        return Unpublishable("too large", "Make it smaller", table=("public", "$(exit 7)"), code="row-too-large")

    daemon = make(fail)
    daemon.supervisor.run()
    assert caplog.messages[0].endswith("""Then run: cdcd unpark 'public."$(exit 7)"' [row-too-large]""")


def test_a_daemon_that_parks_a_table_does_not_say_that_it_could(
    make: Callable[..., Daemon], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> CdcdError:
        daemon.stops = True
        return Unpublishable("too large", SIZE.hint, table=TABLE, code="row-too-large")

    daemon = make(fail)
    daemon.supervisor.run()
    assert "Raise max.message.bytes" in caplog.messages[0]
    assert "on_unpublishable" not in caplog.messages[0]


def test_a_daemon_that_stops_for_a_table_says_that_it_could_park_it(make: Callable[..., Daemon]) -> None:
    daemon = make(
        lambda: Unpublishable("too large", SIZE.hint, table=TABLE, code="row-too-large"), on_unpublishable="stop"
    )
    with pytest.raises(Unpublishable) as stopped:
        daemon.supervisor.run()
    assert stopped.value.hint.endswith(
        'fetch size as well. Or set sink.on_unpublishable = "park": the other tables go on'
    )


@pytest.mark.parametrize("setting", ["stop", "park"])
def test_a_daemon_that_cannot_tell_the_table_does_not_say_that_it_could_park_it(
    make: Callable[..., Daemon], setting: str
) -> None:
    daemon = make(lambda: Unpublishable("too large", SIZE.hint, code="row-too-large"), on_unpublishable=setting)
    with pytest.raises(Unpublishable) as stopped:
        daemon.supervisor.run()
    assert "on_unpublishable" not in stopped.value.hint


def test_text_that_cannot_be_converted_is_taken_as_it_is_stored_from_then_on(make: Callable[..., Daemon]) -> None:
    daemon = make(
        lambda: TextUnconvertible("PostgreSQL cannot convert it", "Correct the filter", code="text-unconvertible")
    )
    daemon.clients.step_s = 1.0  # so that the pause before the next stream ends
    with pytest.raises(FatalError, match="cannot convert it") as failed:
        daemon.supervisor.run()
    assert failed.value.hint.startswith("Correct the filter"), "it came again from text as it is stored"
    assert daemon.clients.text_as_stored
    assert daemon.supervisor._fallbacks.binary is False
    assert daemon.status.errors.restarts == 1


def test_binary_mode_alone_cannot_take_text_as_it_is_stored(make: Callable[..., Daemon]) -> None:
    daemon = make(
        lambda: TextUnconvertible("PostgreSQL cannot convert it", "Correct the filter", code="text-unconvertible"),
        binary=True,
    )
    with pytest.raises(FatalError, match=r"source\.binary = true") as failed:
        daemon.supervisor.run()
    assert failed.value.hint.startswith('Set source.binary = "auto"')


@pytest.mark.parametrize("is_foreign", [True, False])
def test_a_program_that_has_the_slot_is_a_warning_and_another_daemon_is_not(
    make: Callable[..., Daemon], caplog: pytest.LogCaptureFixture, is_foreign: bool
) -> None:
    def fail() -> CdcdError:
        daemon.stops = True
        return SlotActive("s", 4711, "pg_recvlogical", is_foreign=is_foreign)

    daemon = make(fail)
    with caplog.at_level(logging.INFO, "cdcd.daemon.supervisor"):
        daemon.supervisor.run()
    [record] = caplog.records
    assert record.levelno == (logging.WARNING if is_foreign else logging.INFO)
    assert (record.__dict__["pid"], record.__dict__["application_name"]) == (4711, "pg_recvlogical")
    assert ("pg_terminate_backend(4711)" in record.getMessage()) == is_foreign
