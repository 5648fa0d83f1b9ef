"""Wires the rooms, moves what one gives to the next, and closes the loop from Kafka's commits to the server's slot.

Before: `stream_startup` has everything ready: a slot that streams, a producer that owns its transactional.ids, the last
progress. After: nothing; this is where the flow runs until it is stopped or an error ends it.

It decides nothing itself: `pacing` says when to read, `assembler` what is a transaction, `ack_tracker` what may be
acknowledged, `group_commit` when to commit. One turn of the loop:

1. what the sink made durable goes to the tracker;
2. frames become a batch, unless the last one still waits for room: then the server is answered, but not read;
3. a server that moved on without anything for us gets a slot record of its own, at most one a status interval
   (but soon, if a COMMIT somewhere waits for us as its synchronous standby);
4. the server is told what is durable, at once when that moved;
5. wait: for the server, for the sink, or for the next status; never for so long that it looks like a stall.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from cdcd.clock import monotonic_s, wall_us
from cdcd.daemon.shutdown_policy import ShutdownDetector
from cdcd.daemon.stream_startup import StreamResources
from cdcd.errors import PostgresUnavailable
from cdcd.lsn import format_lsn
from cdcd.monitoring.log_setup import Summary
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import QueueDepths, Status
from cdcd.pgoutput.messages import COMMIT_PREPARED, PREPARE
from cdcd.progress.daemon_requests import to_copy
from cdcd.progress.records import ParkedTable
from cdcd.sink.batches import Batch
from cdcd.sink.kafka_transaction import CommitResult
from cdcd.sink.worker import SinkWorker
from cdcd.source.liveness import ServerLiveness
from cdcd.source.read_pacing import ReadPacing
from cdcd.terminal.progress_bar import COPY_FIRST_S, ProgressBar, SnapshotBar
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)

FRAMES_MAX: Final = 5_000
READ_BYTES_MAX: Final = 2 << 20
"""What one turn takes from the socket: more than comes in an interval of `pacing` and the time a busy machine adds to
it, or these would bound the rate; and so little that answers to the server and to the sink are never late."""

COPIES_WAITING_BYTES: Final = 1 << 20
"""What may wait for the sink when rows of a snapshot are added: the stream's rows wait behind it."""

REPLY_INTERVAL_S: Final = 0.01
"""A server that shuts down asks for a reply with every keepalive, 25,000 a second; it gets this many."""

SYNCHRONOUS_IDLE_S: Final = 0.01
"""Between two slot records without rows, at least, while COMMITs wait for us; else the status interval."""

_ASK_S: Final = 0.05

SHUTDOWN_WAITS_S: Final = 1.0
"""How long a server that shuts down waits for the end of a prepared transaction, which can take days, before we go."""

SHUTDOWN_WAITS_FOR_KAFKA_S: Final = 5.0
"""How long a server that shuts down waits for a Kafka that takes nothing, before we go: it sends the rest again."""

ASK_AFTER_S: Final = 30.0
"""A server that has been silent for so long is asked for an answer: silence alone says nothing about it."""

STOP_WITHIN_S: Final = 6.0
"""What the sink may take to finish its open Kafka transaction after SIGTERM."""


class Pipeline:
    """One stream, from START_REPLICATION to its end."""

    def __init__(self, opened: StreamResources, status: Status, metrics: Metrics, wake: WakeupPipe) -> None:
        self._walsender = opened.walsender
        self._session = opened.session
        self._left_s = 0.0
        """When the server ended our session, or Kafka took something after that; 0: the server is not going."""
        self._assembler = opened.assembler
        self._batches = opened.batches
        self._tracker = opened.tracker
        self._handover = opened.handover
        self._sink = SinkWorker(opened.publisher, opened.policy, opened.handover, self._on_durable, wake.set)
        # A Unix socket holds too little for pauses to pay.
        self._pacing = ReadPacing(0.0) if opened.walsender.local else ReadPacing()
        self._status_interval_s = opened.status_interval_s
        self._status = status
        status.synchronous = opened.synchronous
        self._server_stage = status.stages.server
        self._sink_stage = status.stages.sink
        status.depths = self._depths
        status.parked = _reasons(opened.publisher.parked)
        self._spool = opened.spool
        self._metrics = metrics
        self._wake = wake
        self._news: deque[tuple[CommitResult, float]] = deque()
        self._pending: Batch | None = None
        self._handed_over = 0
        self._open = False
        self._oldest: deque[tuple[int, int]] = deque()
        self._idle_lsn = 0
        self._idled_s = -inf
        """When a position without rows was handed over last."""
        self._told_lsn = -1
        self._told_s = 0.0
        self._standing_s = 0.0
        """When a standby was asked last whether it still is one."""
        self._copying = opened.copying
        self._only_copies = opened.only_copies
        self._whole: tuple[int, dict[str, object]] | None = None
        """The batch that ends a snapshot, and what is to be told of that when Kafka has it."""
        self._asked_s = 0.0
        self._insistence = ShutdownDetector()
        self._turn_within_s = min(ASK_AFTER_S, status.stages.stalled_after_s / 4)
        self._silence = ServerLiveness(monotonic_s(), opened.wal_sender_timeout_s, self._turn_within_s)
        self._summary = Summary(log, "published")
        self._bar = ProgressBar(sys.stderr)
        self._copied = self._rows_copied()

    def run(self, stopping: Callable[[], bool]) -> None:
        """Stream until `stopping()`, then finish in order. Raises whatever error ended the stream."""
        self._sink.start()
        try:
            promoted = False
            while not (promoted or stopping() or self._copied_all()):
                self._turn()
                promoted = self._promoted()
            self._finish()
            if promoted:
                raise PostgresUnavailable("the standby was promoted: what it writes now is on another timeline")
        finally:
            self._sink.stop(0.0)
            self._sink.join(1.0)
            while self._news:  # committed while the stream ended: it counts all the same
                durable, seconds = self._news.popleft()
                self._note_published(durable, seconds, monotonic_s())

    def _promoted(self) -> bool:
        """Whether the server was a standby, and is none any more: its walsenders go on as if nothing had happened."""
        now = monotonic_s()
        if not self._walsender.standby or now - self._standing_s < self._status_interval_s:
            return False
        self._standing_s = now
        return self._session.rows("SELECT pg_catalog.pg_is_in_recovery()") == [(False,)]

    def _turn(self) -> None:
        now = monotonic_s()
        self._take_news(now)
        if self._pending is not None and self._handover.put(self._pending):
            self._pending = None
        self._copying.look(now)
        if not self._copying.ended:
            self._copy(now)
        pause_s = 0.0 if self._assembler.is_busy else self._pause_s(now)
        if self._pending is None and pause_s <= 0 and not self._assembler.is_paused:
            self._read(now)
            pause_s = self._pause_s(now)
        self._offer_idle(now)
        self._tell(now)
        self._note_progress(now)
        timeout_s = min(self._turn_within_s, max(0.0, self._told_s + self._status_interval_s - now))
        if self._pending is None and self._tracker.idle_position() > self._idle_lsn:
            timeout_s = min(timeout_s, max(0.0, self._idle_due_s - now))
        if self._assembler.reply_requested:
            timeout_s = min(timeout_s, REPLY_INTERVAL_S)
        copies = self._copying.readable() if self._copies_fit() else []
        if self._pending is not None:
            self._wait(timeout_s, reading=False)
        elif copies and self._copying.flowing:
            self._wait(0.0, reading=False)
        elif self._assembler.is_paused:
            self._wait(min(timeout_s, _ASK_S), *copies, reading=False)
        elif self._assembler.is_busy:
            self._wait(0.0, reading=False)
        elif pause_s > 0:
            self._wait(min(timeout_s, pause_s), *copies, reading=False)
        else:
            self._wait(timeout_s, *copies, reading=True)

    def _pause_s(self, now: float) -> float:
        return self._pacing.pause_s(now, commit_in_progress=self._sink.committing)

    def _wait(self, timeout_s: float, *more: int, reading: bool) -> None:
        ready = self._walsender.wait(timeout_s, self._wake.fd, *more, *self._session.sockets(), reading=reading)
        if self._wake.fd in ready:
            self._wake.clear()
        if self._session.ended(ready):
            self._left_s = monotonic_s()
        if not reading or self._walsender.fileno() in ready:
            self._silence.on_data(monotonic_s())

    # The copies of tables

    def _copy(self, now: float) -> None:
        """Bring the stream to the snapshot, and publish the next of its rows."""
        copying = self._copying
        copying.advance(self._assembler)
        if not copying.lsn or copying.ended:
            return
        if copying.begun:
            if self._copies_fit():
                self._hand_over_copies(now)
        elif self._assembler.is_paused and self._pending is None:
            self._tracker.on_keepalive(copying.lsn)
            # Nothing was committed for us from the snapshot up to what was heard of.
            self._hand_over_copies(now, self._tracker.server_position)
        elif now - self._asked_s >= _ASK_S:
            # An idle server tells only every so often how far it is.
            self._asked_s = now
            ack = self._tracker.ack()
            self._walsender.send_status(ack, ack, ack, reply=True)

    def _copied_all(self) -> bool:
        """Nothing but copies is wanted, and Kafka has them."""
        whole = self._only_copies and self._copying.ended and self._pending is None
        return whole and self._sink.durable == self._handed_over

    def _copies_fit(self) -> bool:
        room = self._only_copies or self._handover.bytes < COPIES_WAITING_BYTES
        return self._copying.begun and self._pending is None and room

    def _hand_over_copies(self, now: float, lsn: int = 0) -> None:
        batch = self._copying.step(self._assembler, now, hungry=not self._handover.waiting)
        if batch is not None:
            if batch.rows:
                self._copied.add(now, {"rows": batch.rows}, self._copying.left(now))
            batch.end_lsn = lsn
            self._hand_over(batch)
        if self._copying.whole is not None:
            self._whole = self._handed_over, self._copying.whole
            self._copying.whole = None
            self._copied = self._rows_copied()

    def _rows_copied(self) -> SnapshotBar | Summary:
        """What tells of one snapshot on its way."""
        return SnapshotBar(self._bar) if self._bar.on else Summary(log, "copied", 5.0, COPY_FIRST_S)

    # From the server to the sink

    def _read(self, now: float) -> None:
        if self._assembler.is_busy:
            self._assembler.proceed()
        else:
            frames = self._walsender.read(FRAMES_MAX, READ_BYTES_MAX)
            size_bytes = self._walsender.read_bytes
            self._pacing.note_read(now, len(frames), size_bytes)
            if not frames:
                return
            self._silence.on_data(now)
            self._metrics.received(size_bytes)
            self._assembler.feed(frames)
        self._collect()

    def _collect(self) -> None:
        """Hand on what the assembler made of the frames, and tell the tracker."""
        batch = self._batches.take()
        # A COMMIT that waits for us waits for nothing that comes after it.
        batch.far = batch.open and (self._status.synchronous or self._assembler.commit_is_distant)
        batch.flowing = self._pacing.has_backlog and not self._status.synchronous
        for content in batch.requests:
            wanted = to_copy(content)
            if wanted is not None:
                self._copying.want(*wanted)
        if batch.rows or self._open:
            if batch.transactions:
                self._tracker.on_received(batch.end_lsn)
                self._oldest.append((batch.end_lsn, batch.first_commit_ts))
                self._status.positions.oldest_pending_us = self._oldest[0][1]
            if batch.rows or batch.transactions:
                self._hand_over(batch)
        elif self._assembler.received_lsn:
            # Nothing but empty transactions, or such as Kafka has: they need no Kafka transaction.
            self._tracker.on_skipped(self._assembler.received_lsn)
        for phase in self._assembler.prepared_outcomes:
            if phase.kind == PREPARE:
                self._tracker.on_prepare(phase.name, phase.lsn)
            elif phase.kind == COMMIT_PREPARED:
                self._tracker.on_commit_prepared(phase.name, phase.lsn)
            else:
                self._tracker.on_rollback_prepared(phase.name)
        self._assembler.prepared_outcomes.clear()
        # Last, as it is how the frames end: a transaction may have begun behind all that was prepared.
        if self._assembler.in_transaction:
            self._tracker.on_begin()
        elif self._assembler.last_idle_keepalive_lsn:
            self._tracker.on_keepalive(self._assembler.last_idle_keepalive_lsn)
        self._open = batch.open and (batch.rows > 0 or self._open)
        self._status.positions.received_lsn = self._tracker.received_lsn
        self._status.positions.server_lsn = max(self._status.positions.server_lsn, self._assembler.server_lsn)

    def _hand_over(self, batch: Batch) -> None:
        self._handed_over += 1
        if not self._handover.put(batch):
            self._pending = batch

    @property
    def _idle_due_s(self) -> float:
        return self._idled_s + (SYNCHRONOUS_IDLE_S if self._status.synchronous else self._status_interval_s)

    def _offer_idle(self, now: float) -> None:
        if self._pending is not None or not (now >= self._idle_due_s or self._assembler.reply_requested):
            return
        lsn = self._tracker.idle_position()
        if lsn > self._idle_lsn:
            batch = Batch()
            batch.end_lsn = lsn
            self._hand_over(batch)
            self._idle_lsn = lsn
            self._idled_s = now

    # From the sink to the server

    def _on_durable(self, durable: CommitResult, seconds: float) -> None:
        """Called in the sink thread."""
        self._metrics.transaction(monotonic_s() - durable.opened_at)
        self._news.append((durable, seconds))
        self._wake.set()

    def _take_news(self, now: float) -> None:
        while self._news:
            durable, seconds = self._news.popleft()
            self._tracker.on_durable(durable.end_lsn)
            if self._left_s:
                self._left_s = now
            while self._oldest and self._oldest[0][0] <= durable.end_lsn:
                self._oldest.popleft()
            self._status.positions.oldest_pending_us = self._oldest[0][1] if self._oldest else 0
            self._note_published(durable, seconds, now)
        if self._whole is not None and self._sink.durable >= self._whole[0]:
            log.info("the snapshot is whole", extra=self._whole[1])
            self._whole = None
        self._sink.check()
        self._summary.flush(now)

    def _tell(self, now: float) -> None:
        ack = self._tracker.ack()
        due = now - self._told_s >= self._status_interval_s
        asked = self._assembler.reply_requested and now - self._told_s >= REPLY_INTERVAL_S
        if self._silence.is_dead(now):
            raise PostgresUnavailable(
                f"PostgreSQL has been silent for {self._silence.timeout_s:.0f} s, and does not answer"
            )
        asking = self._silence.should_probe(now)
        if ack == self._told_lsn and not (due or asked or asking):
            return
        if asked:
            insisting_s = self._insistence.asked(now, self._status.positions.server_lsn)
            if insisting_s > SHUTDOWN_WAITS_S and self._tracker.is_held_only_by_prepares:
                raise PostgresUnavailable(
                    "PostgreSQL is shutting down, and would wait for a prepared transaction to end"
                )
        # Write and apply positions are the same: whoever waits for any of them waits for Kafka.
        self._walsender.send_status(ack, ack, ack, asking)
        self._assembler.reply_requested = False
        self._told_lsn = ack
        self._told_s = now
        self._status.positions.acked_lsn = ack

    def _note_progress(self, now: float) -> None:
        """Say what waits at each stage, and whether it moves."""
        self._status.stages.last_loop_s = now
        # The server has something to say at any time, once it was asked.
        self._server_stage.note(now, self._silence.has_unanswered_probe, self._silence.last_data_s)
        tracker, sink = self._tracker, self._sink
        handed_lsn = max(tracker.received_lsn, self._idle_lsn)
        waits = self._pending is not None or self._handover.waiting or handed_lsn > tracker.durable_lsn
        if self._left_s and waits and now - self._left_s > SHUTDOWN_WAITS_FOR_KAFKA_S:
            self._leave()
        self._sink_stage.note(now, waits, (tracker.durable_lsn, sink.published))

    def _leave(self) -> None:
        """Raises PostgresUnavailable if the server lets nobody in any more; else only our session was ended."""
        try:
            self._session.rows("SELECT 1")
        except PostgresUnavailable as error:
            raise PostgresUnavailable("PostgreSQL is shutting down, and Kafka does not take what is left") from error
        self._left_s = 0.0

    def _depths(self) -> QueueDepths:
        """For any thread."""
        return QueueDepths(
            queue_batches=self._handover.batches,
            queue_bytes=self._handover.bytes,
            spool_transactions=self._spool.transactions,
            spool_memory_bytes=self._spool.memory_bytes,
            spool_disk_bytes=self._spool.disk_bytes,
            snapshot_tables=self._copying.tables_left,
            snapshot_bytes=self._copying.bytes_left,
        )

    def _note_published(self, durable: CommitResult, seconds: float, now: float) -> None:
        self._status.positions.durable_lsn = durable.end_lsn
        counts = {
            (f"{schema}.{name}", chr(op)): events
            for (schema, name), ops in durable.counts.items()
            for op, events in ops.items()
        }
        self._metrics.published(durable.transactions, counts, durable.bytes, seconds)
        self._metrics.parked({f"{schema}.{name}": events for (schema, name), events in durable.parked_counts.items()})
        self._status.parked = _reasons(durable.parked)
        if not durable.transactions:
            return
        rows: dict[str, int] = {}
        for (relation, _), events in counts.items():
            rows[relation] = rows.get(relation, 0) + events
        self._status.published.add(now, durable.transactions, rows)
        self._status.positions.last_commit_us = durable.commit_ts
        self._metrics.latency((wall_us() - durable.first_commit_ts) / 1e6)
        self._summary.add(
            now,
            {"rows": durable.rows, "transactions": durable.transactions, "kafka_commits": 1},
            {"lsn": format_lsn(durable.end_lsn)},
        )

    # The end

    def _finish(self) -> None:
        """Commit what is whole, tell the server, and end the stream as the protocol wants it."""
        self._sink.stop(STOP_WITHIN_S)
        deadline = monotonic_s() + STOP_WITHIN_S + 1
        while not self._sink.join(0.0) and monotonic_s() < deadline:
            self._wait(0.1, reading=False)
            self._take_news(monotonic_s())
        self._take_news(monotonic_s())
        self._told_lsn = -1
        self._tell(monotonic_s())
        self._walsender.stop()
        log.info("stopped", extra={"lsn": format_lsn(self._tracker.durable_lsn)})


def _reasons(parked: Mapping[tuple[str, str], ParkedTable]) -> dict[str, str]:
    return {f"{schema}.{name}": each.reason for (schema, name), each in parked.items()}
