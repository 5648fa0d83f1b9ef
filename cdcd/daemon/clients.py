"""Makes everything through which the daemon reaches the world: connections, files, threads and the clock.

Before: `supervisor` has the settings.
After: `stream_startup`, `wiring` and the parts of a stream use it.

The simulation hands in a subclass of `Clients` that plays PostgreSQL, Kafka, the disk, the threads and the time. So no
test replaces a name of a module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final

from cdcd.avro.registry_ids import RegistryIds
from cdcd.clock import monotonic_s, wall_us
from cdcd.config.settings import Settings
from cdcd.daemon.new_table_scan import NewTableScan, Wants
from cdcd.daemon.readable_tables import ReadableTables
from cdcd.daemon.recopies import Table
from cdcd.daemon.schema_registry import registry_ids
from cdcd.daemon.snapshot_export import ChooseRepairs, SnapshotExport
from cdcd.daemon.table_comparison import TableComparison
from cdcd.file_watch import FileWatch
from cdcd.progress.snapshot_records import Choose, PublishedTables
from cdcd.reading.slot_progress import kafka_connection
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.cluster_probe import ClusterProbe
from cdcd.sink.kafka.tls_files import watch_tls_files
from cdcd.sink.worker import SinkWorker
from cdcd.snapshot.copy_rate import CopyRate
from cdcd.source.catalog import Catalog
from cdcd.source.publication import Publication
from cdcd.source.published_incarnations import published_incarnations
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.session import Session
from cdcd.source.slot import Slot
from cdcd.transaction.assembler import REPLAY_BYTES
from cdcd.transaction.spool_file import SpoolDirectory


@dataclass(frozen=True)
class Sizes:
    """Bounds that no setting has: the simulation makes them small, so that it reaches them."""

    batches_max: int = 64
    """Batches that may wait for the producer. `sink.queue_bytes_max` bounds their bytes, too."""
    replay_bytes: int = REPLAY_BYTES
    """How much of a spooled transaction the assembler hands on in one turn."""
    snapshot_rows: int = 1_000
    """Rows that one connection of a snapshot gives in one turn."""
    snapshot_batch_bytes: int = 1 << 16
    """A batch of a snapshot's rows is handed on when it is this large, or when the sink has nothing to do."""
    table_records: int = 20_000
    """Offsets of the progress topic after which the table record of a topic is written again."""


class Clients:
    """The clients of one daemon. The caller closes each client that it gets."""

    sizes: Sizes = Sizes()

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing yet."""
        self._settings: Final = settings
        self.column_rules: Final = settings.column_rules()
        """The columns that are left out or masked."""
        self._readable: Final = ReadableTables(settings, self.column_rules)
        self.copy_rate = CopyRate(settings.snapshot.rows_per_second, settings.snapshot.bytes_per_second)
        """How fast the rows of snapshots may be read."""
        self.text_as_stored = False
        """Replication connections and snapshots get text as it is stored: the server cannot convert all of it."""
        self._kafka: Final = kafka_connection(settings)
        self._registry: RegistryIds | None = None

    # PostgreSQL

    def session(self) -> Session:
        """A connection for questions."""
        source = self._settings.source
        return Session(source.login, source.application_name)

    def slot(self, session: Session) -> Slot:
        """The slot, seen through a session."""
        return Slot(session, self._settings.source.slot)

    def catalog(self, session: Session) -> Catalog:
        """The catalog, seen through a session."""
        return Catalog(session, self._settings.source.publication)

    def publication(self, session: Session) -> Publication:
        """The publication, seen through a session."""
        return Publication(session, self._settings.source.publication)

    def incarnations(self, session: Session) -> PublishedTables:
        """The published tables as the catalog describes them now, by schema and name."""
        return published_incarnations(session, session.server_version, self._settings.source.publication)

    def replication_stream(self) -> ReplicationStream:
        """A replication connection that does not stream yet."""
        source = self._settings.source
        return ReplicationStream(source.login, source.application_name, as_stored=self.text_as_stored)

    def snapshot_export(
        self, choose: Choose, repairs: ChooseRepairs, wake: Callable[[], None], lsn_base: int
    ) -> SnapshotExport:
        """The export of a snapshot, in a thread of its own. `lsn_base` is added to its LSNs."""
        return SnapshotExport(
            self._settings,
            choose,
            self._readable,
            wake,
            text_as_stored=self.text_as_stored,
            lsn_base=lsn_base,
            repairs=repairs,
        )

    def new_table_scan(self, wants: Wants, wake: Callable[[], None]) -> NewTableScan:
        """A scan for tables that want a snapshot, in a thread of its own."""
        return NewTableScan(self._settings, wants, self._readable, wake)

    def table_comparison(self, table: Table, system_id: str, wake: Callable[[], None]) -> TableComparison:
        """The comparison of a table (schema and name) with its topic, in a thread of its own."""
        return TableComparison(self._settings, table, system_id, wake)

    # Kafka

    @property
    def retry_backoff_s(self) -> float:
        """The pause of the next stream's producers before they repeat a request, in seconds."""
        return self._kafka.bounds.retry_backoff_ms / 1000

    def kafka(self) -> KafkaCluster:
        """The clients of the cluster."""
        return KafkaCluster(self._kafka)

    def probe(self, topic: str) -> ClusterProbe:
        """A client that asks whether the cluster is there. It asks for `topic`, which need not exist."""
        return ClusterProbe(self._kafka, topic)

    def tls_files(self) -> FileWatch:
        """Watches the files that the clients of the cluster read, from now on."""
        return watch_tls_files(self._kafka, self.monotonic_s)

    def registry(self) -> RegistryIds | None:
        """The schema registry, the same one for the whole process; None without one.

        Raises SettingsError for properties that its client refuses.
        """
        if self._registry is None:
            self._registry = registry_ids(self._settings, self.thread)
        return self._registry

    # This machine

    def spool_directory(self, path: Path) -> SpoolDirectory:
        """Where the spool may write."""
        return SpoolDirectory(path)

    def batch_queue(self, on_room: Callable[[], None]) -> BatchQueue:
        """The queue between the stream and the sink."""
        return BatchQueue(self.sizes.batches_max, self._settings.sink.queue_bytes_max, on_room)

    def sink_worker(self) -> Callable[..., SinkWorker]:
        """The maker of a sink with a thread of its own. It takes the arguments of SinkWorker, except the clock."""
        return partial(SinkWorker, clock=self.monotonic_s)

    def thread(self, target: Callable[[], None], name: str) -> Thread:
        """A thread that has not started."""
        return Thread(target=target, name=name, daemon=True)

    def event(self) -> Event:
        """An event that threads wait for."""
        return Event()

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return monotonic_s()

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC; may jump."""
        return wall_us()
