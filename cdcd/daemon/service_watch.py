"""Watches the services next to the stream: does PostgreSQL, Kafka, the registry answer, and how is the slot?

Before: `process` starts it, before the first stream, and ends the daemon if a thread of it fails.
After: `monitoring.reachability` says what is lost; `slot_monitor` shows the slot; `status` gets its samples.

Each service has a thread, because a question may wait as long as its service is silent. One more thread judges, and
never waits for anybody.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.slot_monitor import SlotMonitor
from cdcd.errors import AccessDenied, CdcdError, KafkaUnavailable, PostgresUnavailable
from cdcd.monitoring.identity import kafka_cluster
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.reachability import JUDGED_EVERY_S, KAFKA, POSTGRESQL, REGISTRY
from cdcd.monitoring.status import Status
from cdcd.sink.kafka.cluster_probe import ClusterProbe
from cdcd.sink.kafka.errors import TRY_AGAIN

ASK_EVERY_S: Final = 2.0
SAMPLE_EVERY_S: Final = 5.0

SINK_IDLE_S: Final = 5.0
"""When work has waited for Kafka so long and nothing moved, the topics are looked at."""

SINK_STUCK_S: Final = 60.0
"""When nothing has moved for so long, Kafka takes nothing, whatever the reason. A slow flush is done sooner."""

log = logging.getLogger(__name__)


def services(settings: Settings) -> tuple[str, ...]:
    """The services that a daemon with these settings needs."""
    return (POSTGRESQL, KAFKA) if settings.avro.registry_url is None else (POSTGRESQL, KAFKA, REGISTRY)


class KafkaWatch:
    """Asks Kafka whether it is there, and whether it takes what waits for it. For one thread."""

    def __init__(self, probe: ClusterProbe, status: Status, own_topics: Sequence[str]) -> None:
        """`own_topics` are written to in every Kafka transaction."""
        self._probe = probe
        self._status = status
        self._own_topics = own_topics

    def ask(self, now_s: float) -> None:
        """Ask at `now_s` (monotonic). Raises KafkaUnavailable if Kafka does not answer, or takes nothing."""
        self._status.servers.kafka = kafka_cluster(*self._probe.ask())
        stalled_s = self._status.stages.sink.stalled_s(now_s)
        try:
            if stalled_s >= SINK_IDLE_S:
                self._probe.raise_if_unwritable([*self._status.depths().topics, *self._own_topics])
            if stalled_s >= SINK_STUCK_S:
                raise KafkaUnavailable(
                    f"Kafka answers, but has taken nothing for {stalled_s:.0f} s", TRY_AGAIN, code="kafka-unavailable"
                )
        except KafkaUnavailable as error:
            self._status.reachability.failed(KAFKA, now_s - stalled_s, error)
            raise

    def close(self) -> None:
        """End the client."""
        self._probe.close()


class ServiceWatch:
    """Watches until `close`."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        status: Status,
        metrics: Metrics,
        wake: Callable[[], None],
    ) -> None:
        """Start the threads; `wake` is called when one of them fails.

        Raises SettingsError for properties that a client refuses.
        """
        self._failure: Exception | None = None
        self._wake = wake
        self._status = status
        self._clients = clients
        self._places = settings.places
        self._closed = threading.Event()
        self._slot = SlotMonitor(settings.source, status, metrics, clients.wall_us)
        names = settings.topic_names()
        self._kafka = KafkaWatch(clients.probe(names.progress), status, [names.progress])
        questions: dict[str, Callable[[], None]] = {
            POSTGRESQL: self._ask_postgres,
            KAFKA: lambda: self._kafka.ask(clients.monotonic_s()),
        }
        registry = clients.registry()
        if registry is not None:
            questions[REGISTRY] = registry.requests.ask
        self._run(self._judge, "cdcd-service-watch")
        for service, ask in questions.items():
            self._run(partial(self._watch, service, ask), f"cdcd-watch-{service}")

    def close(self) -> None:
        """Stop watching. Does not wait for an answer that is still on its way: the threads end with the process."""
        self._closed.set()

    def wait_for_servers(self, within_s: float) -> None:
        """Wait until PostgreSQL and Kafka have said what they are, for `within_s` seconds at most."""
        servers, until_s = self._status.servers, self._clients.monotonic_s() + within_s
        while not (servers.postgresql and servers.kafka) and self._clients.monotonic_s() < until_s:
            if self.has_failed or self._closed.wait(0.02):
                return

    @property
    def has_failed(self) -> bool:
        """A thread has ended with an error that no service can cause."""
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raise the error that has ended a thread, if one has."""
        if self._failure is not None:
            raise self._failure

    def _run(self, target: Callable[[], None], name: str) -> None:
        def run() -> None:
            try:
                target()
            except Exception as error:  # noqa: BLE001 - handed to the main thread
                self._failure = error
                self._wake()

        threading.Thread(target=run, name=name, daemon=True).start()

    def _judge(self) -> None:
        status, clients, sampled_s = self._status, self._clients, float("-inf")
        while not self._closed.wait(JUDGED_EVERY_S):
            now_s = clients.monotonic_s()
            status.reachability.judge(now_s)
            if now_s - sampled_s >= SAMPLE_EVERY_S:
                sampled_s = now_s
                status.sample(now_s, clients.wall_us())

    def _watch(self, service: str, ask: Callable[[], None]) -> None:
        reachability = self._status.reachability
        while not self._closed.is_set():
            began_s = self._clients.monotonic_s()
            reachability.asked(service, began_s)
            try:
                ask()
                reachability.answered(service)
            except CdcdError as error:
                reachability.failed(service, began_s, self._places.fill(error))
            self._closed.wait(ASK_EVERY_S)
        if service == POSTGRESQL:
            self._slot.close()
        elif service == KAFKA:
            self._kafka.close()

    def _ask_postgres(self) -> None:
        try:
            self._slot.look()
        except (PostgresUnavailable, AccessDenied):  # a server that refuses the log-in is no better than none
            raise
        except CdcdError as error:  # it answers
            log.debug("the slot cannot be looked at: %s", error)
