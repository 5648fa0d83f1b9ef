"""The loop that owns the replication connection: rows go from the server to the sink, acknowledgements come back.

Before: `stream_startup` has everything ready: a slot that streams, a producer that owns its transactional.ids, the last
progress.
After: `supervisor`, once a stop or an error has ended the stream.

The loop decides nothing itself: it asks the policies, and passes them the time. One turn:

1. Tell the tracker what Kafka has committed since the last turn.
2. Move the snapshots of tables on.
3. Read the stream, unless a batch waits for room in the queue: then the server is answered, but not read.
4. Hand on a position without rows if the server went on without changes for this daemon (`idle_advance`).
5. Acknowledge to the server what Kafka holds, at once if that position moved (`status_updates`).
6. Wait for the server, the sink, rows of a snapshot, or the next status update.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cdcd.clock import monotonic_s, wall_us
from cdcd.daemon.idle_advance import IdleAdvance
from cdcd.daemon.server_watch import ServerWatch
from cdcd.daemon.sink_link import SinkLink
from cdcd.daemon.snapshot_pump import SnapshotPump
from cdcd.daemon.status_updates import StatusUpdates
from cdcd.daemon.stream_reader import StreamReader
from cdcd.daemon.stream_report import StreamReport
from cdcd.daemon.streaming_pause import StreamingPause
from cdcd.daemon.wiring import StreamResources
from cdcd.errors import PostgresUnavailable, StreamingResumed
from cdcd.lsn import format_lsn
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import Status
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)

PAUSED_WAIT_S: Final = 0.05
"""How long the loop waits, at most, while the stream is paused for a snapshot."""

SINK_STOP_WITHIN_S: Final = 6.0
"""How long the sink may take to finish its Kafka transaction after SIGTERM."""


class Pipeline:
    """One stream, from START_REPLICATION to its end."""

    def __init__(
        self,
        resources: StreamResources,
        status: Status,
        metrics: Metrics,
        wake: WakeupPipe,
        clock: Callable[[], float] = monotonic_s,
        wall_clock_us: Callable[[], int] = wall_us,
    ) -> None:
        """`clock` returns seconds and never goes back, `wall_clock_us` microseconds since 1970 UTC.

        `wake` ends the waiting of the loop; any thread may set it.
        """
        server, tracker = resources.server, resources.tracker
        stream, interval_s = server.stream, server.status_interval_s
        self._clock = clock
        self._wake = wake
        self._status = status
        self._stream = stream
        self._assembler = resources.assembler
        self._tracker = tracker
        self._report = StreamReport(status, metrics, wall_clock_us, resources.progress_interval_s)
        self.sink = SinkLink(resources.queue, resources.sink_worker, wake.set, clock)
        self._snapshots = SnapshotPump(
            resources.snapshots,
            stream,
            resources.assembler,
            tracker,
            self.sink,
            resources.gap_repairs,
            only=resources.only_snapshot,
            progress_interval_s=resources.progress_interval_s,
        )
        self._reader = StreamReader(
            stream,
            resources.assembler,
            resources.batches,
            tracker,
            self.sink,
            self._report,
            resources.requests,
        )
        self._idle = IdleAdvance(interval_s)
        loop_within_s = status.stages.stalled_after_s / 4
        self._updates = StatusUpdates(clock(), interval_s, server.wal_sender_timeout_s, loop_within_s)
        self._streaming_pause = StreamingPause(clock(), server.streaming_resumes_lsn)
        self._server = ServerWatch(server.session, is_standby=stream.standby, recovery_check_interval_s=interval_s)
        self._topic_watch = resources.topic_watch
        resources.registry_wait.turn = self.answer
        status.synchronous = resources.is_synchronous
        status.positions.lsn_base = server.lsn_base
        self._report.on_start(tracker.durable_lsn)
        self._report.show_depths(resources.queue, resources.spool, resources.snapshots, resources.publisher)
        self._report.on_parked(resources.publisher.parked)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Stream until `stopping()`, then finish in order. Raises the error that ended the stream, if one did."""
        self.sink.start()
        self._topic_watch.start()
        try:
            is_promoted = False
            while not (is_promoted or stopping() or self._snapshots.is_all_done):
                self.turn()
                is_promoted = self._server.is_promoted(self._clock())
            self.finish()
            if is_promoted:
                raise PostgresUnavailable(
                    "the standby was promoted, and writes on another timeline now", code="postgres-interrupted"
                )
        finally:
            self.sink.stop(0.0)
            self.sink.join(1.0)
            while (commit := self.sink.next_commit()) is not None:  # committed while the stream ended
                self._report.on_published(self._clock(), commit)
            self._report.end()

    def turn(self) -> None:
        """Do what can be done without waiting, then wait for more. Raises the error that ends the stream."""
        now = self._clock()
        reader, sink, assembler = self._reader, self.sink, self._assembler
        self._take_commits(now)
        if self._streaming_pause.is_over(now, self._tracker.durable_lsn):
            raise StreamingResumed("Kafka has the transaction that could not be spooled", code="stream-restarted")
        sink.retry()
        self._snapshots.turn(now)
        now = self._clock()  # a row may have waited for the schema registry
        pause_s = 0.0 if assembler.is_busy else reader.pause_s(now)
        if not sink.is_blocked and pause_s <= 0 and not assembler.is_paused:
            if reader.read(now, synchronous=self._status.synchronous):
                now = self._clock()  # and so may an event
                self._updates.on_data(now)
            pause_s = reader.pause_s(now)
        self._advance_idle(now)
        self._send_status(now)
        self._note_stages(now)
        self._wait_for_work(now, pause_s)

    def answer(self, wait_s: float) -> None:
        """Take commits, answer the server, and wait for `wait_s` at most, while the reading of an event has to wait.

        Nothing is read. Raises the error that ends the stream.
        """
        now = self._clock()
        self._take_commits(now)
        self._send_status(now)
        self._note_stages(now)
        update_s = self._updates.wait_s(now, reply_requested=self._assembler.reply_requested)
        self._wait(min(wait_s, update_s), is_reading=False)

    def finish(self) -> None:
        """Let the sink finish its Kafka transaction, acknowledge it, and end the stream as the protocol asks."""
        self.sink.stop(SINK_STOP_WITHIN_S)
        deadline = self._clock() + SINK_STOP_WITHIN_S + 1
        while not self.sink.join(0.0) and self._clock() < deadline:
            self._wait(0.1, is_reading=False)
            self._take_commits(self._clock())
        self._take_commits(self._clock())
        self._updates.make_due()
        self._send_status(self._clock())
        self._stream.stop()
        log.info("stopped", extra={"lsn": format_lsn(self._tracker.durable_lsn)})

    def _take_commits(self, now: float) -> None:
        while (commit := self.sink.next_commit()) is not None:
            self._tracker.on_durable(commit.result.end_lsn)
            self._server.on_commit(now)
            self._report.on_durable(commit.result.end_lsn)
            self._report.on_published(now, commit)
        self._snapshots.on_durable(self.sink.durable)
        self.sink.check()
        self._topic_watch.raise_loss()
        self._report.flush(now)

    def _advance_idle(self, now: float) -> None:
        is_due = self._assembler.reply_requested or self._idle.is_due(now, synchronous=self._is_awaited)
        if self.sink.is_blocked or not is_due:
            return
        lsn = self._tracker.idle_position()
        if lsn > self._idle.lsn and self._server.is_promoted(now, at_once=True):
            return  # the position may be one of the new timeline, and the slot record would name the old one
        if self._idle.advance(now, lsn):
            self.sink.put_position(lsn)

    @property
    def _is_awaited(self) -> bool:
        """A COMMIT, or a comparison of a table, waits for the position of the progress."""
        return self._status.synchronous or self._snapshots.awaits_progress

    def _send_status(self, now: float) -> None:
        ack = self._tracker.ack()
        answers = self._assembler.reply_requested and self._updates.may_answer(now)
        probes = self._updates.should_probe(now)
        if not (answers or probes or self._updates.is_due(now, ack)):
            return
        if answers:
            self._server.on_reply_request(
                now,
                self._status.positions.server_lsn,
                is_held_only_by_prepares=self._tracker.is_held_only_by_prepares,
            )
        # Write and apply positions are the same: whichever of them a COMMIT waits for, it waits for Kafka.
        self._stream.send_status(ack, ack, ack, probes)
        self._assembler.reply_requested = False
        self._updates.on_sent(now, ack)
        self._status.positions.acked_lsn = ack

    def _note_stages(self, now: float) -> None:
        """Note what waits at each stage, and whether it moves. Raises PostgresUnavailable if the server must stop."""
        stages, tracker, sink = self._status.stages, self._tracker, self.sink
        stages.last_loop_s = now
        # A server that was asked for a keepalive owes an answer.
        stages.server.note(now, self._updates.has_unanswered_probe, self._updates.last_data_s)
        handed_over_lsn = max(tracker.received_lsn, self._idle.lsn)
        has_work = sink.has_work or handed_over_lsn > tracker.durable_lsn
        self._server.check_shutdown(now, has_work=has_work)
        stages.sink.note(now, has_work, (tracker.durable_lsn, sink.published))

    def _wait_for_work(self, now: float, pause_s: float) -> None:
        """Wait until there is work. Without `is_reading` the server's frames stay in the socket."""
        wait_s = self._updates.wait_s(now, reply_requested=self._assembler.reply_requested)
        if self.sink.is_blocked:
            self._wait(wait_s, is_reading=False)
            return
        idle_lsn = self._tracker.idle_position()
        wait_s = min(wait_s, self._idle.wait_s(now, idle_lsn, synchronous=self._is_awaited), self._snapshots.wait_s)
        rows = self._snapshots.sockets()
        if rows and self._snapshots.may_have_more_rows:
            self._wait(0.0, is_reading=False)
        elif self._assembler.is_paused:
            self._wait(min(wait_s, PAUSED_WAIT_S), *rows, is_reading=False)
        elif self._assembler.is_busy:
            self._wait(0.0, is_reading=False)
        elif pause_s > 0:
            self._wait(min(wait_s, pause_s), *rows, is_reading=False)
        else:
            self._wait(wait_s, *rows, is_reading=True)

    def _wait(self, timeout_s: float, *sockets: int, is_reading: bool) -> None:
        ready = self._stream.wait(timeout_s, self._wake.fd, *sockets, *self._server.sockets(), reading=is_reading)
        if self._wake.fd in ready:
            self._wake.clear()
        now = self._clock()
        self._server.on_readable(now, ready)
        if not is_reading or self._stream.fileno() in ready:
            self._updates.on_data(now)
