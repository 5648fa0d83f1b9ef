"""The pump on a played coordinator: it does what an action says, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, cast

import pytest

from cdcd.daemon.sink_link import SinkLink
from cdcd.daemon.snapshot_coordinator import NOTHING, Action, Finished, Room, SnapshotState
from cdcd.daemon.snapshot_pump import OUT_OF_HOURS, PAUSED, QUEUED_BYTES_MAX, SnapshotPump
from cdcd.progress.ack_tracker import AckTracker
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import Batch


class PlayedCoordinator:
    """Returns the action that a test puts in, and notes the room that it was given."""

    may_have_more_rows = False
    is_paused = False
    is_out_of_hours = False
    wait_s = inf

    def __init__(self) -> None:
        self.state = SnapshotState.READING
        self.action = NOTHING
        self.room: Room | None = None

    def turn(self, now: float, room: Room) -> Action:
        self.room = room
        action, self.action = self.action, NOTHING
        return action

    def sockets(self) -> list[int]:
        return [42] if self.state is SnapshotState.READING else []


class PlayedAssembler:
    is_paused = False

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def pause_before(self, lsn: int) -> None:
        self._done.append(f"pause before {lsn}")

    def resume(self) -> None:
        self._done.append("resume")


class PlayedStream:
    def __init__(self, done: list[str]) -> None:
        self._done = done

    def send_status(self, written: int, flushed: int, applied: int, reply: bool = False) -> None:
        self._done.append(f"status {flushed} reply={reply}")


class PlayedGapRepairs:
    waits = False
    batch: Batch | None = None

    def turn(self) -> Batch | None:
        batch, self.batch = self.batch, None
        return batch


class PlayedWorker:
    durable = 0

    def __init__(self, *_: Any) -> None:
        pass


class Played:
    def __init__(self, *, only: bool = False) -> None:
        self.done: list[str] = []
        self.coordinator = PlayedCoordinator()
        self.gap_repairs = PlayedGapRepairs()
        self.queue = BatchQueue(64, 1 << 30, lambda: None)
        self.tracker = AckTracker(100, 100)
        self.sink = SinkLink(self.queue, cast("Callable[..., Any]", PlayedWorker), lambda: None, lambda: 0.0)
        self.pump = SnapshotPump(
            cast("Any", self.coordinator),
            cast("Any", PlayedStream(self.done)),
            cast("Any", PlayedAssembler(self.done)),
            self.tracker,
            self.sink,
            cast("Any", self.gap_repairs),
            only=only,
        )

    def turn(self, action: Action = NOTHING) -> None:
        self.coordinator.action = action
        self.pump.turn(1000.0)


def large(size: int) -> Batch:
    batch = Batch()
    batch.bytes = size
    return batch


def test_the_stream_pauses_and_the_server_is_asked_how_far_it_is() -> None:
    it = Played()
    it.turn(Action(pause_before_lsn=500, requests_keepalive=True))
    assert it.done == ["pause before 500", "status 100 reply=True"]


def test_the_loop_waits_for_the_limit_only_where_rows_are_welcome() -> None:
    it = Played()
    assert it.pump.wait_s == inf
    it.coordinator.wait_s = 0.25
    assert it.pump.wait_s == 0.25
    it.sink.put(large(QUEUED_BYTES_MAX))
    assert it.pump.wait_s == inf, "it would spin, because nothing is read meanwhile"


def test_the_log_says_that_the_snapshots_are_paused_and_a_run_for_them_alone_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    it = Played(only=True)
    it.coordinator.state, it.coordinator.is_paused = SnapshotState.IDLE, True
    it.turn()
    it.turn()
    assert [record.message for record in caplog.records] == [PAUSED]
    assert not it.pump.is_all_done
    it.coordinator.is_paused = False
    it.turn()
    assert caplog.records[-1].message == "the snapshots are resumed"
    assert it.pump.is_all_done
    it.coordinator.is_out_of_hours = True
    it.turn()
    assert caplog.records[-1].message == OUT_OF_HOURS
    assert not it.pump.is_all_done
    it.coordinator.is_out_of_hours = False
    it.turn()
    assert caplog.records[-1].message == "the hours of snapshots have begun"


def test_what_a_comparison_records_is_handed_on_without_a_position() -> None:
    it = Played()
    it.tracker.on_keepalive(700)
    it.gap_repairs.batch = batch = Batch()
    it.turn()
    assert it.queue.has_batch
    assert batch.end_lsn == 0


def test_while_a_comparison_waits_for_the_progress_the_server_is_asked_how_far_it_is_and_not_in_every_turn() -> None:
    it = Played()
    it.gap_repairs.waits = True
    it.turn()
    it.turn()
    assert it.pump.awaits_progress
    assert it.done == ["status 100 reply=True"]


def test_the_first_batch_ends_where_the_server_is_and_the_stream_goes_on() -> None:
    it = Played()
    it.tracker.on_keepalive(700)
    batch = Batch()
    it.turn(Action(consistent_lsn=500, resumes=True, batch=batch))
    assert it.done == ["resume"]
    assert it.queue.has_batch
    assert batch.end_lsn == 700
    later = Batch()
    it.turn(Action(batch=later))
    assert later.end_lsn == 0, "rows of a snapshot end no transaction"


def test_an_idle_server_counts_as_being_at_the_consistent_point() -> None:
    it = Played()
    batch = Batch()
    it.turn(Action(consistent_lsn=500, batch=batch))
    assert batch.end_lsn == 500


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    log = logging.getLogger("cdcd.daemon.snapshot_pump")
    handler, level = Records(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler.records
    log.removeHandler(handler)
    log.setLevel(level)


def test_a_snapshot_is_complete_when_kafka_has_its_last_batch(logged: list[logging.LogRecord]) -> None:
    it = Played()
    it.turn(Action(batch=Batch()))
    it.turn(Action(batch=Batch(), finished=Finished(0x500, 2, 30)))
    it.pump.on_durable(1)
    assert logged == []
    it.pump.on_durable(2)
    it.pump.on_durable(3)
    [record] = logged
    assert record.getMessage() == "the snapshot is complete"
    assert record.__dict__["lsn"] == "0/500"
    assert (record.__dict__["tables"], record.__dict__["rows"]) == (2, 30)


def test_rows_are_wanted_while_little_waits_for_the_sink() -> None:
    it = Played()
    assert it.pump.wants_rows
    assert it.pump.sockets() == [42]
    it.sink.put(large(QUEUED_BYTES_MAX))
    assert not it.pump.wants_rows
    assert it.pump.sockets() == []
    assert it.pump.accepts_batch
    assert not it.pump.is_sink_idle


def test_where_only_snapshots_are_wanted_they_may_fill_the_queue_and_end_the_stream() -> None:
    it = Played(only=True)
    it.sink.put(large(QUEUED_BYTES_MAX))
    assert it.pump.wants_rows
    assert not it.pump.is_all_done
    it.coordinator.state = SnapshotState.IDLE
    assert not it.pump.is_all_done, "Kafka does not have the last batch"
    it.sink.worker.durable = 1
    assert it.pump.is_all_done
    other = Played()
    other.coordinator.state = SnapshotState.IDLE
    assert not other.pump.is_all_done
