"""Takes Kafka over: fences whoever published for this slot before, and reads what they have committed.

Before: `opening` holds the slot, and keeps the server content meanwhile.
After: `opening` gives the publisher to the pipeline.

It runs in a thread of its own, because it can take as long as Kafka is away. That thread must never outlive its
attempt: it would fence the next one. So `close` tells it to end and waits for it, and only then closes the producer.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event, Thread

from cdcd.progress.continuity import Server, check_continuity
from cdcd.progress.record import SlotRecord, parse_slot_record, slot_key
from cdcd.settings import Settings
from cdcd.sink.group_commit import GroupCommit
from cdcd.sink.kafka_admin import KafkaAdmin
from cdcd.sink.kafka_producer import KafkaProducer
from cdcd.sink.kafka_progress import KafkaProgressReader
from cdcd.sink.kafka_settings import transaction_timeout_ms
from cdcd.sink.publisher import Publisher, Source, TopicSettings
from cdcd.sink.topics import TopicNames


@dataclass(frozen=True)
class Kafka:
    """What there is of Kafka once it is ours."""

    producer: KafkaProducer
    publisher: Publisher
    policy: GroupCommit


class TakingOver:
    """One attempt."""

    def __init__(self, settings: Settings, wake: Callable[[], None], stopping: Callable[[], bool]) -> None:
        """`wake` is called when it is done; `stopping` ends it early."""
        self._settings = settings
        self._wake = wake
        self._stopping = stopping
        self._closed = Event()
        self._done: Future[Kafka | None] = Future()
        self._thread: Thread | None = None
        self._producer: KafkaProducer | None = None
        self._admin = KafkaAdmin(
            settings.sink.bootstrap_servers, settings.source.application_name, settings.sink.librdkafka
        )
        self.names = TopicNames(settings.sink.prefix, settings.sink.topic)

    def start(self, server: Server) -> None:
        """Begin; `server` must be where the progress ends, or it is refused."""
        self._thread = Thread(target=self._run, args=(server,), name="cdcd-taking-over", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """It has come to an end."""
        return self._done.done()

    def result(self) -> Kafka | None:
        """What came of it; None if it was told to stop. Raises what ended it."""
        return self._done.result()

    def close(self) -> None:
        """End the thread, then the clients: an open Kafka transaction is aborted."""
        self._closed.set()
        self._admin.hurry(0.0)
        if self._thread is not None:
            self._thread.join()
        if self._producer is not None:
            self._producer.close()
        self._admin.close()

    def last_record(self) -> SlotRecord | None:
        """The last slot record that can be read now. Not final before the producer has started."""
        sink, source = self._settings.sink, self._settings.source
        reader = KafkaProgressReader(
            sink.bootstrap_servers,
            source.application_name,
            self.names.progress,
            self._admin,
            sink.librdkafka,
            rank=None if sink.delivery == "exactly_once" else _position,
        )
        key = slot_key(source.slot)
        value = reader.last(frozenset({key}), self._ended).get(key)
        return None if value is None else parse_slot_record(key, value)

    def _run(self, server: Server) -> None:
        try:
            self._done.set_result(self._take_over(server))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._done.set_exception(error)
        self._wake()

    def _ended(self) -> bool:
        return self._closed.is_set() or self._stopping()

    def _take_over(self, server: Server) -> Kafka | None:
        sink, slot = self._settings.sink, self._settings.source.slot
        exactly_once = sink.delivery == "exactly_once"
        timeout_ms = transaction_timeout_ms(self._admin.transaction_timeout_max_ms(), sink.librdkafka)
        if self._ended():
            return None
        producer = self._producer = KafkaProducer(
            sink.bootstrap_servers,
            self._settings.source.application_name,
            f"{sink.prefix}-{slot}" if exactly_once else None,
            timeout_ms,
            sink.librdkafka,
            # Brokers that fall silent are waited for as long as they would wait for us: to start again sooner costs
            # the connection to the server, and brings nothing back.
            timeout_s=timeout_ms / 1000,
        )
        if not producer.start(self._ended):
            return None
        last = self.last_record()
        if self._ended():
            return None
        check_continuity(last, slot, server)
        topics = TopicSettings(sink.partitions, sink.replication_factor, sink.topic_config)
        source = Source(slot, server.system_id, server.timeline)
        publisher = Publisher(producer, self._admin, self.names, topics, source, last)
        policy = GroupCommit(
            sink.transaction_rows_max,
            sink.transaction_bytes_max,
            sink.transaction_linger_ms,
            timeout_ms if exactly_once else None,
        )
        return Kafka(producer, publisher, policy)


def _position(key: bytes, value: bytes) -> int:
    return parse_slot_record(key, value).lsn
