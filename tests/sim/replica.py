"""One replica of the daemon, without threads: the real opening, pipeline and sink, each turned by the scheduler.

Before: `world` gives a turn to the main thread or to the sink thread of a replica, and decides what fails.
After: the daemon's own code: everything of cdcd but the modules that talk to sockets is what runs in production.

What is played here: what `SimClients` makes (connections, the disk, the clock), the threads (`SinkWorker` is stepped,
the take-over runs while the start-up waits), the wake-up pipe, and the supervisor's loop. Nothing of cdcd is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sim.fake_disk import DiskDirectory
from sim.fake_kafka import FakeKafkaCluster, FakeProducer
from sim.fake_postgres import Link, Walsender
from sim.fake_registry import SimRegistryIds
from sim.snapshots import SimNewTableScan, SimSnapshotExport, seen_now
from sim.sql import FORGED_REQUESTS, OUTBOX, POISON, REQUESTS
from sim.table_comparison import SimTableComparison

from cdcd.config.settings import Settings, SourceSettings
from cdcd.daemon.clients import Clients, Sizes
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.new_table_scan import Wants
from cdcd.daemon.pipeline import Pipeline
from cdcd.daemon.snapshot_export import ChooseRepairs
from cdcd.daemon.start_judgement import StartJudgement
from cdcd.daemon.stream_startup import StreamStartup
from cdcd.daemon.supervisor import BACKOFF_MAX_S, BACKOFF_MIN_S, STANDBY_S
from cdcd.daemon.unused_slot import drop_unused_slot
from cdcd.daemon.wiring import StreamResources
from cdcd.errors import (
    CdcdError,
    FatalError,
    KafkaUnavailable,
    PostgresUnavailable,
    RetriableError,
    StreamingResumed,
    StreamingUnsupported,
    Unpublishable,
)
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.status import Status
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.progress.snapshot_records import Choose
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import Message
from cdcd.sink.interfaces import ParkedReader
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.topics import TopicSpec
from cdcd.sink.worker import SinkWorker
from cdcd.source.connection import SystemIdentity
from cdcd.source.pg_types import Attribute, PgType
from cdcd.source.privileges import TablePrivileges
from cdcd.source.publication_contents import FoundPublication, PublishedOperations
from cdcd.source.replica_identity import TableIdentity
from cdcd.source.server import ServerFacts
from cdcd.source.server_errors import SlotActive
from cdcd.source.slot import SlotState
from cdcd.source.stream_messages import POSTGRES_EPOCH_US, StatusUpdate
from cdcd.source.table_selection import CandidateTable
from cdcd.transaction.stream_state import IN_TRANSACTION, REPLAYING

if TYPE_CHECKING:
    from sim.world import World


DATABASE_OID = 16_384
_DATABASE = "SELECT pg_catalog.current_database()"
"""What Debezium's events have the name of the database from."""
INDEX_BYTES = 256 << 10
"""What the spool may take besides frames, however small its memory is."""


class Killed(BaseException):
    """SIGKILL came while this code was running: nothing of it runs any more."""


class SimWake:
    """Plays `wake.Wake`."""

    fd = -1

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True

    def clear(self) -> None:
        self.is_set = False


class NoMetrics:
    """Takes what `metrics.Metrics` would."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class SimEvent:
    """Plays `threading.Event`: whoever waits lets the world go on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_s: float) -> None:
        world = self._world
        before_s = world.now
        world.meanwhile(0.5)
        if world.now == before_s:
            world.now += min(timeout_s, 0.01)


class SteppedThread:
    """Plays `threading.Thread`: runs to its end when the scheduler says so, while `stream_startup` waits for it."""

    def __init__(self, life: Life, target: Callable[[], None]) -> None:
        self._life = life
        self.run = target

    def start(self) -> None:
        self._life.taking_over = self

    def join(self) -> None:
        pass


class SteppedSink(SinkWorker):
    """A sink without a thread: `world` calls `step`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.alive = False
        self.due = 0.0

    def start(self) -> None:
        self.alive = True

    def join(self, wait_s: float) -> bool:
        return not self.alive


class SteppedBatchQueue(BatchQueue):
    """Never waits: the scheduler knows how long it would, and whether a batch came."""

    waited_s = 0.0

    @property
    def closed(self) -> bool:
        return self._closed

    def wait(self, seconds: float) -> bool:
        self.waited_s = seconds
        return super().wait(0.0)


class SimProducer(FakeProducer):
    """One process's producer: it can be in a hurry, and it is closed once."""

    def __init__(self, world: World, transactional_id: str | None) -> None:
        super().__init__(world.broker, transactional_id)
        self._life = world.running[-1]
        self._closed = False

    @property
    def life_name(self) -> str:
        """Which replica it is of."""
        return self._life.name

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        self._alive()
        super().produce(topic, partition, messages, has_headers=has_headers)

    def commit(self) -> None:
        self._alive()
        super().commit()

    def shorten_deadlines(self, within_s: float) -> None:
        self._life.hurried = True

    def close(self) -> None:
        self._closed = True
        if self._life.world.rng.random() < 0.7:  # else it is left to the broker
            try:
                super().close()
            except CdcdError:
                pass

    def _alive(self) -> None:
        if self._closed:
            raise KafkaUnavailable("the producer is closed", code="kafka-unavailable")


class SimSession:
    """Plays `source.session.Session`."""

    encoding = "UTF8"

    def __init__(self, world: World, life: Life) -> None:
        self.world = world
        self.server = life.server
        self.life = life
        self.check()

    def check(self) -> None:
        self.life.check()
        if not self.server.up:
            raise PostgresUnavailable("the server is not there", code="postgres-interrupted")

    def sockets(self) -> list[int]:
        return []

    def ended(self, readable: list[int]) -> bool:
        return False

    def rows(self, query: object, parameters: object = None) -> list[tuple[str, ...]]:
        self.check()
        text = str(query)
        if "synchronous_standby_names" in text:
            return [("cdcd" if self.server.synchronous else "", "cdcd")]
        return [("sim",)] if "current_user" in text or text == _DATABASE else []

    def lock_timeout(self, seconds: float) -> AbstractContextManager[None]:
        self.check()
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class SimSlot:
    """Plays `source.slot.Slot`."""

    def __init__(self, session: SimSession, name: str) -> None:
        self._session = session
        self.name = name

    def state(self) -> SlotState | None:
        self._session.check()
        server = self._session.server
        slot = server.slot
        if slot is None:
            return None
        pid = None if slot.reader is None else id(slot.reader)
        confirmed = slot.confirmed - server.lsn_base
        return SlotState(
            self.name, "pgoutput", "d", False, slot.reader is not None, pid, confirmed, confirmed,
            "reserved", None, slot.two_phase, False, "", server.end - server.lsn_base, database_oid=DATABASE_OID,
        )  # fmt: skip

    fitting_state = state

    def drop(self) -> bool:
        self._session.check()
        server = self._session.server
        if server.slot is None:
            return False
        if server.slot.reader is not None:
            raise SlotActive(self.name, id(server.slot.reader))
        server.slot = None
        self._session.world.note("the slot is dropped")
        return True

    def database_oid(self) -> int:
        self._session.check()
        return DATABASE_OID

    def end_walsender(self, pid: int) -> bool:
        self._session.check()
        slot = self._session.server.slot
        if slot is None or slot.reader is None or id(slot.reader) != pid:
            return False
        self._session.world.note("a walsender whose client is lost is ended")
        slot.reader.end(
            PostgresUnavailable("terminating connection due to administrator command", code="postgres-interrupted")
        )
        return True

    def writers(self) -> tuple[str, ...]:
        return ()


class SimCatalog:
    """Plays `source.catalog.Catalog`."""

    def __init__(self, session: SimSession) -> None:
        self._session = session
        self._lsn_base = 0

    def types(self, oids: Any) -> dict[int, PgType]:
        return {oid: _TYPES[oid] for oid in oids}

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        if relation_oid in {REQUESTS.oid, FORGED_REQUESTS.oid, OUTBOX.oid}:
            return ("id",)
        return self._session.server.tables[relation_oid].key

    identity_index = primary_key

    def expect(self, relation_oids: Iterable[int]) -> None:
        return

    def takes_requests(self, relation_oid: int) -> bool:
        return relation_oid == REQUESTS.oid

    def published_types(self, *publications: str) -> list[PgType]:
        return list(_TYPES.values())

    def columns(self, relation_oid: int) -> dict[str, bool]:
        return dict.fromkeys((name for name, _ in self._session.server.tables[relation_oid].columns), True)

    def attributes(self, relation_oid: int) -> dict[str, Attribute]:
        """The columns that were added, with a default in worlds that have some: PostgreSQL forgets it some day."""
        world, table = self._session.world, self._session.server.tables.get(relation_oid)
        found: dict[str, Attribute] = {}
        for name, type_oid in () if table is None or not world.has_defaults else table.columns:
            if name[0] == "c" and name[1:].isdigit():
                column = relation_oid, name
                left = world.defaults_left.setdefault(column, Random(f"default of {column}").randrange(5))
                world.defaults_left[column] = max(0, left - 1)
                found[name] = Attribute(int(name[1:]), type_oid, f"as {name}" if left else None)
        return found

    def position(self) -> int:
        return self._session.server.end - self._session.server.lsn_base + self._lsn_base

    def rebase(self, lsn_base: int) -> None:
        self._lsn_base = lsn_base

    def wal_sender_timeout_s(self) -> float:
        return 6.0

    def forget(self) -> None:
        pass


WAL_LOOK_US = 2_000_000
"""A slot monitor looks at the WAL so often."""

_TYPES = {
    16: PgType(16, "pg_catalog", "bool"),
    17: PgType(17, "pg_catalog", "bytea"),
    23: PgType(23, "pg_catalog", "int4"),
    25: PgType(25, "pg_catalog", "text"),
}


class SimPublication:
    """Plays `source.publication.Publication`."""

    def __init__(self, session: SimSession) -> None:
        self._session = session

    def exists(self) -> bool:
        return True

    def found(self) -> FoundPublication | None:
        """None: nothing that the daemon may alter."""
        self._session.check()
        given = self._session.world.database.publication
        return None if given is None else given.found()

    def all_candidates(self) -> list[CandidateTable]:
        given = self._session.world.database.publication
        return [] if given is None else given.candidates()

    def alter(self, statements: Sequence[str]) -> None:
        self._session.check()
        world = self._session.world
        assert world.database.publication is not None
        world.database.publication.alter(statements)
        world.note(f"altered the publication: {statements[0]}")

    def tables(self) -> list[Any]:
        self._session.check()
        return [(each.schema, each.name) for each in self._session.world.database.published()]


def postgres_facts(session: Any, source: SourceSettings) -> PostgresFacts:
    """What a start asks for. The publication is FOR ALL TABLES: a stranger's table joins it once the slot is there."""
    slot = SimSlot(session, source.slot).state()
    server = session.server
    tables = [TableIdentity(t.schema, t.name, t.identity, bool(t.key)) for t in server.tables.values()]
    if slot is not None:
        tables.append(TableIdentity("stranger", "heap", "d", has_index=False))
    return PostgresFacts(
        server=ServerFacts(server.version * 10_000, "d", "cdcd", _PARAMETERS, slots=0, walsenders=0),
        slot=slot,
        publication=PublishedOperations(updates=True, deletes=True),
        may_create=False,
        identities=tables,
        privileges=[TablePrivileges(table.schema, table.name) for table in tables],
    )


_PARAMETERS = {
    "wal_level": "logical",
    "max_replication_slots": "10",
    "max_wal_senders": "10",
    "wal_sender_timeout": "6000",
}


class SimReplicationStream:
    """Plays `source.replication_stream.ReplicationStream`, over a `Link`."""

    encoding = "UTF8"

    def __init__(self, world: World, life: Life) -> None:
        self.world = world
        self.server = life.server
        self._life = life
        self._life.check()
        if not self.server.up:
            raise PostgresUnavailable("the server is not there", code="postgres-interrupted")
        self.link = Link(self.world.link_room)
        self.local = self.world.local
        self.standby = False
        self.read_bytes = 0
        self.lsn_base = 0
        self.served: Walsender | None = None
        self.told = 0

    @property
    def server_version(self) -> int:
        return self.server.version * 10_000

    @property
    def backend_pid(self) -> int:
        return id(self.served)

    def identify(self) -> SystemIdentity:
        server = self.server
        return SystemIdentity(server.system_id, server.timeline, server.end - server.lsn_base, "d")

    def timeline_history(self, timeline: int) -> str:
        return ""

    def enlarge_read_buffer(self) -> None:
        pass

    def create_slot(self, slot: str, *, two_phase: bool, failover: bool, blockers: object, meanwhile: object) -> Any:
        self._life.check()
        server = self.server
        if not server.up or server.running or server.slot is not None:
            raise PostgresUnavailable(
                "there are transactions in progress, or there is a slot by now", code="postgres-interrupted"
            )
        consistent = server.create_slot(two_phase)
        self.world.slot_created(consistent)
        return SystemIdentityOfSlot(consistent - server.lsn_base)

    def start(self, slot: str, lsn: int, options: dict[str, str]) -> None:
        self._life.check()
        self.served = self.server.start(self.link, options, self.world.now)
        self.served.life = self._life  # type: ignore[attr-defined]
        self._life.link = self.link
        self.world.note(f"{self._life.name} streams from {self.served._start:X}, proto {options['proto_version']}")
        self.world.meanwhile(0.3)
        self._life.check()

    def read(self, max_frames: int, max_bytes: int) -> list[bytes]:
        frames = self.link.frames
        wanted = min(max_frames, self.world.rng.choice([1, 5, self.world.rng.randint(2, 20), 10_000]), len(frames))
        taken = [frames.popleft() for _ in range(wanted)]
        self.read_bytes = sum(map(len, taken))
        if not taken and self.link.lost is not None:
            raise self.link.lost
        return taken

    def raise_if_ended(self) -> None:
        if self.link.lost is not None:
            raise self.link.lost

    def send_status(self, written: int, flushed: int, applied: int, reply: bool = False) -> None:
        assert written == flushed == applied
        assert flushed >= self.told, "the acknowledgement went back"
        self.told = flushed
        flushed -= self.lsn_base
        if self._life.is_judged:
            self.world.checker.acknowledged(flushed + self.server.lsn_base)
        if self.link.lost is not None and self.world.rng.random() < 0.5:
            raise self.link.lost
        self.link.statuses.append(StatusUpdate(flushed, flushed, flushed, 0, reply).encode())

    def fileno(self) -> int:
        return -1

    def wait(self, timeout_s: float, *wake: int, reading: bool = True) -> list[int]:
        if len(wake) > 1:  # rows of a snapshot may have come
            timeout_s = min(timeout_s, self.world.rng.random() * 0.01)
        return self._life.wait(timeout_s, reading)

    def stop(self, timeout_s: float = 1.0) -> bool:
        self.world.hang_up(self.link)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.world.hang_up(self.link)


class SystemIdentityOfSlot:
    """As much of CreatedSlot as is asked for."""

    def __init__(self, consistent_lsn: int) -> None:
        self.consistent_lsn = consistent_lsn


class Life:
    """One process of a replica, from its start to its end."""

    def __init__(self, world: World, name: str, disk: Any) -> None:
        self.world = world
        self.name = name
        self.server = world.server_of(name)
        self.disk = disk
        self.dead = False
        self.stopping = False
        self.state = "waiting"
        self.due = world.now
        self.frozen_until = 0.0
        self.thawed_at = -1e9
        self.clock_offset = 0.0
        self.jumped = False
        self.busy: set[str] = set()
        """The threads whose code is on the stack just now."""
        self.clients = SimClients(world, self)
        self.wake = SimWake()
        self.status = Status(Identity("sim", "s", "p"), world.now)
        self.link: Link | None = None
        self.taking_over: SteppedThread | None = None
        self.opening: StreamStartup | None = None
        self.opened: StreamResources | None = None
        self.pipeline: Pipeline | None = None
        self.sink: SteppedSink | None = None
        self.error: BaseException | None = None
        self.reading = False
        self.until = 0.0
        self.watch_due = 0.0
        self.hurried = False
        self.asking = False
        """An event waits for the schema registry: so the main thread waits inside of its turn."""
        self._fallbacks = Fallbacks(judgement=StartJudgement(postgres_facts, lambda *_: []))
        self._has_streamed = False
        self._slot_created = False
        self._backoff_s = BACKOFF_MIN_S
        self._transactions = 0
        self._looks: list[tuple[int, int]] = []
        """When the slot monitor looked at the WAL, and where it ended."""

    @property
    def settings(self) -> Settings:
        return self.world.settings_of(self.name)

    @property
    def is_judged(self) -> bool:
        """It is one of those that the checker looks at."""
        return self.server is self.world.server and self.settings is self.world.settings

    def clock(self) -> float:
        return self.world.now + self.clock_offset

    def check(self) -> None:
        """SIGKILL, or SIGSTOP for as long as it lasts, take effect here."""
        while not self.dead and self.world.now < self.frozen_until:
            self.world.step_or_sleep(self.frozen_until)
        if self.dead:
            raise Killed

    @property
    def running(self) -> bool:
        return not self.dead and self.world.now >= self.frozen_until

    # The main thread

    def can_turn(self) -> bool:
        if "main" in self.busy or not self.running:
            return False
        if self.state == "waiting":
            return self.world.now >= self.due
        if self.state == "closing":
            return not self.busy
        return self.wake.is_set or self.stopping or self.world.now >= self.until or (self.reading and self._readable())

    def deadlines(self) -> Iterator[float]:
        if self.dead:
            return
        if self.world.now < self.frozen_until:
            yield self.frozen_until
            return
        if "main" in self.busy:
            return
        if self.state == "waiting":
            yield self.due
        elif self.state == "closing":
            yield self.world.now + 0.01
        elif self.state == "streaming":
            yield self.until
            if self.world.watches_topics and "watch" not in self.busy:
                yield self.watch_due
            if self.sink is not None and self.sink.alive:
                yield self.sink.due

    def turn(self) -> None:
        """The main thread goes on, up to where it would wait."""
        self.world.running.append(self)
        self.busy.add("main")
        try:
            if self.state == "waiting":
                self._open()
            elif self.state == "closing":
                self._close()
            else:
                self._stream()
        except Killed:
            assert self.dead
        finally:
            self.busy.discard("main")
            self.world.running.pop()

    def wait(self, timeout_s: float, reading: bool) -> list[int]:
        """What `walsender.wait` does: at the end of a turn of the pipeline, only note it."""
        if self.state == "streaming" and not self.stopping and not self.asking:
            self.reading = reading
            self.until = self.world.now + timeout_s
            return []
        self._wait_inside(max(timeout_s, 1e-6))  # no wait is so short that no time passes
        return [SimWake.fd] if self.wake.is_set else []

    def _readable(self) -> bool:
        assert self.link is not None
        return bool(self.link.frames) or self.link.lost is not None

    def _wait_inside(self, timeout_s: float) -> None:
        """Wait on the stack, while the world goes on: during the opening, and at the end."""
        world = self.world
        until = world.now + timeout_s
        while world.now < until and not self.wake.is_set:
            self.check()
            opening = self.state == "opening"
            if opening and self.taking_over is not None and world.rng.random() < (0.4 if world.kafka_up else 0.01):
                over, self.taking_over = self.taking_over, None
                over.run()
                break
            world.step_or_sleep(until)
        self.check()

    def _open(self) -> None:
        self.state = "opening"
        self.hurried = self.asking = False
        self.wake.clear()
        self._transactions = self.status.published.transactions
        try:
            self.opening = StreamStartup(
                self.settings,
                self.clients,
                self._fallbacks,
                self.wake,  # type: ignore[arg-type]
                lambda: self.stopping,
            )
            opened = self.opening.open()
            if opened is None:
                self.error = None
                self._close()
                return
            self.pipeline = Pipeline(
                opened,
                self.status,
                NoMetrics(),  # type: ignore[arg-type]
                self.wake,  # type: ignore[arg-type]
                self.clients.monotonic_s,
                self.clients.wall_us,
            )
            self.opened = opened
            self._has_streamed = True
            sink = self.pipeline.sink.worker
            assert isinstance(sink, SteppedSink)
            self.sink = sink
            sink.start()
            sink.due = self.world.now + 1.0
            self.state = "streaming"
            self.until = self.world.now
        except CdcdError as error:
            self.error = error
            self._close()

    def _stream(self) -> None:
        pipeline = self.pipeline
        assert pipeline is not None
        if self.wake.is_set:
            self.wake.clear()
        try:
            if self.stopping:
                pipeline.finish()
                self.error = None
            else:
                pipeline.turn()
                self._measure()
                self._judge_lag()
                return
        except CdcdError as error:
            self.error = error
        pipeline.sink.stop(0.0)
        self.asking = False
        self.state = "closing"

    def _close(self) -> None:
        """What `pipeline.run` and the supervisor do at the end of a stream."""
        world = self.world
        sink = self.sink
        if sink is not None and sink.alive:
            if world.rng.random() < 0.9:
                return  # it is waited for
            sink.alive = False  # it was waited for long enough
        if self.opening is not None:
            self.opening.close()
            self._slot_created = self._slot_created or self.opening.slot_created
        self.opening = self.opened = self.pipeline = self.sink = self.taking_over = self.link = None
        self.state = "waiting"
        error = self.error
        if not isinstance(error, SlotActive):
            world.note(f"{self.name} ends its stream: {error or 'stopped'}")
        world.has_lost_feature |= isinstance(error, StreamingUnsupported | StreamingResumed)
        if self.stopping:
            world.died(self, None)
        elif isinstance(error, SlotActive):
            self.due = world.now + STANDBY_S * world.rng.choice([1, 10])
            self._backoff_s = BACKOFF_MIN_S
            self._fallbacks.note(error)
        elif isinstance(error, RetriableError):
            try:
                self._fallbacks.note(error)
            except FatalError as fatal:
                world.died(self, fatal)
                return
            if self.status.published.transactions > self._transactions:
                self._backoff_s = BACKOFF_MIN_S
            self.due = world.now + self._backoff_s
            self._backoff_s = min(BACKOFF_MAX_S, self._backoff_s * 2)
        elif isinstance(error, Unpublishable) and error.table is not None and error.table[0] == POISON.schema:
            parking = self._fallbacks.parking
            assert error.table not in parking.parked, "parked, and refused again"
            (parking.refused if error.unparking else parking.parked)[error.table] = error.message
            self.due = world.now
        else:
            assert isinstance(error, FatalError)
            if self._slot_created and not self._has_streamed:
                drop_unused_slot(world.settings, self.clients)
                self.check()
            world.died(self, error)

    def _measure(self) -> None:
        """Memory stays within its bounds."""
        assert self.opened is not None
        settings, handover = self.world.settings, self.opened.queue
        assert len(handover._batches) <= self.world.batches_max, "the queue has too many batches"
        inside = len(handover._batches) + (handover._out_bytes is not None)
        assert handover.bytes <= settings.sink.queue_bytes_max or inside == 1, "the queue is too large"
        spool = self.opened.spool
        in_frames = spool.memory_bytes - spool.index_bytes
        assert in_frames <= settings.spool.memory_bytes, "the spool's frames take too much memory"
        assert spool.index_bytes <= max(settings.spool.memory_bytes // 2, INDEX_BYTES), "the spool's index is too large"
        assert spool.disk_bytes <= settings.spool.bytes_max, "the spool takes too much of the disk"
        if not self.disk.torn and not self.disk.full:
            held = sum(map(len, self.disk.files.values()))
            assert spool.disk_bytes == held, f"the spool counts {spool.disk_bytes} bytes on disk, there are {held}"
        if not spool._spooled:
            assert spool.memory_bytes + spool.disk_bytes == 0, "an empty spool has a size"

    def _judge_lag(self) -> None:
        """Nobody is told that Kafka has all while a commit waits that was made before some look at the WAL."""
        if not self.is_judged or self.world.is_another_history:
            return
        world, positions, now_us = self.world, self.status.positions, self.clients.wall_us()
        world.checker.look()
        waiting = world.database.ledger[world.checker.published :]
        # A message outside of a transaction has no commit time but the one when it was sent.
        if waiting and waiting[0].commit_us:
            seen_us = next((at_us for at_us, wal_lsn in self._looks if wal_lsn >= waiting[0].end_lsn), now_us)
            least_s = (now_us - seen_us) / 1e6
            assert positions.lag_s(now_us) >= least_s, f"too little lag, as {waiting[0].xid} is not in Kafka"
        assert self.opened is not None
        if self.opened.assembler._state in (IN_TRANSACTION, REPLAYING):
            assert positions.oldest_pending_us, "no lag, though a commit is being received"
        assert positions.received_lsn >= positions.durable_lsn, "Kafka holds what was not received"
        if not self._looks or now_us >= self._looks[-1][0] + WAL_LOOK_US:  # as the slot monitor does
            self._looks.append((now_us, world.server.end))
            positions.server_lsn = max(positions.server_lsn, world.server.end)
            positions.wal.add(now_us, world.server.end, positions.durable_lsn)

    # The thread that watches the topics

    def can_watch(self) -> bool:
        is_alive = self.state == "streaming" and "watch" not in self.busy and self.running
        return is_alive and self.world.watches_topics and self.world.now >= self.watch_due

    def turn_watch(self) -> None:
        assert self.opened is not None
        watch = self.opened.topic_watch
        self.world.running.append(self)
        self.busy.add("watch")
        try:
            watch.check()
        except (KafkaUnavailable, Killed):
            pass
        finally:
            self.busy.discard("watch")
            self.world.running.pop()
        self.watch_due = self.world.now + watch.pause_s

    # The sink's thread

    def can_sink(self) -> bool:
        sink = self.sink
        if sink is None or not sink.alive or "sink" in self.busy or not self.running:
            return False
        queue = sink._queue
        assert isinstance(queue, SteppedBatchQueue)
        return queue.has_batch or queue.closed or self.world.now >= sink.due

    def turn_sink(self) -> None:
        sink = self.sink
        assert sink is not None
        queue = sink._queue
        assert isinstance(queue, SteppedBatchQueue)
        queue.waited_s = 0.0
        self.world.running.append(self)
        self.busy.add("sink")
        try:
            alive = sink.step()
        finally:
            self.busy.discard("sink")
            self.world.running.pop()
        if self.dead:
            return
        error = sink._error
        if error is not None and not isinstance(error, CdcdError):
            raise error
        sink.alive = alive and sink.alive
        sink.due = self.world.now + queue.waited_s


class SimClients(Clients):
    """Plays `daemon.clients.Clients` for one process."""

    def __init__(self, world: World, life: Life) -> None:
        super().__init__(life.settings)
        sizes = world.batches_max, world.replay_bytes, world.batches_max, world.replay_bytes, world.batches_max * 4
        self.sizes = Sizes(*sizes)
        self._world = world
        self._life = life
        self._ids = None if world.registry is None else SimRegistryIds(world, life, world.registry)

    def session(self) -> Any:
        return SimSession(self._world, self._life)

    def slot(self, session: Any) -> Any:
        return SimSlot(session, self._settings.source.slot)

    def catalog(self, session: Any) -> Any:
        return SimCatalog(session)

    def publication(self, session: Any) -> Any:
        return SimPublication(session)

    def incarnations(self, session: Any) -> Any:
        return seen_now(self._world)

    def replication_stream(self) -> Any:
        return SimReplicationStream(self._world, self._life)

    def snapshot_export(self, choose: Choose, repairs: ChooseRepairs, wake: Callable[[], None], lsn_base: int) -> Any:
        return SimSnapshotExport(self._world, self._life, choose, repairs, lsn_base)

    def table_comparison(self, table: tuple[str, str], system_id: str, wake: Callable[[], None]) -> Any:
        return SimTableComparison(self._world, self._life, table)

    def new_table_scan(self, wants: Wants, wake: Callable[[], None]) -> Any:
        return SimNewTableScan(self._world, wants)

    def kafka(self) -> Any:
        return SimKafkaCluster(self._world)

    def registry(self) -> Any:
        return self._ids

    def spool_directory(self, path: Path) -> Any:
        return DiskDirectory(path, self._life.disk)

    def batch_queue(self, on_room: Callable[[], None]) -> BatchQueue:
        return SteppedBatchQueue(self.sizes.batches_max, self._settings.sink.queue_bytes_max, on_room)

    def sink_worker(self) -> Callable[..., SinkWorker]:
        return partial(SteppedSink, clock=self.monotonic_s)

    def thread(self, target: Callable[[], None], name: str) -> Any:
        return SteppedThread(self._life, target)

    def event(self) -> Any:
        return SimEvent(self._world)

    def monotonic_s(self) -> float:
        return self._life.clock()

    def wall_us(self) -> int:
        return self._world.server.time_us + POSTGRES_EPOCH_US


class SimKafkaCluster(FakeKafkaCluster):
    """Plays `KafkaCluster` for one process; its producers die with it, and what it reads of a replay is small."""

    def __init__(self, world: World) -> None:
        super().__init__(world.broker)
        self._world = world

    def transactional_producer(self, transactional_id: str, timeout_ms: int, known_topic: str) -> SimProducer:
        return SimProducer(self._world, transactional_id)

    def parked_reader(self, topic: str) -> ParkedReader:
        return KafkaParkedReader(self.range_reader(topic), self._world.batches_max, self._world.batches_max)

    def validate(self, producers: object, *specs: TopicSpec) -> list[TopicSpec]:
        return []
