"""The sink thread: group commit, errors handed over, and a stop that neither loses nor lingers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer, FakeReading

from cdcd.errors import KafkaUnavailable, RequestRejected, Unpublishable
from cdcd.progress.snapshot_records import COPYING, DONE, TableSnapshot
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.sink.group_commit import GroupCommit
from cdcd.sink.interfaces import Offsets
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.kafka_transaction import CommitResult
from cdcd.sink.publisher import Publisher, Source, TopicSettings
from cdcd.sink.topics import TopicNames, TopicSpec
from cdcd.sink.worker import SinkWorker

PATIENT = GroupCommit(rows_max=1_000_000, bytes_max=1 << 40, linger_ms=1 << 30, timeout_ms=1 << 30)

GATHERING = GroupCommit(rows_max=100, bytes_max=1 << 40, linger_ms=1 << 30, timeout_ms=1 << 30, gather_s=1000.0)


class Sink:
    """The thread with all that it needs, and what it told."""

    def __init__(
        self,
        policy: GroupCommit = PATIENT,
        clock: Callable[[], float] = time.monotonic,
        admin: Callable[[FakeBroker], FakeAdmin] = FakeAdmin,
    ) -> None:
        self.broker = FakeBroker()
        self.events_max = 5_000
        self.producer = FakeProducer(self.broker, "id")
        self.producer.start(lambda: False)
        source = Source("s", "1", 1)
        publisher = Publisher(self.producer, admin(self.broker), TopicNames("p"), TopicSettings(1, 1), source, None)
        self.handover = BatchQueue(100, 1 << 30, lambda: None)
        self.durable: list[CommitResult] = []
        self.told = threading.Event()
        self.ended = threading.Event()
        self.thread = SinkWorker(publisher, policy, self.handover, self._on_durable, self.ended.set, clock)
        self.builder = BatchBuilder(tombstones=False)
        self.table = self.builder.open_table("public", "t")

    def _on_durable(self, durable: CommitResult, seconds: float) -> None:
        assert seconds >= 0
        self.durable.append(durable)
        self.told.set()

    def put(self, lsn: int, *, end: bool = True, far: bool = False, flowing: bool = False) -> None:
        self.builder.begin(lsn, 1)
        self.builder.add(self.table, ord("c"), b"k", b"%d" % lsn)
        if end:
            self.builder.commit(lsn + 1)
        batch = self.builder.take()
        batch.far, batch.flowing = far, flowing
        assert self.handover.put(batch)

    def copied(self, state: str, *, rows: int = 0, end_lsn: int = 0) -> Batch:
        """A batch of the copy of `table`: what is set aside meanwhile can be replayed from then on."""
        self.thread._publisher._parked._reader = KafkaParkedReader(
            FakeReading(self.broker, "p.parked"),
            self.events_max,  # type: ignore[arg-type]
        )
        for _ in range(rows):
            self.builder.add(self.table, ord("r"), b"k", b"copied")
        batch = self.builder.take()
        batch.copies = [TableSnapshot("s", "p.public.t", "public", "t", state, 10)]
        batch.end_lsn = end_lsn
        return batch

    def wait(self, end_lsn: int) -> None:
        while not self.durable or self.durable[-1].end_lsn < end_lsn:
            assert self.told.wait(5), "nothing became durable"
            self.told.clear()

    def end(self) -> None:
        self.thread.stop(5)
        assert self.thread.join(5)

    def rows(self) -> list[bytes | None]:
        return [seen.value for seen in self.broker.visible("p.public.t")[0]]


def test_a_lone_transaction_is_durable_at_once_though_all_bounds_are_far() -> None:
    sink = Sink()
    sink.thread.start()
    sink.put(10)
    sink.wait(11)
    sink.put(20)
    sink.wait(21)
    assert [durable.end_lsn for durable in sink.durable] == [11, 21]
    sink.end()


def test_what_comes_while_a_transaction_gathers_goes_along() -> None:
    now = 0.0
    policy = replace(GATHERING, gather_s=0.01)
    sink = Sink(policy, clock=lambda: now)
    sink.put(10)
    assert sink.thread.step()
    sink.put(20)
    now = 0.009
    assert sink.thread.step()
    assert not sink.durable
    now = 0.01
    assert sink.thread.step()
    assert [durable.transactions for durable in sink.durable] == [2]


def test_a_transaction_that_gathers_waits_no_longer_than_that() -> None:
    policy = replace(GATHERING, gather_s=0.05)
    sink = Sink(policy)
    waits: list[float] = []
    take = sink.handover.take
    sink.handover.take = lambda wait_s, **more: waits.append(wait_s) or take(0.0, **more)  # type: ignore[method-assign,func-returns-value]
    sink.put(10)
    for _ in range(2):
        assert sink.thread.step()
    assert 0 < waits[1] <= 0.05
    time.sleep(0.05)
    assert sink.thread.step()
    assert waits[2] == 0
    assert sink.durable


def test_rows_of_a_snapshot_join_nothing_that_gathers() -> None:
    sink = Sink(GATHERING)
    sink.put(10)
    batch = sink.copied(COPYING, rows=3)
    assert sink.handover.put(batch)
    assert sink.thread.step()
    assert [durable.rows for durable in sink.durable] == [1]


def test_what_gathers_is_committed_before_a_transaction_whose_end_is_not_here() -> None:
    sink = Sink(GATHERING)
    sink.put(10)
    assert sink.thread.step()
    assert not sink.durable
    sink.put(20, end=False)
    assert sink.thread.step()
    assert [durable.end_lsn for durable in sink.durable] == [11], "the progress is not open as long as that one"


def test_a_row_that_is_refused_while_its_transaction_gathers_names_its_table() -> None:
    sink = Sink(GATHERING)

    def serve() -> None:
        raise Unpublishable("too large", "", topic="p.public.t")

    sink.producer.serve = serve  # type: ignore[method-assign]
    sink.put(10)
    assert sink.thread.step()
    sink.handover.take = lambda *_, **__: None  # type: ignore[method-assign,assignment]
    assert not sink.thread.step()
    with pytest.raises(Unpublishable) as caught:
        sink.thread.check()
    assert caught.value.table == ("public", "t")


def test_a_stop_commits_what_still_gathers() -> None:
    sink = Sink(GATHERING)
    sink.thread.start()
    sink.put(10)
    sink.end()
    assert [durable.end_lsn for durable in sink.durable] == [11]


def test_a_commit_says_that_it_is_under_way_until_it_tells_what_is_durable() -> None:
    sink = Sink()
    stood: list[bool] = []
    flush, commit = sink.producer.flush, sink.producer.commit

    def at_flush() -> Offsets:
        stood.append(sink.thread.committing)
        return flush()

    def at_commit() -> None:
        stood.append(sink.thread.committing)
        commit()

    sink.producer.flush, sink.producer.commit = at_flush, at_commit  # type: ignore[method-assign]
    sink.thread._on_durable = lambda *_: stood.append(sink.thread.committing)
    sink.put(10)
    assert sink.thread.step()
    assert stood == [True, True, False], "what is read from now on is in time for the next"


def test_what_the_next_transaction_takes_is_prepared_while_one_gathers() -> None:
    sink = Sink(GATHERING)
    steps: list[str] = []
    sink.broker.on_call = steps.append
    sink.put(10)
    assert sink.thread.step()
    assert "prepare" in steps
    assert "commit" not in steps


def test_a_commit_that_fails_is_not_under_way() -> None:
    sink = Sink()

    def flush() -> Offsets:
        raise KafkaUnavailable("gone")

    sink.producer.flush = flush  # type: ignore[method-assign]
    sink.put(10)
    assert not sink.thread.step()
    assert not sink.thread.committing


def test_what_waits_shares_a_kafka_transaction() -> None:
    sink = Sink()
    for lsn in range(10, 60, 10):
        sink.put(lsn)
    sink.thread.start()
    sink.wait(51)
    assert [durable.transactions for durable in sink.durable] == [5]
    sink.end()


def test_what_was_committed_does_not_wait_for_the_rows_of_a_snapshot_behind_it() -> None:
    sink = Sink()
    sink.put(10)
    for number in range(3):
        sink.builder.add(sink.table, ord("r"), b"k", b"copied %d" % number)
        batch = sink.builder.take()
        batch.copies = []
        assert sink.handover.put(batch)
    sink.thread.start()
    sink.wait(11)
    while len(sink.durable) < 2:
        assert sink.ended.wait(0.01) is False
    assert [(durable.transactions, durable.rows) for durable in sink.durable] == [(1, 1), (0, 3)]
    sink.end()


def test_a_replay_takes_turns_with_the_stream_and_what_is_copied_stands_behind_it() -> None:
    sink = Sink(GroupCommit(rows_max=1, bytes_max=1 << 40, linger_ms=0, timeout_ms=1 << 30))
    sink.events_max = 1
    publisher = sink.thread._publisher
    other = sink.builder.open_table("public", "u")
    assert sink.handover.put(sink.copied(COPYING, end_lsn=5))
    for lsn in (20, 30, 40):
        sink.put(lsn)  # set aside
    assert sink.handover.put(sink.copied(DONE))
    for lsn in (50, 60):
        sink.builder.begin(lsn, 1)
        sink.builder.add(other, ord("c"), b"k", b"%d" % lsn)
        sink.builder.commit(lsn + 1)
        assert sink.handover.put(sink.builder.take())
    assert sink.handover.put(sink.copied(COPYING, rows=1))
    while sink.handover.waiting or publisher.unparking or publisher.open:
        assert sink.thread.step()
    rows = [
        record.value
        for transaction in sink.broker.committed
        for record in transaction.records
        if record.topic.startswith("p.public.")
    ]
    assert rows == [b"20", b"50", b"30", b"60", b"40", b"copied"]


def test_rows_of_a_snapshot_that_come_while_a_flow_is_waited_for_stand_behind_a_replay() -> None:
    sink = Sink()
    publisher = sink.thread._publisher
    other = sink.builder.open_table("public", "u")
    assert sink.handover.put(sink.copied(COPYING, end_lsn=5))
    sink.put(20)  # set aside
    assert sink.handover.put(sink.copied(DONE))
    sink.builder.begin(30, 1)
    sink.builder.add(other, ord("c"), b"k", b"30")
    sink.builder.commit(31)
    flow = sink.builder.take()
    flow.flowing = True
    assert sink.handover.put(flow)
    while sink.handover.waiting or publisher.open is None:
        assert sink.thread.step()
    begun = [sink.copied(COPYING, rows=1)]

    def comes_meanwhile(wait_s: float, *, copies: bool = True) -> Batch | None:
        while begun:
            assert sink.handover.put(begun.pop())
        return BatchQueue.take(sink.handover, wait_s, copies=copies)

    sink.handover.take = comes_meanwhile  # type: ignore[method-assign]
    while begun or sink.handover.waiting or publisher.unparking or publisher.open:
        assert sink.thread.step()
    assert sink.rows() == [b"20", b"copied"]


def test_a_bound_ends_a_kafka_transaction_within_a_backlog() -> None:
    sink = Sink(GroupCommit(rows_max=2, bytes_max=1 << 40, linger_ms=1 << 30, timeout_ms=1 << 30))
    for lsn in range(10, 60, 10):
        sink.put(lsn)
    sink.thread.start()
    sink.wait(51)
    assert [durable.transactions for durable in sink.durable] == [2, 2, 1]
    sink.end()


def test_a_piece_waits_for_the_rest() -> None:
    sink = Sink()
    sink.thread.start()
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
    sink.put(30, end=False, far=True)
    sink.put(30, end=False, far=True)
    sink.thread.start()
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
    sink.thread.start()
    assert not sink.told.wait(0.1)
    sink.put(20)
    sink.wait(21)
    assert [durable.transactions for durable in sink.durable] == [2]
    sink.end()


def test_a_flow_shares_a_kafka_transaction_until_it_ends_or_a_bound_is_reached() -> None:
    sink = Sink(GroupCommit(rows_max=3, bytes_max=1 << 40, linger_ms=1 << 30, timeout_ms=1 << 30))
    for lsn in (10, 20, 30, 40):  # turn by turn: nothing ever waits
        sink.put(lsn, flowing=True)
        assert sink.thread.step()
    assert [durable.transactions for durable in sink.durable] == [3]
    assert sink.thread.step()  # nothing came for a while
    assert [durable.transactions for durable in sink.durable] == [3, 1]
    sink.thread.stop(5)


def test_a_large_transaction_whose_end_is_here_shares_a_kafka_transaction_too() -> None:
    sink = Sink()
    for lsn in (10, 20, 30):
        sink.put(lsn, end=False)
        sink.put(lsn)
    sink.thread.start()
    sink.wait(31)
    assert [durable.transactions for durable in sink.durable] == [3]
    sink.end()


def test_an_idle_position_becomes_durable() -> None:
    sink = Sink()
    sink.thread.start()
    idle = Batch()
    idle.end_lsn = 99
    sink.handover.put(idle)
    sink.wait(99)
    assert sink.durable[0].rows == 0
    sink.end()


def test_an_error_is_handed_over_and_ends_the_thread() -> None:
    sink = Sink()

    def fail(step: str) -> None:
        if step == "commit":
            raise KafkaUnavailable("gone")

    sink.broker.on_call = fail
    sink.thread.start()
    sink.thread.check()
    sink.put(10)
    assert sink.ended.wait(5)
    assert sink.thread.join(5)
    with pytest.raises(KafkaUnavailable, match="gone"):
        sink.thread.check()
    assert not sink.handover.put(Batch()), "nobody takes any more"
    assert sink.durable == []


def test_an_error_that_nobody_foresaw_is_handed_over_too(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()

    def fail(step: str) -> None:
        raise ZeroDivisionError

    sink.broker.on_call = fail
    sink.thread.start()
    sink.put(10)
    assert sink.thread.join(5)
    with pytest.raises(ZeroDivisionError):
        sink.thread.check()
    assert "nobody foresaw" in caplog.text


def test_a_stop_on_an_idle_thread_is_immediate() -> None:
    sink = Sink()
    sink.thread.start()
    began = time.monotonic()
    sink.end()
    assert time.monotonic() - began < 0.5
    sink.thread.check()


def test_a_stop_begins_no_kafka_transaction() -> None:
    sink = Sink()
    sink.put(10)
    sink.thread.stop(5)
    sink.thread.start()
    assert sink.thread.join(5)
    assert sink.durable == []


def test_a_stop_within_a_backlog_commits_what_was_published_of_it() -> None:
    sink = Sink()
    go_on = stop_while_producing(sink, nth=2)
    for lsn in range(10, 60, 10):
        sink.put(lsn)
    sink.thread.start()
    go_on()
    assert sink.thread.join(5)
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
        sink.thread.stop(5)
        stopped.set()

    sink.broker.on_call = pause
    return stop


def test_a_stop_within_a_transaction_publishes_what_waits_until_its_end() -> None:
    sink = Sink()
    go_on = stop_while_producing(sink, nth=1)
    sink.put(10, end=False)
    sink.put(10)
    sink.put(20)
    sink.thread.start()
    go_on()
    assert sink.thread.join(5)
    assert [durable.end_lsn for durable in sink.durable] == [11]
    assert sink.rows() == [b"10", b"10"]


def test_a_stop_within_a_transaction_that_does_not_end_aborts_it() -> None:
    sink = Sink()
    sink.thread.start()
    sink.put(10, end=False)
    while sink.handover.waiting:
        time.sleep(0.001)
    time.sleep(0.05)
    sink.end()
    sink.thread.check()
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
            raise KafkaUnavailable("gone")

    sink.broker.on_call = fail
    sink.put(10)
    sink.thread.start()
    go_on()
    assert sink.thread.join(5)
    sink.thread.check()
    assert sink.durable == []
    assert "will be sent again: gone" in caplog.text


def test_a_stop_hurries_a_question_about_topics(caplog: pytest.LogCaptureFixture) -> None:
    asked, hurried = threading.Event(), threading.Event()

    class SilentAdmin(FakeAdmin):
        def ensure(self, *specs: TopicSpec) -> list[int]:
            if specs[0].name == "p.public.t":
                asked.set()
                assert hurried.wait(5)
                raise KafkaUnavailable("no answer in time")
            return super().ensure(*specs)

        def hurry(self, within_s: float) -> None:
            hurried.set()

    sink = Sink(admin=SilentAdmin)
    sink.thread.start()
    sink.put(10)
    assert asked.wait(5)
    sink.thread.stop(0.0)
    assert sink.thread.join(1.0)
    sink.thread.check()
    assert "nobody foresaw" not in caplog.text


def test_without_transactions_a_large_one_may_take_as_long_as_it_takes() -> None:
    policy = GroupCommit(rows_max=1, bytes_max=1, linger_ms=0, timeout_ms=None)
    sink = Sink(policy, clock=iter(range(0, 10**9, 10**6)).__next__)
    sink.thread.start()
    sink.put(10, end=False)
    sink.put(10)
    sink.wait(11)
    sink.end()


def test_a_transaction_that_outlasts_kafkas_patience_ends_the_thread_with_the_cure() -> None:
    sink = Sink(GroupCommit(rows_max=1, bytes_max=1, linger_ms=0, timeout_ms=100))
    sink.thread.start()
    sink.put(10, end=False)
    assert sink.ended.wait(5)
    with pytest.raises(RequestRejected, match=r"transaction\.max\.timeout\.ms"):
        sink.thread.check()
    sink.thread.join(5)


def test_the_client_gets_its_turn_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdcd.sink.worker._HOUSEKEEPING_S", 0.01)
    sink = Sink()
    steps: list[str] = []
    sink.broker.on_call = steps.append
    sink.thread.start()
    began = sink.thread.turned_at
    deadline = time.monotonic() + 5
    while len(steps) < 3:
        assert time.monotonic() < deadline, "the client got no turn"
        time.sleep(0.001)
    assert set(steps) == {"serve"}
    assert sink.thread.turned_at > began
    sink.end()
