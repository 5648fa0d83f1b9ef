"""Opens a stream: everything that must be in place before the first row, in the order that makes it safe.

Before: `supervisor` asks for a stream, with the settings.
After: `pipeline` runs what was opened; `close` gives it back.

The order, and why:

1. Publication and slot are made if they are missing; the published types decide between binary and text. A slot that
   nobody reads keeps WAL for ever: so first everything is looked at that would end the stream again, as far as it can
   be known before.
2. START_REPLICATION: the slot has one reader, so this is the lock. A second daemon waits here.
3. The producer takes over its transactional.ids, which fences a zombie and ends its open Kafka transaction; only then
   is the progress read, because only then is it final. That can take as long as Kafka is away, so `kafka_takeover` does
   it in a thread of its own while the server is kept content.
4. Slot, server and progress must belong together, else GapError; and no other slot may publish to our tables' topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.codecs.lookup import has_known_binary
from cdcd.avro.registry_store import RegistryStore
from cdcd.clock import monotonic_s
from cdcd.config.settings import Settings
from cdcd.daemon.kafka_takeover import KafkaSession, KafkaTakeover
from cdcd.daemon.snapshot_coordinator import SnapshotCoordinator, SnapshotLimits
from cdcd.daemon.snapshot_export import NewTableScan, SnapshotExport
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.errors import GapError, PostgresUnavailable, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.pgoutput.decoder import Decoder
from cdcd.progress.ack_tracker import AckTracker
from cdcd.progress.continuity import RESNAPSHOT, Server
from cdcd.progress.records import SlotRecord
from cdcd.reading.slot_progress import kafka_clients, validate_sink
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import BatchBuilder
from cdcd.sink.kafka.progress_store import ProgressStore
from cdcd.sink.parking.wire_format import PendingParking
from cdcd.sink.publisher import Publisher
from cdcd.sink.topics import TopicNames
from cdcd.sink.worker import SinkWorker
from cdcd.source.catalog import Catalog
from cdcd.source.privileges import check_readable
from cdcd.source.publication import Publication
from cdcd.source.replication_stream import ReplicationStream, status_interval_s
from cdcd.source.session import Locked, Session
from cdcd.source.slot import Slot
from cdcd.source.slot_conflicts import SlotConflicts
from cdcd.source.start_options import start_options, streaming_mode
from cdcd.source.synchronous_standby import commits_wait_for
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)

BATCHES_MAX: Final = 64
"""Batches that may wait for the producer, beside the bound in bytes."""

LOCK_TIMEOUT_S: Final = 1.0
"""How long a question waits for a lock: its holder may itself wait for the daemon, its synchronous standby."""


@dataclass(frozen=True)
class StreamResources:
    """What a pipeline runs on."""

    walsender: ReplicationStream
    session: Session
    """Beside the stream: its end tells of a server that shuts down."""
    assembler: Assembler
    batches: BatchBuilder
    spool: Spool
    tracker: AckTracker
    queue: BatchQueue
    publisher: Publisher
    sink_worker: Callable[..., SinkWorker]
    """Takes `on_durable` and `on_end`, and returns the sink of this stream."""
    status_interval_s: float
    """How often the server must hear from us, at least."""
    is_synchronous: bool
    """COMMITs wait for the daemon; `Status` says whether they still do."""
    snapshots: SnapshotCoordinator
    only_snapshot: bool
    """The stream ends when no table wants a snapshot."""
    wal_sender_timeout_s: float
    """The server's patience with us; 0: it has no end."""


class StreamStartup:
    """Opens one stream; `close` ends all that was opened, whether or not it came to a stream."""

    def __init__(
        self,
        settings: Settings,
        binary: bool | None,
        may_spool: bool,
        wake: WakeupPipe,
        stopping: Callable[[], bool],
        alive: Callable[[], None],
        on_schema: Callable[[str, bytes], None] = lambda _, __: None,
        parking: PendingParking | None = None,
    ) -> None:
        """`binary` None: decide by the published types. Without `may_spool` nothing in progress is asked for.

        `wake` interrupts waiting, `stopping` ends it, `alive` is called now and then while it waits. `on_schema` gets
        each relation whose events come, with the header that names its schema; `parking` says which tables to park.
        """
        self._on_schema = on_schema
        self._settings = settings
        self._binary = binary
        self._may_spool = may_spool
        self._wake = wake
        self._stopping = stopping
        self.made_slot = False
        """It was missing, and is there by this attempt."""
        self._stack = ExitStack()
        self._alive = alive
        self._session = self._stack.enter_context(Session(settings.source.dsn, settings.source.application_name))
        self._slot = Slot(self._session, settings.source.slot)
        self._status_interval_s = settings.source.status_interval_s
        self._wal_sender_timeout_s = 0.0
        self._kafka = kafka_clients(settings)
        self._stack.callback(self._kafka.close)
        self._names = TopicNames(settings.sink.prefix, settings.sink.topic)
        self._taking_over = KafkaTakeover(settings, self._kafka, wake.set, stopping, parking)
        self._stack.callback(self._taking_over.close)

    def close(self) -> None:
        """End connections, producer and threads. Nothing that is not committed survives, and nothing needs to."""
        self._stack.close()

    def open(self) -> StreamResources | None:
        """Do it all; None if `stopping` said so meanwhile. Raises what the rooms raise."""
        source = self._settings.source
        catalog = Catalog(self._session)
        self._ensure_publication()
        binary = self._choose_binary(catalog)
        self._wal_sender_timeout_s = catalog.wal_sender_timeout_s()
        self._status_interval_s = status_interval_s(source.status_interval_s, self._wal_sender_timeout_s)
        walsender = self._stack.enter_context(ReplicationStream(source.dsn, source.application_name))
        identity = walsender.identify()
        history = walsender.timeline_history(identity.timeline)
        options = self._options(walsender.server_version, binary)
        self._ensure_slot(walsender)
        walsender.enlarge_read_buffer()
        walsender.start(source.slot, 0, options)
        # Read only now: as long as we hold the slot nobody else moves it.
        state = self._slot.state()
        if state is None or state.confirmed_flush_lsn is None:
            raise PostgresUnavailable(f"the slot {source.slot} vanished while it was being opened")
        log.info(
            "holding the slot",
            extra={"slot": source.slot, "confirmed": format_lsn(state.confirmed_flush_lsn), "binary": binary},
        )
        self._taking_over.start(
            Server(
                identity.system_id,
                identity.timeline,
                history,
                state.wal_lsn,
                state.confirmed_flush_lsn,
                walsender.standby,
            ),
            self._published(),
        )
        kafka = self._wait_for_kafka(walsender, state.confirmed_flush_lsn)
        if kafka is None:
            return None
        self._refuse_rivals(kafka.cluster_id)
        if not kafka.is_contiguous:
            kafka = self._declare_gap(kafka, state.confirmed_flush_lsn)
        return self._assemble(walsender, catalog, state.confirmed_flush_lsn, kafka, self._spool(identity.system_id))

    # PostgreSQL

    def _ensure_publication(self) -> None:
        source = self._settings.source
        publication = Publication(self._session, source.publication)
        if publication.exists():
            return
        if not source.create:
            raise RequestRejected(
                f"the publication {source.publication} does not exist, and source.create is false",
                f'Run: CREATE PUBLICATION "{source.publication}" FOR TABLE ...; or set source.create = true',
            )
        publication.create(source.tables)
        log.info("made the publication", extra={"publication": source.publication})

    def _choose_binary(self, catalog: Catalog) -> bool:
        if self._binary is not None:
            return self._binary
        try:
            with self._session.lock_timeout(LOCK_TIMEOUT_S):
                types = catalog.published_types(self._settings.source.publication)
        except Locked:
            log.warning("streaming in text mode: a published table is locked, so its types are not known")
            return False
        encoding = self._session.encoding
        unknown = [each.qualified for each in types if not has_known_binary(each, encoding)]
        if unknown:
            log.warning("streaming in text mode: no binary form is known of a type", extra={"types": ",".join(unknown)})
        return not unknown

    def _ensure_slot(self, walsender: ReplicationStream) -> None:
        source = self._settings.source
        resnapshot = source.on_slot_lost == "resnapshot"
        state = self._slot.state()
        if state is not None and state.lost and resnapshot:
            log.warning("dropping the slot, which has lost WAL", extra={"slot": source.slot})
            self._slot.drop()
            state = None
        if state is not None:
            return
        if not source.create:
            raise RequestRejected(
                f"the slot {source.slot} does not exist, and source.create is false",
                "Run cdcd slot create, which makes it as these settings want it; or set source.create = true",
            )
        last = self._last_record()
        if self._slot.state() is not None:
            return  # another daemon has made it meanwhile, and may have published already
        if last is not None and not resnapshot:
            raise GapError(
                f"the slot {source.slot} does not exist any more, but Kafka holds its changes up to "
                f"{format_lsn(last.lsn)}: what was changed since is not to be had",
                f"{RESNAPSHOT} Or take a new slot name (source.slot) or a new sink.prefix",
            )
        self._refuse_early()
        try:
            created = walsender.create_slot(
                source.slot, two_phase=source.two_phase, failover=source.failover, blockers=self._slot.writers
            )
        except RequestRejected:
            if self._slot.state() is None:
                raise
            return  # another daemon was faster by a moment
        self.made_slot = True
        log.info("made the slot", extra={"slot": source.slot, "lsn": format_lsn(created.consistent_lsn)})

    def _last_record(self) -> SlotRecord | None:
        sink, slot = self._settings.sink, self._settings.source.slot
        fenced = sink.delivery == "exactly_once"
        return ProgressStore(self._kafka, self._names, slot, fenced=fenced, stopping=self._stopping).last_record()

    def _refuse_early(self) -> None:
        """Raise what would end the stream as soon as it has begun, for a reason that needs a person."""
        self._registry()
        try:
            with self._session.lock_timeout(LOCK_TIMEOUT_S):
                if self._settings.snapshot.mode != "never":
                    check_readable(self._session, self._settings.source.publication)
        except Locked:
            log.warning("a published table is locked: whether the role may copy all tables is not known")
        self._refuse_rivals(self._kafka.admin.cluster_id())
        topics = [self._names.topic(*table) for table in self._published() or []]
        validate_sink(self._settings, self._kafka, topics)

    def _options(self, server_version: int, binary: bool) -> dict[str, str]:
        source = self._settings.source
        return start_options(
            source.publication,
            server_version,
            binary=binary,
            messages=source.messages,
            streaming=self._streaming_mode(server_version),
            two_phase=source.two_phase,
            origin=source.origin,
        )

    def _streaming_mode(self, server_version: int) -> str:
        return streaming_mode(self._settings.source.streaming if self._may_spool else "off", server_version)

    # Kafka

    def _wait_for_kafka(self, walsender: ReplicationStream, confirmed_lsn: int) -> KafkaSession | None:
        """Answer the server until Kafka is taken over."""
        told_s = 0.0
        turn_within_s = min(self._status_interval_s, self._settings.monitoring.stalled_after_s / 4)
        while not self._taking_over.done and not self._stopping():
            self._alive()
            if monotonic_s() - told_s >= self._status_interval_s:
                walsender.send_status(confirmed_lsn, confirmed_lsn, confirmed_lsn)
                told_s = monotonic_s()
            sockets = self._session.sockets()
            ready = walsender.wait(turn_within_s, self._wake.fd, *sockets, reading=False)
            if self._wake.fd in ready:
                self._wake.clear()
            if self._session.ended(ready):
                # Nothing can be acknowledged yet: it would wait for us as long as we wait for Kafka.
                raise PostgresUnavailable(
                    "PostgreSQL is shutting down, or has ended our session, while Kafka was taken over"
                )
        if self._stopping():
            return None
        try:
            return self._taking_over.result()
        except GapError:
            self._check_holding(walsender)
            raise

    def _refuse_rivals(self, cluster_id: str) -> None:
        """Raise RequestRejected if another slot publishes our tables to the same topics.

        Each row would be there twice.
        """
        slot, example = self._settings.source.slot, self._names.topic("schema", "table")
        conflicts = SlotConflicts(self._session, cluster_id, example)
        conflicts.announce(slot)  # before looking: of two that come at once, one at least sees the other
        try:
            with self._session.lock_timeout(LOCK_TIMEOUT_S):
                conflicts.check(slot, self._tables())
        except Locked:
            log.warning("a published table is locked: whether another slot publishes it, too, is not known")

    def _published(self) -> list[tuple[str, str]] | None:
        """The published tables, schema and name; None if that cannot be told now."""
        try:
            with self._session.lock_timeout(LOCK_TIMEOUT_S):
                return self._tables()
        except Locked:
            return None

    def _tables(self) -> list[tuple[str, str]]:
        return Publication(self._session, self._settings.source.publication).tables()

    def _declare_gap(self, kafka: KafkaSession, confirmed_lsn: int) -> KafkaSession:
        last, tables = kafka.publisher.last, self._tables()
        log.warning(
            "changes are missing: copying all tables afresh",
            extra={"from": format_lsn(last.lsn if last else 0), "to": format_lsn(confirmed_lsn), "tables": len(tables)},
        )
        wanted = kafka.publisher.declare_gap(confirmed_lsn, tables, monotonic_s())
        return replace(kafka, copies={**kafka.copies, **{copy.topic: copy for copy in wanted}})

    def _check_holding(self, walsender: ReplicationStream) -> None:
        """Whether the slot is ours still: else another daemon has published meanwhile, which looks like a gap."""
        state = self._slot.state()
        if state is None or state.active_pid != walsender.backend_pid:
            raise PostgresUnavailable("another connection took the slot while Kafka was being taken over")

    def _registry(self) -> RegistryStore | None:
        avro = self._settings.avro
        if avro.registry_url is None:
            return None
        return RegistryStore(avro.registry_url, self._names.topic, avro.registry_config)

    def _spool(self, system_id: str) -> Spool:
        """Only now that we hold the slot is the directory surely ours: other servers may have slots of its name."""
        settings = self._settings.spool
        parent = Path(settings.directory) if settings.directory else Path(gettempdir()) / "cdcd-spool"
        directory = SpoolDirectory(parent / f"{self._settings.source.slot}-{system_id}")
        spool = Spool(directory, settings.memory_bytes, settings.bytes_max)
        self._stack.callback(spool.close)
        return spool

    # The rooms

    def _assemble(
        self, walsender: ReplicationStream, catalog: Catalog, confirmed_lsn: int, kafka: KafkaSession, spool: Spool
    ) -> StreamResources:
        settings, last = self._settings, kafka.publisher.last
        batches = BatchBuilder(settings.sink.tombstones, settings.source.slot)
        parked = frozenset(kafka.publisher.parked)
        events: EventFormat = AvroFormat(
            settings.avro.numeric, walsender.encoding, self._on_schema, self._registry(), parked
        )
        encoder = events.stream_encoder(batches)
        snapshot_batches = BatchBuilder(settings.sink.tombstones)
        snapshots = SnapshotCoordinator(
            SnapshotRequests(
                settings.source.slot,
                self._names,
                kafka.copies,
                takes_new_tables=settings.snapshot.mode != "never",
                parked=lambda: kafka.publisher.parked,
            ),
            events.snapshot_encoder(snapshot_batches),
            snapshot_batches,
            lambda choose: SnapshotExport(settings, choose, self._wake.set),
            lambda choose: NewTableScan(settings, choose, self._wake.set),
            SnapshotLimits(settings.snapshot.chunk_bytes),
            only=settings.snapshot.mode == "only",
        )
        self._stack.callback(snapshots.close)
        queue = BatchQueue(BATCHES_MAX, settings.sink.queue_bytes_max, self._wake.set)
        opened = StreamResources(
            walsender=walsender,
            session=self._session,
            assembler=Assembler(
                Decoder(streaming_parallel=self._streaming_mode(walsender.server_version) == "parallel"),
                Relations(catalog),
                encoder,
                spool,
                last.lsn if last else 0,
            ),
            batches=batches,
            spool=spool,
            tracker=AckTracker(confirmed_lsn, last.lsn if last else confirmed_lsn),
            queue=queue,
            publisher=kafka.publisher,
            sink_worker=partial(SinkWorker, kafka.publisher, kafka.policy, queue),
            status_interval_s=self._status_interval_s,
            is_synchronous=commits_wait_for(self._session, settings.source.application_name),
            snapshots=snapshots,
            only_snapshot=settings.snapshot.mode == "only",
            wal_sender_timeout_s=self._wal_sender_timeout_s,
        )
        log.info("going on", extra={"from": format_lsn(last.lsn if last else confirmed_lsn)})
        return opened
