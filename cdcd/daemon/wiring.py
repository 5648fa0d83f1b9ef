"""Builds the parts of one stream and joins them: the only module that knows them all.

Before: `stream_startup` streams from the slot, and Kafka is taken over.
After: `pipeline` runs on what was built.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.codecs.text_encoding import escaped
from cdcd.avro.registry_store import RegistryStore
from cdcd.avro.schema_store import SchemaStores
from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.events import make_format, surround
from cdcd.daemon.gap_repairs import GapRepairs
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.daemon.recopies import Recopies, Table
from cdcd.daemon.registry_wait import RegistryWait
from cdcd.daemon.repair_requests import RepairRequests
from cdcd.daemon.request_intake import RequestIntake
from cdcd.daemon.schema_registry import avro_payloads, subject_names
from cdcd.daemon.snapshot_coordinator import SnapshotCoordinator
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.daemon.snapshot_rows import SnapshotLimits
from cdcd.daemon.stream_batches import batch_builder
from cdcd.daemon.table_comparison import TableComparison
from cdcd.daemon.topic_watch import TopicWatch
from cdcd.pgoutput.decoder import Decoder
from cdcd.preflight.host import spool_parent
from cdcd.progress.ack_tracker import AckTracker
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import BatchBuilder
from cdcd.sink.publisher import Publisher
from cdcd.sink.worker import SinkWorker
from cdcd.snapshot.copy_hours import TableHours
from cdcd.snapshot.copy_rate import TableRates
from cdcd.source.catalog import Catalog
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.session import Session
from cdcd.source.synchronous_standby import commits_wait
from cdcd.source.text_conversion import TextConversion
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.column_masks import StoredText
from cdcd.transaction.relations import Relations
from cdcd.transaction.sent_again import SentAgain
from cdcd.transaction.spool import Spool


@dataclass(frozen=True)
class ServerConnection:
    """PostgreSQL, as one stream sees it."""

    stream: ReplicationStream
    session: Session
    """Next to the stream: a server that shuts down ends the session first."""
    catalog: Catalog
    system_id: str
    confirmed_lsn: int
    """The slot's `confirmed_flush_lsn` when the stream began."""
    streaming_mode: str
    """How transactions in progress come: as `start_options.streaming_mode` says."""
    status_interval_s: float
    """The longest time between two status updates to the server."""
    wal_sender_timeout_s: float
    """How long the server waits for the daemon; 0: without end."""
    streaming_resumes_lsn: int = 0
    """Once Kafka has everything before it, the next stream asks for transactions in progress again; 0: no such LSN."""
    lsn_base: int = 0
    """As in SlotRecord. It was added to `confirmed_lsn`."""


@dataclass(frozen=True)
class StreamResources:
    """The parts that a pipeline needs."""

    server: ServerConnection
    is_synchronous: bool
    """COMMITs wait for the daemon; `Status` says whether they still do."""
    assembler: Assembler
    batches: BatchBuilder
    spool: Spool
    tracker: AckTracker
    queue: BatchQueue
    publisher: Publisher
    sink_worker: Callable[..., SinkWorker]
    """Takes `on_commit` and `on_end` of SinkWorker, and returns the sink of this stream."""
    snapshots: SnapshotCoordinator
    gap_repairs: GapRepairs
    topic_watch: TopicWatch
    requests: RequestIntake
    registry_wait: RegistryWait
    only_snapshot: bool
    """The stream ends when every snapshot is published."""
    progress_interval_s: float
    """Between two lines of the log about what was published."""


def assemble(
    settings: Settings,
    clients: Clients,
    server: ServerConnection,
    kafka: KafkaSession,
    stack: ExitStack,
    wake: Callable[[], None],
    stopping: Callable[[], bool],
    on_schema: Callable[[str, bytes], None],
) -> StreamResources:
    """Build all parts of a stream; `stack` closes them.

    `wake` interrupts the pipeline's waiting; `stopping` ends that for the schema registry. `on_schema` gets each
    relation before its events come, with the header that names its schema.
    """
    names, last = settings.topic_names(), kafka.publisher.last
    make_batches = batch_builder(settings)
    spool = _spool(settings, clients, server.system_id)
    stack.callback(spool.close)
    batches = make_batches()
    parked, ids = frozenset(kafka.publisher.parked), clients.registry()
    registry_wait = RegistryWait(wake, stopping, clients.monotonic_s)
    registry, payloads = None, None
    if ids is not None:
        registry = RegistryStore(ids, subject_names(settings), registry_wait, clients.monotonic_s)
        payloads = avro_payloads(settings, ids, registry_wait, clients.monotonic_s)
    encoding, to_text, to_name, stored = server.stream.encoding, None, None, None
    own = partial(AvroFormat, settings.avro.numeric, encoding, on_schema, registry, parked)
    if clients.text_as_stored:
        conversion = TextConversion(server.session, encoding)
        to_text, stored = conversion.text, StoredText(conversion.text, conversion.characters)
        to_name = partial(_name, to_text)
    clients.column_rules.take_stored_text(stored)
    stores = SchemaStores(on_schema, registry, parked)
    plain = make_format(settings, server.session, last, to_text, own, stores)
    events = surround(plain, settings, server.session.encoding, to_text, payloads)
    encoder = events.stream_encoder(batches)
    snapshot_batches = make_batches()
    sizes, snapshot_rules = clients.sizes, settings.snapshot_rules()
    requests = SnapshotRequests(
        settings.source.slot,
        names,
        kafka.snapshots,
        takes=snapshot_rules.takes if snapshot_rules.takes_any else None,
        parked=lambda: kafka.publisher.parked,
        recopies=Recopies(
            names,
            kafka.publisher.table_keys.last,
            kafka.publisher.table_keys.incarnations.all(),
            stops_on_key_change=settings.tables.on_key_change == "stop",
            stops_on_replaced=settings.tables.on_replaced == "stop",
            forbids=snapshot_rules.forbids,
        ),
        is_paused=last is not None and last.snapshots_paused,
        are_hours_open=TableHours(snapshot_rules.hours, clients.wall_us).are_open,
    )
    snapshots = SnapshotCoordinator(
        requests,
        events.snapshot_encoder(snapshot_batches),
        snapshot_batches,
        lambda choose, repairs: clients.snapshot_export(choose, repairs, wake, server.lsn_base),
        lambda wants: clients.new_table_scan(wants, wake),
        SnapshotLimits(
            settings.snapshot.chunk_bytes,
            sizes.snapshot_rows,
            sizes.snapshot_batch_bytes,
            TableRates(clients.copy_rate, snapshot_rules.rate),
        ),
        RepairRequests(
            settings.source.slot,
            names,
            () if settings.snapshot.mode == "only" else kafka.repairs,
            parked=lambda: kafka.publisher.parked,
        ),
        only=settings.snapshot.mode == "only",
    )
    stack.callback(snapshots.close)
    gap_repairs = GapRepairs(
        requests,
        snapshots,
        # A stream that has only snapshots to publish does not come to the LSN of a comparison.
        None if settings.snapshot.mode == "only" else partial(_comparison, clients, server.system_id, wake),
    )
    stack.callback(gap_repairs.close)
    publication = PublicationSetup(settings.source, server.session, clients.publication(server.session))
    queue = clients.batch_queue(wake)
    others = frozenset({names.progress, names.parked})
    watch = TopicWatch(clients.kafka, lambda: kafka.publisher.recorded, others, wake, clients.event())
    stack.callback(watch.close)
    sent_again = (
        SentAgain(last.lsn, last.commit_lsn, last.commit_ts, server.confirmed_lsn, kafka.begins_at)
        if last
        else SentAgain(0)
    )
    return StreamResources(
        server=server,
        is_synchronous=commits_wait(server.session),
        assembler=Assembler(
            Decoder(server.streaming_mode == "parallel", to_name, server.lsn_base),
            Relations(
                server.catalog,
                kafka.publisher.last_key,
                parked,
                kafka.publisher.last_added,
                clients.column_rules,
            ),
            encoder,
            spool,
            sent_again,
            replay_bytes=sizes.replay_bytes,
        ),
        batches=batches,
        spool=spool,
        tracker=AckTracker(server.confirmed_lsn, last.lsn if last else server.confirmed_lsn),
        queue=queue,
        publisher=kafka.publisher,
        sink_worker=partial(clients.sink_worker(), kafka.publisher, kafka.schedule, queue),
        snapshots=snapshots,
        gap_repairs=gap_repairs,
        topic_watch=watch,
        requests=RequestIntake(
            settings.source.slot,
            publication.tables,
            snapshots.request,
            lambda: kafka.publisher.parked,
            snapshots.announce,
            snapshots.request_repair,
            lambda is_paused: snapshots.pause(is_paused=is_paused),
            snapshots.stop,
        ),
        registry_wait=registry_wait,
        only_snapshot=settings.snapshot.mode == "only",
        progress_interval_s=settings.log.progress_interval_s,
    )


def _comparison(clients: Clients, system_id: str, wake: Callable[[], None], table: Table) -> TableComparison:
    return clients.table_comparison(table, system_id, wake)


def _name(to_text: Callable[[bytes], str], raw: bytes) -> str:
    """A name that came as it is stored."""
    return escaped(to_text(raw))


def _spool(settings: Settings, clients: Clients, system_id: str) -> Spool:
    """Make the spool, once the daemon holds the slot: only then no other process uses its directory.

    Slots of other servers may have the same name, so the directory has the server's id, too.
    """
    spool, slot = settings.spool, settings.source.slot
    parent = spool_parent(spool.directory)
    return Spool(clients.spool_directory(parent / f"{slot}-{system_id}"), spool.memory_bytes, spool.bytes_max)
