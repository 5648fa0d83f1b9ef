"""The loop on played parts: a server that a test speaks for, and a sink whose thread never runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

import cdcd.transaction.assembler
from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.daemon.gap_repairs import GapRepairs
from cdcd.daemon.pipeline import Pipeline
from cdcd.daemon.registry_wait import RegistryWait
from cdcd.daemon.repair_requests import RepairRequests
from cdcd.daemon.request_intake import RequestIntake
from cdcd.daemon.server_shutdown import WAIT_FOR_KAFKA_S
from cdcd.daemon.snapshot_coordinator import SnapshotCoordinator
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.daemon.snapshot_rows import SnapshotLimits
from cdcd.daemon.wiring import ServerConnection, StreamResources
from cdcd.errors import KafkaUnavailable, PostgresUnavailable
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.stall_detection import SINK
from cdcd.monitoring.status import Status
from cdcd.pgoutput.decoder import Decoder
from cdcd.progress.ack_tracker import AckTracker
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import BatchBuilder
from cdcd.sink.kafka_transaction import CommitResult
from cdcd.sink.topics import TopicNames
from cdcd.source.stream_messages import PrimaryKeepalive
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.relations import Relations
from cdcd.transaction.sent_again import SentAgain

pytestmark = pytest.mark.skipif(
    not cdcd.transaction.assembler.__file__.endswith(".py"),
    reason="a test's own classes cannot take the place of compiled ones",
)

STATUS_INTERVAL_S = 10.0
SESSION_FD = 7


class PlayedStream:
    """Gives the frames that a test puts in, and keeps what it is told."""

    local = False
    standby = False

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.acks: list[int] = []
        self.waits: list[tuple[float, bool]] = []
        self.ready: list[int] = []
        self.read_bytes = 0
        self.is_stopped = False

    def read(self, frames_max: int, bytes_max: int) -> list[bytes]:
        frames, self.frames = self.frames, []
        self.read_bytes = sum(map(len, frames))
        return frames

    def send_status(self, written: int, flushed: int, applied: int, reply: bool = False) -> None:
        self.acks.append(flushed)

    def wait(self, timeout_s: float, *wake: int, reading: bool = True) -> list[int]:
        self.waits.append((timeout_s, reading))
        return self.ready

    def fileno(self) -> int:
        return 3

    def stop(self) -> bool:
        self.is_stopped = True
        return True


class PlayedSession:
    """A session of a server that lets nobody in any more."""

    def __init__(self) -> None:
        self.has_ended = False

    def sockets(self) -> list[int]:
        return [SESSION_FD]

    def ended(self, ready: list[int]) -> bool:
        return self.has_ended and SESSION_FD in ready

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        raise PostgresUnavailable("the database system is shutting down", code="postgres-interrupted")


class PlayedWorker:
    """The sink's thread: what it makes durable, a test says."""

    committing = False

    def __init__(self, on_durable: Callable[[Any, float], None], on_end: Any) -> None:
        self._on_durable = on_durable
        self.durable = self.published = 0
        self.error: Exception | None = None
        self.stopped_within_s: list[float] = []

    def commit(self, end_lsn: int) -> None:
        self.durable += 1
        self._on_durable(CommitResult(end_lsn, 0, 0, 0, 0, 0, 0, {}, {}, {}, 0.0), 0.01)

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def start(self) -> None:
        pass

    def stop(self, within_s: float) -> None:
        self.stopped_within_s.append(within_s)

    def join(self, wait_s: float) -> bool:
        return True


class PlayedTopicWatch:
    """The watch's thread: a test says what it finds."""

    loss: Exception | None = None

    def start(self) -> None:
        pass

    def raise_loss(self) -> None:
        if self.loss is not None:
            raise self.loss


class PlayedWake:
    fd = 5

    def set(self) -> None:
        pass

    def clear(self) -> None:
        pass


class PlayedPublisher:
    parked: dict[Any, Any] = {}  # noqa: RUF012 - nobody changes it


class Played:
    """A pipeline, and its parts. `now` is its clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.stream = PlayedStream()
        self.session = PlayedSession()
        self.status = Status(Identity("1.0", "slot", "pub"), self.now)
        self.queue = BatchQueue(64, 1 << 20, lambda: None)
        self.topic_watch = PlayedTopicWatch()
        self.tracker = AckTracker(100, 100)
        self.status.begin_stream(self.now)
        batches = BatchBuilder(tombstones=False)
        encoder = EventEncoder(batches, FingerprintStore(batches), TypeOptions())
        nothing = cast("Any", None)
        requests = SnapshotRequests("s", TopicNames("p"), {}, takes=None)
        server = ServerConnection(
            stream=cast("Any", self.stream),
            session=cast("Any", self.session),
            catalog=nothing,
            system_id="1",
            confirmed_lsn=100,
            streaming_mode="off",
            status_interval_s=STATUS_INTERVAL_S,
            wal_sender_timeout_s=60.0,
        )
        repairs = RepairRequests("s", TopicNames("p"))
        snapshots = SnapshotCoordinator(requests, encoder, batches, nothing, nothing, SnapshotLimits(8192), repairs)
        resources = StreamResources(
            server=server,
            assembler=Assembler(
                Decoder(streaming_parallel=False), Relations(nothing), encoder, nothing, SentAgain(100)
            ),
            batches=batches,
            spool=nothing,
            tracker=self.tracker,
            queue=self.queue,
            publisher=cast("Any", PlayedPublisher()),
            sink_worker=cast("Any", PlayedWorker),
            is_synchronous=False,
            snapshots=snapshots,
            gap_repairs=GapRepairs(requests, snapshots, None),
            requests=RequestIntake("s", list, snapshots.request),
            topic_watch=cast("Any", self.topic_watch),
            registry_wait=RegistryWait(lambda: None, lambda: False, lambda: self.now),
            only_snapshot=False,
            progress_interval_s=1.0,
        )
        self.pipeline = Pipeline(resources, self.status, Metrics("pure"), cast("Any", PlayedWake()), lambda: self.now)
        self.worker = cast("PlayedWorker", self.pipeline.sink.worker)

    def turn(self, after_s: float = 0.0) -> None:
        self.now += after_s
        self.pipeline.turn()

    def keepalive(self, wal_end: int, *, reply: bool = False) -> None:
        self.stream.frames.append(PrimaryKeepalive(wal_end, 0, reply).encode())

    def sink_has_work(self) -> bool:
        return self.status.stalled_s(self.now + 60)[SINK] > 0


@pytest.fixture
def played() -> Played:
    return Played()


def test_a_position_without_rows_goes_to_kafka_and_is_acknowledged_when_kafka_has_it(played: Played) -> None:
    played.keepalive(200)
    played.turn()
    batch = played.queue.get()
    assert (batch.rows, batch.end_lsn) == (0, 200)
    assert played.stream.acks == [100]
    played.worker.commit(200)
    played.turn(0.001)
    assert played.stream.acks == [100, 200], "at once"
    assert played.status.positions.acked_lsn == 200


def test_a_server_that_asks_for_a_reply_gets_the_idle_position_without_waiting_for_the_interval(played: Played) -> None:
    played.keepalive(200)
    played.turn()
    assert played.queue.get() is not None
    played.worker.commit(200)
    played.keepalive(300)
    played.turn(1.0)
    assert not played.queue.has_batch, "the interval is not over"
    assert played.stream.waits[-1] == (STATUS_INTERVAL_S - 1, True)
    played.keepalive(301, reply=True)
    played.turn(0.001)
    batch = played.queue.get()
    assert batch.end_lsn == 301


def test_a_server_is_answered_but_not_read_while_a_batch_waits_for_room(played: Played) -> None:
    played.queue.close()  # it takes nothing more
    played.keepalive(200)
    played.turn()
    assert played.pipeline.sink.is_blocked
    played.keepalive(300)
    played.turn(STATUS_INTERVAL_S)
    assert played.stream.frames, "nothing was read"
    assert played.stream.acks == [100, 100]
    assert not played.stream.waits[-1][1], "what the server sends stays in the socket"


def test_a_shutdown_does_not_wait_for_an_idle_position_that_kafka_does_not_take(played: Played) -> None:
    played.keepalive(200)
    played.turn()
    assert played.queue.get() is not None, "the sink has it"
    assert played.sink_has_work(), "and health sees that it does not move"
    played.session.has_ended, played.stream.ready = True, [SESSION_FD]
    played.turn()
    played.session.has_ended = False
    played.turn(WAIT_FOR_KAFKA_S / 2)
    with pytest.raises(PostgresUnavailable, match="shutting down"):
        played.turn(0.1 + WAIT_FOR_KAFKA_S / 2)


def test_nothing_waits_once_the_idle_position_is_durable(played: Played) -> None:
    played.keepalive(200)
    played.turn()
    assert played.queue.get() is not None
    played.session.has_ended, played.stream.ready = True, [SESSION_FD]
    played.turn()
    played.worker.commit(200)
    played.turn(100.0)
    assert not played.sink_has_work()


def test_an_error_of_the_sink_ends_the_stream_and_what_was_committed_counts(played: Played) -> None:
    played.worker.commit(150)
    played.worker.error = PostgresUnavailable("the sink has failed", code="postgres-interrupted")

    def stopping() -> bool:
        played.tracker.on_keepalive(150)
        return False

    with pytest.raises(PostgresUnavailable, match="the sink has failed"):
        played.pipeline.run(stopping)
    assert played.status.positions.durable_lsn == 150
    assert played.worker.stopped_within_s == [0.0]


def test_a_stop_acknowledges_what_the_sink_has_finished_and_ends_the_stream(played: Played) -> None:
    played.turn()
    played.tracker.on_keepalive(150)
    played.worker.commit(150)
    played.pipeline.run(lambda: True)
    assert played.stream.acks[-1] == 150
    assert played.stream.is_stopped


def test_a_server_is_answered_and_commits_are_taken_while_an_event_waits_for_the_registry(played: Played) -> None:
    played.keepalive(200)
    played.turn()
    assert played.queue.get() is not None
    played.keepalive(300)
    played.now += STATUS_INTERVAL_S
    played.pipeline.answer(1.0)
    assert played.stream.acks == [100, 100], "the interval is over"
    played.worker.commit(200)
    played.now += 0.1
    played.pipeline.answer(1.0)
    assert played.stream.acks == [100, 100, 200]
    assert played.stream.waits[-1] == (1.0, False)
    assert played.stream.frames, "nothing was read"


def test_an_error_of_the_sink_ends_the_waiting_for_the_registry(played: Played) -> None:
    played.turn()
    played.worker.error = KafkaUnavailable("gone", code="kafka-unavailable")
    with pytest.raises(KafkaUnavailable):
        played.pipeline.answer(1.0)
