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

from cdcd.clock import monotonic_s, wall_us
from cdcd.config.settings import Settings
from cdcd.daemon.exported_tables import Choose, ReadableTables
from cdcd.daemon.snapshot_export import NewTableScan, SnapshotExport
from cdcd.reading.slot_progress import kafka_connection
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.worker import SinkWorker
from cdcd.source.catalog import Catalog
from cdcd.source.publication import Publication
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
        self._readable: Final = ReadableTables(settings)
        self.text_as_stored = False
        """Replication connections and snapshots get text as it is stored: the server cannot convert all of it."""
        self._kafka: Final = kafka_connection(settings)

    # PostgreSQL

    def session(self) -> Session:
        """A connection for questions."""
        source = self._settings.source
        return Session(source.dsn, source.application_name)

    def slot(self, session: Session) -> Slot:
        """The slot, seen through a session."""
        return Slot(session, self._settings.source.slot)

    def catalog(self, session: Session) -> Catalog:
        """The catalog, seen through a session."""
        return Catalog(session, self._settings.source.publication)

    def publication(self, session: Session) -> Publication:
        """The publication, seen through a session."""
        return Publication(session, self._settings.source.publication)

    def replication_stream(self) -> ReplicationStream:
        """A replication connection that does not stream yet."""
        source = self._settings.source
        return ReplicationStream(source.dsn, source.application_name, as_stored=self.text_as_stored)

    def snapshot_export(self, choose: Choose, wake: Callable[[], None]) -> SnapshotExport:
        """The export of a snapshot, in a thread of its own."""
        return SnapshotExport(self._settings, choose, self._readable, wake, text_as_stored=self.text_as_stored)

    def new_table_scan(self, choose: Choose, wake: Callable[[], None]) -> NewTableScan:
        """A scan for newly published tables, in a thread of its own."""
        return NewTableScan(self._settings, choose, self._readable, wake)

    # Kafka

    @property
    def retry_backoff_s(self) -> float:
        """The pause of the next stream's producers before they repeat a request, in seconds."""
        return self._kafka.bounds.retry_backoff_ms / 1000

    def kafka(self) -> KafkaCluster:
        """The clients of the cluster."""
        return KafkaCluster(self._kafka)

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
