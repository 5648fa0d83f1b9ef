"""Takes Kafka over: fences whoever published for this slot before, and reads what they have committed.

Before: `stream_startup` holds the slot, and keeps the server content meanwhile.
After: `stream_startup` gives the publisher to the pipeline.

It runs in a thread of its own, because it can take as long as Kafka is away. That thread must never outlive its
attempt: it would fence the next one. So `close` tells it to end and waits for it, and only then closes the producer.

Trap: other slots feed the same prefix. Where one of them has a transaction open, or died in one, cdcd's own topics end
for everybody, and what we committed since is not seen: of that nothing may be concluded. So what is undecided counts
as ours only on the topics of our tables, and where the first undecided record has our slot in its key; and as long as
the progress is another's, it is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Final

from cdcd.avro.registry_store import RegistryStore
from cdcd.avro.schema_store import SchemaStore
from cdcd.avro.single_object import MARKER, split
from cdcd.clock import monotonic_s
from cdcd.config.settings import Settings
from cdcd.errors import KafkaUnavailable
from cdcd.progress.continuity import Server, check_continuity
from cdcd.progress.records import (
    ParkedTable,
    SlotRecord,
    TableRecord,
    parse_record,
    parse_slot_record,
    slot_key,
    table_key,
)
from cdcd.progress.snapshot_records import TableSnapshot, parse_copy
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.sink.group_commit import GATHER_S, GroupCommit
from cdcd.sink.hanging_transactions import Evidence, TopicPartition, decide_hanging
from cdcd.sink.interfaces import Producer
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.alternating_producer import AlternatingProducer
from cdcd.sink.kafka.client_config import client_config, transaction_timeout_ms
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.kafka.producer import KafkaProducer
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.kafka.range_reader import RangeReader
from cdcd.sink.kafka_transaction import Table
from cdcd.sink.parking.state import Rename
from cdcd.sink.parking.wire_format import PendingParking
from cdcd.sink.publisher import Publisher, Source, TopicSettings
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs

SETTLE_S: Final = 10.0
_SETTLE_POLL_S: Final = 0.02
OTHERS_S: Final = 60.0
"""So long another slot's open transaction is waited for, before PostgreSQL gets its walsender back for a while."""
_OTHERS_POLL_S: Final = 0.1


@dataclass(frozen=True)
class KafkaSession:
    """What there is of Kafka once it is ours."""

    publisher: Publisher
    policy: GroupCommit
    copies: Mapping[str, TableSnapshot]
    """How far the copy of each table has come, by topic."""
    whole: bool
    """The slot has all that Kafka lacks: else a gap is to be declared."""
    cluster_id: str
    """Tells it from other clusters, whoever is asked for it."""


class KafkaTakeover:
    """One attempt."""

    def __init__(
        self,
        settings: Settings,
        wake: Callable[[], None],
        stopping: Callable[[], bool],
        parking: PendingParking | None = None,
    ) -> None:
        """`wake` is called when it is done; `stopping` ends it early; `parking` is what is to be parked besides."""
        self._parking = parking
        self._settings = settings
        self._wake = wake
        self._stopping = stopping
        self._closed = Event()
        self._done: Future[KafkaSession | None] = Future()
        self._thread: Thread | None = None
        self._producer: Producer | None = None
        self._tables: list[str] | None = []
        self._made: frozenset[str] = frozenset()
        """Topics that exist for sure."""
        self._admin = KafkaAdmin(
            settings.sink.bootstrap_servers, settings.source.application_name, settings.sink.librdkafka
        )
        self.names = TopicNames(settings.sink.prefix, settings.sink.topic)

    def start(self, server: Server, tables: Iterable[Table] | None) -> None:
        """Begin; `server` must be where the progress ends, or it is refused.

        `tables` (schema, name) are published; None: it is not known which.
        """
        known = None if tables is None else [self.names.topic(*table) for table in tables]
        self._tables = None if known is None else [self.names.messages, *known]
        self._thread = Thread(target=self._run, args=(server,), name="cdcd-taking-over", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """It has come to an end."""
        return self._done.done()

    def result(self) -> KafkaSession | None:
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

    def cluster_id(self) -> str:
        """Tells the cluster from others, whoever is asked for it. Raises KafkaUnavailable while it does not answer."""
        return self._admin.cluster_id()

    def refuse_early(self, tables: Iterable[Table]) -> None:
        """Raise what librdkafka and the brokers have against the settings; fences nobody, and makes no topic.

        `tables` (schema, name) are published. Raises KafkaUnavailable while Kafka does not answer.
        """
        self._new_producer(self._transactional_ids[0], self._timeout_ms()).close()
        sink = self._settings.sink
        topics = [self.names.topic(*table) for table in tables]
        made = [TopicSpec(name, sink.partitions, sink.replication_factor, sink.topic_config) for name in topics]
        self._admin.validate(*own_specs(self.names, sink.replication_factor, sink.topic_config), *made)

    def last_record(self) -> SlotRecord | None:
        """The last slot record that can be read now. Not final before the producer has started."""
        rank = None if self._settings.sink.delivery == "exactly_once" else _position
        key = slot_key(self._settings.source.slot)
        value = self._reader(self.names.progress, rank).last(frozenset({key}), self._ended).get(key)
        return None if value is None else parse_slot_record(key, value)

    def parked(self) -> dict[str, ParkedTable]:
        """The tables that are parked because they are refused, by `schema.table`, as can be read now."""
        last = self.last_record()
        parked = last.parked if last is not None else ()
        return {f"{each.schema}.{each.table}": each for each in parked if not each.copying}

    def copies(self) -> dict[str, TableSnapshot]:
        """How far the copy of each table is, by topic, as can be read now."""
        found = self._reader(self.names.snapshots, None).every(self._ended)
        copies = [parse_copy(key, value) for key, value in found.items()]
        return {copy.topic: copy for copy in copies if copy.slot == self._settings.source.slot}

    def settle(self) -> None:
        """Wait, for SETTLE_S at most, until it can be read what was committed on the topic of the copies a moment ago.

        Kafka says that a transaction is committed before its partitions show it.
        """
        deadline = monotonic_s() + SETTLE_S
        while self._admin.unstable(self.names.snapshots) and monotonic_s() < deadline:
            self._pause(_SETTLE_POLL_S)

    def _reader(self, topic: str, rank: Callable[[bytes, bytes], int] | None, **how: bool) -> KafkaProgressReader:
        return KafkaProgressReader(self._reading(topic, **how), rank)

    def _reading(self, topic: str, *, partition: int = 0, undecided: bool = False, stable: bool = False) -> RangeReader:
        sink, name = self._settings.sink, self._settings.source.application_name
        return RangeReader(
            sink.bootstrap_servers, name, topic, self._admin, sink.librdkafka,
            partition=partition, undecided=undecided, stable=stable, there=topic in self._made,
        )  # fmt: skip

    def _run(self, server: Server) -> None:
        try:
            self._done.set_result(self._take_over(server))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._done.set_exception(error)
        self._wake()

    def _rename(self) -> Rename | None:
        avro, sink = self._settings.avro, self._settings.sink
        if avro.registry_url is None:
            return None
        registry = RegistryStore(avro.registry_url, self.names.topic, avro.registry_config)
        config = client_config(sink.bootstrap_servers, self._settings.source.application_name, sink.librdkafka)
        return _Renaming(registry, SchemaFinder(config, self.names.schemas, None).find)

    def _know(self, confirmed_lsn: int, hanging: Mapping[TopicPartition, int]) -> Evidence:
        """What the progress tells of transactions that are undecided in these partitions: it may be one of them."""
        names, slot = self.names, self._settings.source.slot
        begin = hanging.get((names.progress, 0))
        progress = {} if begin is None else self._standing(begin)
        undecided = progress.pop(slot_key(slot), None)
        # What can be read of the messages may be another slot's.
        counted = {topic: record for topic, record in _table_records(progress).items() if topic != names.messages}
        tables = {topic for topic, _ in hanging} - self._shared - {names.messages}
        keys = frozenset(table_key(slot, topic) for topic in tables | counted.keys())
        visible = self._reader(names.progress, None, stable=True).last(keys | {slot_key(slot)}, self._ended)
        seen = visible.pop(slot_key(slot), None)
        known = _table_records(visible)
        return Evidence(
            confirmed_lsn,
            None if seen is None else parse_slot_record(slot_key(slot), seen),
            None if undecided is None else parse_slot_record(slot_key(slot), undecided),
            any(self._rows_visible(record, known.get(topic), hanging) for topic, record in counted.items()),
            known,
            {topic: {"key": table_key(slot, ""), "value": None} for topic in self._shared},
        )

    @property
    def _shared(self) -> frozenset[str]:
        """The topics that other slots write to as well."""
        return frozenset({self.names.progress, self.names.schemas, self.names.snapshots, self.names.parked})

    def _is_ours(self, key: bytes) -> bool:
        slot = slot_key(self._settings.source.slot)
        return key == slot or key.startswith(slot + b"/")

    def _standing(self, begin: int) -> dict[bytes, bytes]:
        """Of our records in the progress from `begin` on, undecided as they are, the last of each key."""
        reading, found = self._reading(self.names.progress, undecided=True), dict[bytes, bytes]()
        _, end = reading.bounds() or (0, 0)
        with reading.consumer() as consumer:
            for _, message in reading.read(consumer, begin, end, self._ended):
                key, value = message.key(), message.value()
                if key and value and self._is_ours(key):
                    found[key] = value
        return found

    def _hangs(self, place: TopicPartition, begin: int) -> bool:
        """Whether what is undecided there from `begin` on can be ours. Of schemas nobody can tell whose they are."""
        topic, partition = place
        if topic not in self._shared:
            return self._tables is None or topic in self._tables
        if topic == self.names.schemas:
            return True
        reading = self._reading(topic, partition=partition, undecided=True)
        with reading.consumer() as consumer:
            return any(self._is_ours(m.key() or b"") for _, m in reading.read(consumer, begin, begin + 1, self._ended))

    def unstable(self, prefix: str) -> dict[TopicPartition, int]:
        """Plays `hanging.Undecided`: the partitions that hold something undecided that can be ours."""
        found = self._admin.unstable(prefix)
        return {place: begin for place, begin in found.items() if self._hangs(place, begin)}

    def _wait_for_others(self) -> None:
        """Wait until it can be read what we committed, unless what is undecided in the progress is ours.

        Raises KafkaUnavailable if another slot's transaction stays open.
        """
        progress = self.names.progress
        written, decided = self._reading(progress).bounds(), self._reading(progress, stable=True)
        deadline = monotonic_s() + OTHERS_S
        while written is not None and not self._ended():
            bounds = decided.bounds()
            if bounds is None or bounds[1] >= written[1] or self._hangs((progress, 0), bounds[1]):
                return
            if monotonic_s() >= deadline:
                raise KafkaUnavailable(
                    f"another slot's Kafka transaction has been open on {progress} for {OTHERS_S:.0f} s, and hides "
                    "what was committed since",
                    "Start that slot's daemon again, which ends it. Else Kafka does, after its transaction.timeout.ms; "
                    "kafka-transactions.sh find-hanging names one that it has forgotten",
                )
            self._pause(_OTHERS_POLL_S)

    def _rows_visible(
        self, counted: TableRecord, before: TableRecord | None, hanging: Mapping[TopicPartition, int]
    ) -> bool:
        """Whether a row that `counted` has and the record `before` has not can be read."""
        for partition, end in enumerate(counted.offsets):
            if (counted.topic, partition) in hanging:
                continue
            start = 0 if before is None or partition >= len(before.offsets) else before.offsets[partition]
            reading = self._reading(counted.topic, partition=partition)
            start = max(start, (reading.bounds() or (0, 0))[0])
            with reading.consumer() as consumer:
                if any(True for _ in reading.read(consumer, start, end, self._ended)):
                    return True
        return False

    def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def _ended(self) -> bool:
        return self._closed.is_set() or self._stopping()

    def _timeout_ms(self) -> int:
        """How long a Kafka transaction may be open, milliseconds."""
        return transaction_timeout_ms(self._admin.transaction_timeout_max_ms(), self._settings.sink.librdkafka)

    @property
    def _transactional_ids(self) -> tuple[str | None, ...]:
        sink, slot = self._settings.sink, self._settings.source.slot
        # No slot has a full stop in its name: these are no other daemon's.
        return (f"{sink.prefix}-{slot}", f"{sink.prefix}-{slot}.2") if sink.delivery == "exactly_once" else (None,)

    def _new_producer(self, transactional_id: str | None, timeout_ms: int) -> KafkaProducer:
        sink, source = self._settings.sink, self._settings.source
        return KafkaProducer(
            sink.bootstrap_servers,
            source.application_name,
            transactional_id,
            timeout_ms,
            sink.librdkafka,
            # Brokers that fall silent are waited for as long as they would wait for us: to start again sooner costs
            # the connection to the server, and brings nothing back.
            timeout_s=timeout_ms / 1000,
            known_topic=self.names.progress,
        )

    def _take_over(self, server: Server) -> KafkaSession | None:
        sink, slot = self._settings.sink, self._settings.source.slot
        exactly_once = sink.delivery == "exactly_once"
        timeout_ms = self._timeout_ms()
        if self._ended():
            return None
        # They connect while the topics are made sure of.
        producers = [self._new_producer(each, timeout_ms) for each in self._transactional_ids]
        producer = self._producer = AlternatingProducer(*producers) if exactly_once else producers[0]
        own = own_specs(self.names, sink.replication_factor, sink.topic_config)
        self._admin.ensure(*own)
        self._made = frozenset(spec.name for spec in own)
        if not producer.start(self._ended):
            return None
        if exactly_once:
            self._wait_for_others()
            prefix, know = f"{sink.prefix}.", partial(self._know, server.confirmed_lsn)
            decide_hanging(self, producers, prefix, know, self._pause, self._ended)
        last = self.last_record()
        copies = self.copies()
        if self._ended():
            return None
        resnapshot = self._settings.source.on_slot_lost == "resnapshot"
        whole = check_continuity(last, slot, server, resnapshot=resnapshot)
        topics = TopicSettings(sink.partitions, sink.replication_factor, sink.topic_config)
        source = Source(slot, server.system_id, server.timeline)
        snapshots = {topic: copy.snapshot for topic, copy in copies.items()}
        publisher = Publisher(
            producer,
            self._admin,
            self.names,
            topics,
            source,
            last,
            snapshots,
            parking=self._parking,
            parked_reader=KafkaParkedReader(self._reading(self.names.parked)),
            rename=self._rename(),
        )
        policy = GroupCommit(
            sink.transaction_rows_max,
            sink.transaction_bytes_max,
            min(sink.transaction_linger_ms, timeout_ms // 4),
            timeout_ms if exactly_once else None,
            GATHER_S if exactly_once else 0.0,
        )
        return KafkaSession(publisher, policy, copies, whole, self._admin.cluster_id())


def _table_records(found: Mapping[bytes, bytes]) -> dict[str, TableRecord]:
    """The table records among these, by topic."""
    records = [parse_record(key, value) for key, value in found.items()]
    return {record.topic: record for record in records if isinstance(record, TableRecord)}


@contextmanager
def reading(settings: Settings) -> Iterator[KafkaTakeover]:
    """Read what Kafka holds, and take nothing over: for the commands that run beside a daemon."""
    progress = KafkaTakeover(settings, lambda: None, lambda: False)
    try:
        yield progress
    finally:
        progress.close()


def last_record(settings: Settings) -> SlotRecord | None:
    """The last slot record, None if there is none yet. Raises as Kafka's readers do."""
    with reading(settings) as progress:
        return progress.last_record()


class _Renaming:
    """Names parked records as the registry does: while they were parked, a fingerprint named them."""

    def __init__(self, registry: SchemaStore, find: Callable[[str], str]) -> None:
        """`find` gives the schema of a fingerprint (hex)."""
        self._registry = registry
        self._find = find
        self._headers: dict[tuple[tuple[str, str], str, str], bytes] = {}

    def __call__(self, table: tuple[str, str], subject: str, data: bytes) -> bytes:
        """The record with the registry's header; as it is, if it has one already."""
        if not data.startswith(MARKER):
            return data
        fingerprint, start = split(data)
        header = self._headers.get((table, subject, fingerprint))
        if header is None:
            header = self._registry.header_for(*table, subject, self._find(fingerprint))
            self._headers[table, subject, fingerprint] = header
        return header + data[start:]


def _position(key: bytes, value: bytes) -> int:
    return parse_slot_record(key, value).lsn
