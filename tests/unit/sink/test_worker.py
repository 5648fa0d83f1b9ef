"""The sink thread: it does what the schedule says, hands errors over, and stops without loss or delay."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable

import pytest
from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer, FakeReading

from cdcd.errors import KafkaUnavailable, RequestRejected, Unpublishable
from cdcd.progress.snapshot_records import DONE, RUNNING, TableSnapshot
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.sink.commit_schedule import CommitSchedule
from cdcd.sink.interfaces import Offsets
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.kafka_transaction import CommitResult
from cdcd.sink.parking.state import ParkedTables
from cdcd.sink.publisher import Publisher, Source
from cdcd.sink.table_topics import TableTopics, TopicSettings
from cdcd.sink.topics import TopicNames, TopicSpec
from cdcd.sink.worker import SinkWorker

NEVER_MS = 1 << 30


def patient() -> CommitSchedule:
    """All bounds are far."""
    return CommitSchedule(1_000_000, 1 << 40, NEVER_MS, NEVER_MS)


def gathering() -> CommitSchedule:
    """A lone row waits for others."""
    return CommitSchedule(100, 1 << 40, NEVER_MS, NEVER_MS, gather_s=1000.0)


class WaitingQueue(BatchQueue):
    """Never waits. While it would, `meanwhile` is called."""

    def __init__(self) -> None:
        super().__init__(100, 1 << 30, lambda: None)
        self.waits: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.meanwhile()
        return super().wait(0.0)


class Sink:
    """The thread with all that it needs, and what it told."""

    def __init__(
        self,
        schedule: CommitSchedule | None = None,
        clock: Callable[[], float] = lambda: 0.0,  # no bound on time is reached, however slow the machine is
        admin: Callable[[FakeBroker], FakeAdmin] = FakeAdmin,
        queue: BatchQueue | None = None,
    ) -> None:
        self.broker = FakeBroker()
        self.producer = FakeProducer(self.broker, "id")
        self.producer.start(lambda: False)
        topics = TableTopics(admin(self.broker), TopicNames("p"), TopicSettings(1, 1))
        reader = KafkaParkedReader(FakeReading(self.broker, "p.parked"), events_max=1)
        parked = ParkedTables(topics, "s", None, reader=reader)
        self.publisher = Publisher(self.producer, topics, Source("s", "1", 1), None, parked)
        self.queue = queue or BatchQueue(100, 1 << 30, lambda: None)
        self.durable: list[CommitResult] = []
        self.committing: list[bool] = []
        """Whether a commit was under way when its result was told."""
        self.told = threading.Event()
        self.ended = threading.Event()
        self.worker = SinkWorker(
            self.publisher, schedule or patient(), self.queue, self._on_commit, self.ended.set, clock
        )
        self.builder = BatchBuilder(tombstones=False)
        self.table = self.builder.open_table("public", "t")

    def _on_commit(self, result: CommitResult, seconds: float) -> None:
        assert seconds >= 0
        self.committing.append(self.worker.committing)
        self.durable.append(result)
        self.told.set()

    def put(self, lsn: int, *, table: int = 0, end: bool = True, is_distant: bool = False, flows: bool = False) -> None:
        self.builder.begin(lsn, 1)
        self.builder.add(table, ord("c"), b"k", b"%d" % lsn)
        if end:
            self.builder.commit(lsn + 1)
        batch = self.builder.build()
        batch.commit_is_distant, batch.more_expected = is_distant, flows
        assert self.queue.put(batch)

    def put_snapshot(self, state: str, *, rows: int = 0, end_lsn: int = 0) -> None:
        """Rows of the snapshot of `table`: its events are deferred meanwhile, and replayed when it is done."""
        for _ in range(rows):
            self.builder.add(self.table, ord("r"), b"k", b"snapshot")
        batch = self.builder.build()
        batch.snapshot_records = [TableSnapshot("s", "p.public.t", "public", "t", state, 10)]
        batch.end_lsn = end_lsn
        assert self.queue.put(batch)

    def run_until_idle(self) -> None:
        """Do what there is to do, without a thread."""
        while self.queue.has_batch or self.publisher.has_replay or self.publisher.open:
            assert self.worker.step()

    def wait(self, end_lsn: int) -> None:
        while not self.durable or self.durable[-1].end_lsn < end_lsn:
            assert self.told.wait(5), "nothing became durable"
            self.told.clear()

    def end(self) -> None:
        self.worker.stop(5)
        assert self.worker.join(5)

    def rows(self) -> list[bytes | None]:
        return [seen.value for seen in self.broker.visible("p.public.t")[0]]


def test_a_lone_transaction_is_durable_at_once_though_all_bounds_are_far() -> None:
    sink = Sink()
    sink.worker.start()
    sink.put(10)
    sink.wait(11)
    sink.put(20)
    sink.wait(21)
    assert [durable.end_lsn for durable in sink.durable] == [11, 21]
    sink.end()


def test_what_comes_while_a_transaction_gathers_goes_along() -> None:
    now = [0.0]
    schedule = CommitSchedule(100, 1 << 40, NEVER_MS, NEVER_MS, gather_s=0.01)
    queue = WaitingQueue()
    sink = Sink(schedule, clock=lambda: now[0], queue=queue)
    sink.put(10)

    def meanwhile() -> None:
        if now[0] == 0.0:
            sink.put(20)
            now[0] = 0.009
        else:
            now[0] = 0.01

    queue.meanwhile = meanwhile
    sink.run_until_idle()
    assert [durable.transactions for durable in sink.durable] == [2]
    assert queue.waits == [0.01, pytest.approx(0.001)], "it waits no longer than rows join at no cost"


def test_a_row_that_is_refused_while_its_transaction_gathers_names_its_table() -> None:
    sink = Sink(gathering(), queue=WaitingQueue())

    def poll() -> None:
        raise Unpublishable("too large", "", topic="p.public.t", code="row-too-large")

    sink.producer.poll = poll  # type: ignore[method-assign]
    sink.put(10)
    while sink.worker.step():
        pass
    with pytest.raises(Unpublishable) as caught:
        sink.worker.check()
    assert caught.value.table == ("public", "t")


def test_a_stop_commits_what_still_gathers() -> None:
    sink = Sink(gathering())
    sink.worker.start()
    sink.put(10)
    deadline = time.monotonic() + 5
    while not sink.worker.published:
        assert time.monotonic() < deadline, "the batch is not published"
        time.sleep(0.001)
    sink.end()
    assert [durable.end_lsn for durable in sink.durable] == [11]


def test_a_commit_says_that_it_is_under_way_until_it_tells_what_is_durable() -> None:
    sink = Sink()
    stood: list[tuple[str, bool]] = []
    sink.broker.on_call = lambda step: stood.append((step, sink.worker.committing))
    sink.put(10)
    sink.run_until_idle()
    assert [each for each in stood if each[0] in ("flush", "commit")] == [("flush", True), ("commit", True)]
    assert sink.committing == [False], "what is read from now on is in time for the next"


def test_what_the_next_transaction_takes_is_prepared_while_one_gathers() -> None:
    sink = Sink(gathering(), queue=WaitingQueue())
    steps: list[str] = []
    sink.broker.on_call = steps.append
    sink.put(10)
    for _ in range(3):
        assert sink.worker.step()
    assert "begin_next" in steps
    assert "commit" not in steps


def test_a_commit_that_fails_is_not_under_way() -> None:
    sink = Sink()

    def flush() -> Offsets:
        raise KafkaUnavailable("gone", code="kafka-unavailable")

    sink.producer.flush = flush  # type: ignore[method-assign]
    sink.put(10)
    while sink.worker.step():
        pass
    assert not sink.worker.committing


def test_what_waits_shares_a_kafka_transaction() -> None:
    sink = Sink()
    for lsn in range(10, 60, 10):
        sink.put(lsn)
    sink.worker.start()
    sink.wait(51)
    assert [durable.transactions for durable in sink.durable] == [5]
    sink.end()


def test_what_was_committed_does_not_wait_for_the_rows_of_a_snapshot_behind_it() -> None:
    sink = Sink()
    sink.put(10)
    for number in range(3):
        sink.builder.add(sink.table, ord("r"), b"k", b"snapshot %d" % number)
        batch = sink.builder.build()
        batch.snapshot_records = []
        assert sink.queue.put(batch)
    sink.run_until_idle()
    assert [(durable.transactions, durable.rows) for durable in sink.durable] == [(1, 1), (0, 3)]


def test_a_replay_takes_turns_with_the_stream_and_rows_of_a_snapshot_stand_behind_it() -> None:
    sink = Sink(CommitSchedule(1, 1 << 40, 0, NEVER_MS))
    other = sink.builder.open_table("public", "u")
    sink.put_snapshot(RUNNING, end_lsn=5)
    for lsn in (20, 30, 40):
        sink.put(lsn)  # deferred
    sink.put_snapshot(DONE)
    for lsn in (50, 60):
        sink.put(lsn, table=other)
    sink.put_snapshot(RUNNING, rows=1)
    sink.run_until_idle()
    rows = [
        record.value
        for transaction in sink.broker.committed
        for record in transaction.records
        if record.topic.startswith("p.public.")
    ]
    assert rows == [b"20", b"50", b"30", b"60", b"40", b"snapshot"]


def test_rows_of_a_snapshot_that_come_while_a_flow_is_waited_for_stand_behind_a_replay() -> None:
    queue = WaitingQueue()
    sink = Sink(queue=queue)
    other = sink.builder.open_table("public", "u")
    sink.put_snapshot(RUNNING, end_lsn=5)
    sink.put(20)  # deferred
    sink.put_snapshot(DONE)
    sink.put(30, table=other, flows=True)
    snapshots = [RUNNING]

    def meanwhile() -> None:
        if snapshots:
            sink.put_snapshot(snapshots.pop(), rows=1)

    queue.meanwhile = meanwhile
    sink.run_until_idle()
    assert not snapshots
    assert sink.rows() == [b"20", b"snapshot"]


def test_a_bound_ends_a_kafka_transaction_within_a_backlog() -> None:
    sink = Sink(CommitSchedule(2, 1 << 40, NEVER_MS, NEVER_MS))
    for lsn in range(10, 60, 10):
        sink.put(lsn)
    sink.worker.start()
    sink.wait(51)
    assert [durable.transactions for durable in sink.durable] == [2, 2, 1]
    sink.end()


def test_a_piece_waits_for_the_rest() -> None:
    sink = Sink()
    sink.worker.start()
    sink.put(10, end=False)
    assert not sink.told.wait(0.1)
    sink.put(10)
    sink.wait(11)
    assert sink.durable[0].rows == 2
    sink.end()


def test_whole_transactions_do_not_wait_for_a_large_one_behind_them() -> None:
    sink = Sink()
    sink.put(10)
    sink.put(20)
    sink.put(30, end=False, is_distant=True)
    sink.put(30, end=False, is_distant=True)
    sink.worker.start()
    sink.wait(21)
    assert [durable.transactions for durable in sink.durable] == [2]
    sink.put(30)
    sink.wait(31)
    assert sink.durable[-1].rows == 3
    sink.end()


def test_whole_transactions_wait_for_one_behind_them_whose_end_is_near() -> None:
    sink = Sink()
    sink.put(10)
    sink.put(20, end=False)
    sink.worker.start()
    assert not sink.told.wait(0.1)
    sink.put(20)
    sink.wait(21)
    assert [durable.transactions for durable in sink.durable] == [2]
    sink.end()


def test_a_flow_shares_a_kafka_transaction_until_it_ends_or_a_bound_is_reached() -> None:
    queue = WaitingQueue()
    sink = Sink(CommitSchedule(3, 1 << 40, NEVER_MS, NEVER_MS), queue=queue)
    lsns = [20, 30, 40]

    def meanwhile() -> None:  # one by one: more than one never waits
        if lsns:
            sink.put(lsns.pop(0), flows=True)

    queue.meanwhile = meanwhile
    sink.put(10, flows=True)
    sink.run_until_idle()
    while lsns:
        assert sink.worker.step()
    sink.run_until_idle()
    assert [durable.transactions for durable in sink.durable] == [3, 1]


def test_a_large_transaction_whose_end_is_here_shares_a_kafka_transaction_too() -> None:
    sink = Sink()
    for lsn in (10, 20, 30):
        sink.put(lsn, end=False)
        sink.put(lsn)
    sink.worker.start()
    sink.wait(31)
    assert [durable.transactions for durable in sink.durable] == [3]
    sink.end()


def test_an_idle_position_becomes_durable() -> None:
    sink = Sink()
    sink.worker.start()
    idle = Batch()
    idle.end_lsn = 99
    sink.queue.put(idle)
    sink.wait(99)
    assert sink.durable[0].rows == 0
    sink.end()


def test_an_error_is_handed_over_and_ends_the_thread() -> None:
    sink = Sink()

    def fail(step: str) -> None:
        if step == "commit":
            raise KafkaUnavailable("gone", code="kafka-unavailable")

    sink.broker.on_call = fail
    sink.worker.start()
    sink.worker.check()
    sink.put(10)
    assert sink.ended.wait(5)
    assert sink.worker.join(5)
    with pytest.raises(KafkaUnavailable, match="gone"):
        sink.worker.check()
    assert not sink.queue.put(Batch()), "nobody takes any more"
    assert sink.durable == []


class Client:
    """Stands for a client of Kafka, whose threads go on as long as anything refers to it."""


@pytest.mark.parametrize("is_chained", [False, True])
def test_an_error_keeps_no_client_alive(monkeypatch: pytest.MonkeyPatch, is_chained: bool) -> None:
    sink = Sink()
    clients: list[weakref.ref[Client]] = []

    def fails() -> None:
        client = Client()
        clients.append(weakref.ref(client))
        raise KafkaUnavailable("no", "Wait", code="kafka-unavailable")

    def publish(*_: object) -> None:
        if not is_chained:
            fails()
        try:
            fails()
        except KafkaUnavailable as error:
            raise RequestRejected("never", "Look", code="record-refused") from error

    monkeypatch.setattr(sink.publisher, "publish", publish)
    sink.put(10)
    gc.disable()  # the error and the functions in its stack refer to each other
    try:
        assert not sink.worker.step()
        [client] = clients
        assert client() is None
    finally:
        gc.enable()
    with pytest.raises(RequestRejected if is_chained else KafkaUnavailable):
        sink.worker.check()


def test_an_error_that_nobody_foresaw_is_handed_over_too(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()

    def fail(step: str) -> None:
        raise ZeroDivisionError

    sink.broker.on_call = fail
    sink.worker.start()
    sink.put(10)
    assert sink.worker.join(5)
    with pytest.raises(ZeroDivisionError):
        sink.worker.check()
    assert "unexpected error" in caplog.text


def test_a_stop_on_an_idle_thread_is_immediate() -> None:
    sink = Sink()
    sink.worker.start()
    began = time.monotonic()
    sink.end()
    assert time.monotonic() - began < 0.5
    sink.worker.check()


def test_a_stop_begins_no_kafka_transaction() -> None:
    sink = Sink()
    sink.put(10)
    sink.worker.stop(5)
    sink.worker.start()
    assert sink.worker.join(5)
    assert sink.durable == []


def test_a_stop_within_a_backlog_commits_what_was_published_of_it() -> None:
    sink = Sink()
    go_on = stop_while_producing(sink, nth=2)
    for lsn in range(10, 60, 10):
        sink.put(lsn)
    sink.worker.start()
    go_on()
    assert sink.worker.join(5)
    assert [durable.end_lsn for durable in sink.durable] == [21]
    assert sink.rows() == [b"10", b"20"]


def stop_while_producing(sink: Sink, nth: int) -> Callable[[], None]:
    """Return a function that asks for a stop while the batch `nth` is being produced."""
    reached, stopped = threading.Event(), threading.Event()
    calls: list[str] = []

    def pause(step: str) -> None:
        calls.append(step)
        if step == "produce" and calls.count("produce") == nth:
            reached.set()
            assert stopped.wait(5)

    def stop() -> None:
        assert reached.wait(5)
        sink.worker.stop(5)
        stopped.set()

    sink.broker.on_call = pause
    return stop


def test_a_stop_within_a_transaction_publishes_what_waits_until_its_end() -> None:
    sink = Sink()
    go_on = stop_while_producing(sink, nth=1)
    sink.put(10, end=False)
    sink.put(10)
    sink.put(20)
    sink.worker.start()
    go_on()
    assert sink.worker.join(5)
    assert [durable.end_lsn for durable in sink.durable] == [11]
    assert sink.rows() == [b"10", b"10"]


def test_a_stop_within_a_transaction_that_does_not_end_aborts_it() -> None:
    sink = Sink()
    sink.worker.start()
    sink.put(10, end=False)
    while sink.queue.has_batch:
        time.sleep(0.001)
    time.sleep(0.05)
    sink.end()
    sink.worker.check()
    assert sink.durable == []
    assert sink.rows() == []
    (log,) = sink.broker.topics["p.public.t"]
    assert sink.broker.stable_end(log) == len(log), "readers wait for a transaction that is left open"


def test_an_error_after_a_request_to_stop_ends_the_thread_and_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    sink = Sink()
    go_on = stop_while_producing(sink, nth=1)
    pause = sink.broker.on_call

    def fail(step: str) -> None:
        pause(step)
        if step == "commit":
            raise KafkaUnavailable("gone", code="kafka-unavailable")

    sink.broker.on_call = fail
    sink.put(10)
    sink.worker.start()
    go_on()
    assert sink.worker.join(5)
    sink.worker.check()
    assert sink.durable == []
    assert "PostgreSQL sends its rows again: gone" in caplog.text


def test_a_stop_shortens_a_question_about_topics(caplog: pytest.LogCaptureFixture) -> None:
    asked, shortened = threading.Event(), threading.Event()

    class SilentAdmin(FakeAdmin):
        def ensure(self, *specs: TopicSpec) -> list[int]:
            if specs[0].name == "p.public.t":
                asked.set()
                assert shortened.wait(5)
                raise KafkaUnavailable("no answer in time", code="kafka-unavailable")
            return super().ensure(*specs)

        def shorten_deadlines(self, within_s: float) -> None:
            shortened.set()

    sink = Sink(admin=SilentAdmin)
    sink.worker.start()
    sink.put(10)
    assert asked.wait(5)
    sink.worker.stop(0.0)
    assert sink.worker.join(1.0)
    sink.worker.check()
    assert "unexpected error" not in caplog.text


def test_without_transactions_a_large_one_may_take_as_long_as_it_takes() -> None:
    sink = Sink(CommitSchedule(1, 1, 0, timeout_ms=None), clock=iter(range(0, 10**9, 10**6)).__next__)
    sink.worker.start()
    sink.put(10, end=False)
    sink.put(10)
    sink.wait(11)
    sink.end()


def test_a_transaction_that_outlasts_kafkas_patience_ends_the_thread_with_a_hint() -> None:
    sink = Sink(CommitSchedule(1, 1, 0, timeout_ms=100), clock=time.monotonic)
    sink.worker.start()
    sink.put(10, end=False)
    assert sink.ended.wait(5)
    with pytest.raises(RequestRejected, match=r"transaction\.max\.timeout\.ms"):
        sink.worker.check()
    sink.worker.join(5)


def test_the_client_gets_its_turn_while_nothing_comes() -> None:
    sink = Sink(CommitSchedule(1, 1, 0, timeout_ms=None, housekeeping_s=0.01), clock=time.monotonic)
    steps: list[str] = []
    sink.broker.on_call = steps.append
    sink.worker.start()
    began = sink.worker.last_loop_at
    deadline = time.monotonic() + 5
    while len(steps) < 3:
        assert time.monotonic() < deadline, "the client got no turn"
        time.sleep(0.001)
    assert set(steps) == {"poll"}
    assert sink.worker.last_loop_at > began
    sink.end()
