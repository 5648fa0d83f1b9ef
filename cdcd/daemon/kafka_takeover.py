"""Takes Kafka over: fences the daemon that published for this slot before, and reads what that daemon has committed.

Before: `stream_startup` holds the slot, and answers the server meanwhile.
After: `publisher_setup` makes the publisher, and `stream_startup` hands it to the pipeline.

It runs in a thread of its own, because it lasts as long as Kafka is away. The thread must not outlive its attempt,
because it would fence the producers of the next one. So `close` tells the thread to end and waits for it, and only then
closes the producers.

This order makes the progress final:

1. The daemon reads the last slot record that can be read now. If the server cannot be the one that it tells of, or the
   topics do not hold what it says (`sink.kafka.topic_check`), the start ends here: nobody is fenced, no topic is made.
2. The producers start. This fences the daemon before, and ends its open Kafka transaction.
3. Another slot's open transaction may hide what this slot committed: wait for its end.
4. The daemon commits or aborts the transactions of this slot that Kafka left undecided.
5. The daemon reads the last slot record again, and how far the snapshots are.
6. Slot, server and progress must tell one story (`progress.continuity`), and the topics must hold what the progress
   says now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from enum import Enum
from functools import partial
from threading import Thread

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.daemon.publisher_setup import PublisherSetup
from cdcd.errors import Fenced
from cdcd.progress.continuity import (
    Remains,
    Server,
    adopted_base,
    check_format,
    check_recorded,
    check_server,
    check_start,
    migrated_record,
)
from cdcd.reading.slot_progress import delivery, progress_store
from cdcd.sink.hanging_transactions import Evidence, TopicPartition, decide_hanging
from cdcd.sink.interfaces import Producer
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.topic_check import BEYOND_S, TopicCheck
from cdcd.sink.kafka.undecided_transactions import UndecidedTransactions
from cdcd.sink.topics import own_specs


class Purpose(Enum):
    """What the take-over is for. It decides what slot, server and progress have to tell."""

    STREAM = "stream"
    """One story: the stream goes on where the progress ends."""
    ADOPT = "adopt"
    """Nothing: `adoption` decides by itself whether the stream goes on at another server."""
    MIGRATE = "migrate"
    """No progress beyond the slot: another program's connector has streamed from it (`migration.handover`)."""


class KafkaTakeover:
    """One take-over, for one stream."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        kafka: KafkaCluster,
        wake: Callable[[], None],
        stopping: Callable[[], bool],
        fallbacks: Fallbacks,
        purpose: Purpose = Purpose.STREAM,
    ) -> None:
        """`wake` is called at the end; `stopping` ends the take-over early.

        `fallbacks` adds tables to park, and topics that lost records.
        """
        self._purpose = purpose
        self._settings = settings
        self._clients = clients
        self._kafka = kafka
        self._stopping = stopping
        self._lost = fallbacks.lost
        self._publishers = PublisherSetup(settings, clients, kafka, fallbacks.parking)
        self._names = settings.topic_names()
        self._tables: Collection[tuple[str, str]] = []
        self._closed = clients.event()
        self._done: Future[KafkaSession | None] = Future()
        self._done.add_done_callback(lambda _: wake())
        self._thread: Thread | None = None
        self._producer: Producer | None = None
        self._delivery = delivery(settings)
        self._progress = progress_store(settings, kafka, self._ended)

    def start(self, server: Server, tables: Collection[tuple[str, str]], confirmed_lsn: Callable[[], int]) -> None:
        """Start the thread. The take-over fails with GapError if `server` and progress do not belong together.

        `tables` are published now: this slot alone writes to their topics. `confirmed_lsn` asks for the slot's position
        once more, and raises PostgresUnavailable if this daemon does not hold the slot any more.
        """
        self._tables = tables
        self._thread = self._clients.thread(partial(self._run, server, confirmed_lsn), "cdcd-kafka-takeover")
        self._thread.start()

    @property
    def _topics(self) -> list[str]:
        """The topics of the published tables, and those of no table."""
        return [*self._names.tableless, *(self._names.topic(*table) for table in self._tables)]

    @property
    def done(self) -> bool:
        """The take-over has ended, with a result or an error."""
        return self._done.done()

    def result(self) -> KafkaSession | None:
        """The result; None if `stopping` or `close` ended the take-over. Raises the error that ended it."""
        return self._done.result()

    def close(self) -> None:
        """End the thread, then the producers: an open Kafka transaction is aborted."""
        self._closed.set()
        self._kafka.admin.shorten_deadlines(0.0)
        if self._thread is not None:
            self._thread.join()
        if self._producer is not None:
            self._producer.close()

    def _run(self, server: Server, confirmed_lsn: Callable[[], int]) -> None:
        try:
            self._done.set_result(self._take_over(server, confirmed_lsn))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._done.set_exception(error)

    def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def _ended(self) -> bool:
        return self._closed.is_set() or self._stopping()

    def _until(self, within_s: float) -> Callable[[], bool]:
        """A question that is true once the take-over has ended, or `within_s` seconds have passed."""
        until_s = self._clients.monotonic_s() + within_s
        return lambda: self._ended() or self._clients.monotonic_s() >= until_s

    def _take_over(self, server: Server, confirmed_lsn: Callable[[], int]) -> KafkaSession | None:
        sink, slot, names, kafka = self._settings.sink, self._settings.source.slot, self._names, self._kafka
        timeout_ms = kafka.transaction_timeout_ms()
        if self._ended():
            return None
        # The producers connect while the topics are made.
        producers = list(self._delivery.producers(kafka, timeout_ms, names.progress))
        producer = self._producer = self._delivery.combined(producers)
        check = self._check_before_fencing(server)
        kafka.ensure(*own_specs(names, sink.replication_factor, sink.topic_config))
        if not producer.start(self._ended):
            return None
        if self._delivery.leaves_hanging_transactions:
            self._decide_undecided(confirmed_lsn, producers, {*self._topics, *check.recorded})
        last = self._progress.last_record()
        found = self._progress.snapshots_topic()
        beginning = found.beginnings.get(slot)
        remains = Remains(None if beginning is None else beginning.lsn)
        if last is None:
            remains = self._progress.remains(found, self._topics)
        if self._ended():
            return None
        accepts_gap = self._settings.source.accepts_gap
        is_contiguous, goes_on_from = True, last
        if self._purpose is Purpose.ADOPT:
            server = server.rebased(adopted_base(last, server))
        elif self._purpose is Purpose.MIGRATE:
            goes_on_from = migrated_record(last, slot, server)
        else:
            is_contiguous = check_start(last, remains, slot, server, names.progress, accepts_gap=accepts_gap)
            server = server.rebased(0 if last is None else last.lsn_base)
        check.check(last)
        looks_beyond = last is not None and is_contiguous and self._purpose is not Purpose.MIGRATE
        if last is not None and looks_beyond and self._delivery.leaves_hanging_transactions:
            beyond = check.topic_beyond(last, self._until(BEYOND_S))
            if beyond and self._purpose is Purpose.ADOPT and self._progress.last_record() != last:
                # An adoption does not hold the old server's slot.
                raise Fenced(
                    "a daemon of the old server has started, and publishes",
                    "Stop it, and run cdcd adopt again",
                    code="daemon-fenced",
                )
            is_contiguous = check_recorded(last, beyond, names.progress, accepts_gap=accepts_gap)
        publisher, snapshots = self._publishers.make(server, producer, self._tables, check, goes_on_from, found)
        schedule = self._delivery.schedule(
            sink.transaction_rows_max, sink.transaction_bytes_max, sink.transaction_linger_ms, timeout_ms
        )
        begins_at = server.confirmed_lsn if beginning is None else beginning.lsn
        others = found.slots_of_other_databases(server.system_id, server.database_oid)
        return KafkaSession(
            publisher,
            schedule,
            snapshots,
            is_contiguous,
            begins_at,
            found.repairs,
            others,
            check.cluster_id,
            server.lsn_base,
        )

    def _check_before_fencing(self, server: Server) -> TopicCheck:
        """Step 1: raise the error of a start that must fence nobody."""
        self._kafka.check_own_topics(self._names)
        accepts_loss = self._settings.sink.on_topic_lost == "resnapshot" and self._purpose is Purpose.STREAM
        check = TopicCheck(self._kafka, self._progress, self._topics, self._pause, self._lost, resnapshot=accepts_loss)
        visible = self._progress.visible_record()
        check_format(visible, self._settings.sink.event_format)
        if self._purpose is not Purpose.ADOPT:
            check_server(visible, server)
        check.check(visible)
        return check

    def _decide_undecided(
        self, confirmed_lsn: Callable[[], int], producers: list[Producer], topics: Collection[str]
    ) -> None:
        """Steps 3 and 4: wait for other slots, then commit or abort what Kafka left undecided of this one.

        The position is asked for only now, because the other daemon may have committed and acknowledged until it was
        fenced. If it has done so after this start began, it has the slot, and this start ends.
        """
        slot, clock = self._settings.source.slot, self._clients.monotonic_s
        undecided = UndecidedTransactions(self._kafka, self._names, slot, topics, self._pause, self._ended, clock)
        undecided.wait_for_others()

        def gather_evidence(hanging: Mapping[TopicPartition, int]) -> Evidence:
            return undecided.gather_evidence(None if self._purpose is Purpose.ADOPT else confirmed_lsn(), hanging)

        decide_hanging(undecided, producers, gather_evidence, self._pause, self._ended)
