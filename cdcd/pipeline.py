"""Wires the rooms, moves what one gives to the next, and closes the loop from Kafka's commits to the server's slot.

Before: `opening` has everything ready: a slot that streams, a producer that owns its transactional.id, the last
progress. After: nothing; this is where the flow runs until it is stopped or an error ends it.

It decides nothing itself: `pacing` says when to read, `assembler` what is a transaction, `tracker` what may be
acknowledged, `group_commit` when to commit. One turn of the loop:

1. what the sink made durable goes to the tracker;
2. frames become a batch, unless the last one still waits for room: then the server is answered, but not read;
3. a server that moved on without anything for us gets a slot record of its own, at most one a status interval
   (but soon, if a COMMIT somewhere waits for us as its synchronous standby);
4. the server is told what is durable, at once when that moved;
5. wait: for the server, for the sink, or for the next status.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from cdcd.clock import monotonic_s, wall_us
from cdcd.log import Summary
from cdcd.lsn import format_lsn
from cdcd.metrics import Metrics
from cdcd.opening import Opened
from cdcd.pgoutput.messages import COMMIT_PREPARED, PREPARE
from cdcd.sink.batches import Batch
from cdcd.sink.publisher import Durable
from cdcd.sink.thread import SinkThread
from cdcd.source.pacing import Pacing
from cdcd.status import Status
from cdcd.wake import Wake

log = logging.getLogger("cdcd.pipeline")

FRAMES_MAX: Final = 1_000
READ_BYTES_MAX: Final = 1 << 20
"""What one turn takes from the socket: small enough that answers to the server and to the sink are never late."""

REPLY_INTERVAL_S: Final = 0.01
"""A server that shuts down asks for a reply with every keepalive, 25,000 a second; it gets this many."""

STOP_WITHIN_S: Final = 6.0
"""What the sink may take to finish its open Kafka transaction after SIGTERM."""


class Pipeline:
    """One stream, from START_REPLICATION to its end."""

    def __init__(self, opened: Opened, status: Status, metrics: Metrics, wake: Wake) -> None:
        self._walsender = opened.walsender
        self._assembler = opened.assembler
        self._batches = opened.batches
        self._tracker = opened.tracker
        self._handover = opened.handover
        self._sink = SinkThread(
            opened.publisher, opened.producer, opened.policy, opened.handover, self._on_durable, wake.set
        )
        # A Unix socket holds too little for pauses to pay.
        self._pacing = Pacing(0.0) if opened.walsender.local else Pacing()
        self._status_interval_s = opened.status_interval_s
        self._idle_interval_s = opened.idle_interval_s
        self._status = status
        self._metrics = metrics
        self._wake = wake
        self._news: deque[tuple[Durable, float]] = deque()
        self._pending: Batch | None = None
        self._open = False
        self._oldest: deque[tuple[int, int]] = deque()
        self._idle_lsn = 0
        self._idle_due_s = 0.0
        self._told_lsn = -1
        self._told_s = 0.0
        self._summary = Summary(log, "published")

    def run(self, stopping: Callable[[], bool]) -> None:
        """Stream until `stopping()`, then finish in order. Raises whatever error ended the stream."""
        self._sink.start()
        try:
            while not stopping():
                self._turn()
            self._finish()
        finally:
            self._sink.stop(0.0)
            self._sink.join(1.0)

    def _turn(self) -> None:
        now = monotonic_s()
        self._take_news(now)
        if self._pending is not None and self._handover.put(self._pending):
            self._pending = None
        pause_s = 0.0 if self._assembler.busy else self._pacing.pause_s(now)
        if self._pending is None and pause_s <= 0:
            self._read(now)
            pause_s = self._pacing.pause_s(now)
        self._offer_idle(now)
        self._tell(now)
        self._status.turned_s = now
        timeout_s = max(0.0, self._told_s + self._status_interval_s - now)
        if self._tracker.idle_position() > self._idle_lsn:
            timeout_s = min(timeout_s, max(0.0, self._idle_due_s - now))
        if self._assembler.reply_requested:
            timeout_s = min(timeout_s, REPLY_INTERVAL_S)
        if self._pending is not None:
            self._wait(timeout_s, reading=False)
        elif self._assembler.busy:
            self._wait(0.0, reading=False)
        elif pause_s > 0:
            self._wait(min(timeout_s, pause_s), reading=False)
        else:
            self._wait(timeout_s, reading=True)

    def _wait(self, timeout_s: float, *, reading: bool) -> None:
        if self._wake.fd in self._walsender.wait(timeout_s, self._wake.fd, reading=reading):
            self._wake.clear()

    # From the server to the sink

    def _read(self, now: float) -> None:
        if self._assembler.busy:
            self._assembler.proceed()
        else:
            frames = self._walsender.read(FRAMES_MAX, READ_BYTES_MAX)
            size_bytes = self._walsender.read_bytes
            self._pacing.note_read(now, len(frames), size_bytes)
            if not frames:
                return
            self._metrics.received(size_bytes)
            self._assembler.feed(frames)
        self._collect()

    def _collect(self) -> None:
        """Hand on what the assembler made of the frames, and tell the tracker."""
        batch = self._batches.take()
        if batch.rows or self._open:
            if batch.transactions:
                self._tracker.received(batch.end_lsn)
                self._oldest.append((batch.end_lsn, batch.first_commit_ts))
            if batch.rows or batch.transactions:
                self._hand_over(batch)
        elif self._assembler.received_lsn:
            # Nothing but empty transactions, or such as Kafka has: they need no Kafka transaction.
            self._tracker.skipped(self._assembler.received_lsn)
        for phase in self._assembler.phases:
            if phase.kind == PREPARE:
                self._tracker.hold(phase.name, phase.lsn)
            elif phase.kind == COMMIT_PREPARED:
                self._tracker.committed(phase.name, phase.lsn)
            else:
                self._tracker.rolled_back(phase.name)
        self._assembler.phases.clear()
        # Last, as it is how the frames end: a transaction may have begun behind all that was prepared.
        if self._assembler.in_transaction:
            self._tracker.begin()
        elif self._assembler.quiet_lsn:
            self._tracker.keepalive(self._assembler.quiet_lsn)
        self._open = batch.open and (batch.rows > 0 or self._open)
        self._status.received_lsn = self._tracker.received_lsn
        self._status.server_lsn = max(self._status.server_lsn, self._assembler.server_lsn)

    def _hand_over(self, batch: Batch) -> None:
        if not self._handover.put(batch):
            self._pending = batch

    def _offer_idle(self, now: float) -> None:
        if self._pending is not None or not (now >= self._idle_due_s or self._assembler.reply_requested):
            return
        lsn = self._tracker.idle_position()
        if lsn > self._idle_lsn:
            batch = Batch()
            batch.end_lsn = lsn
            self._hand_over(batch)
            self._idle_lsn = lsn
            self._idle_due_s = now + self._idle_interval_s

    # From the sink to the server

    def _on_durable(self, durable: Durable, seconds: float) -> None:
        """Called in the sink thread."""
        self._news.append((durable, seconds))
        self._wake.set()

    def _take_news(self, now: float) -> None:
        while self._news:
            durable, seconds = self._news.popleft()
            self._tracker.durable(durable.end_lsn)
            while self._oldest and self._oldest[0][0] <= durable.end_lsn:
                self._oldest.popleft()
            self._note_published(durable, seconds, now)
        self._sink.check()
        self._summary.flush(now)

    def _tell(self, now: float) -> None:
        ack = self._tracker.ack()
        due = now - self._told_s >= self._status_interval_s
        asked = self._assembler.reply_requested and now - self._told_s >= REPLY_INTERVAL_S
        if ack == self._told_lsn and not due and not asked:
            return
        # Write and apply positions are the same: whoever waits for any of them waits for Kafka.
        self._walsender.send_status(ack, ack, ack)
        self._assembler.reply_requested = False
        self._told_lsn = ack
        self._told_s = now
        self._status.acked_lsn = ack
        self._metrics.queued(self._handover.bytes)
        oldest_us = self._oldest[0][1] if self._oldest else 0
        self._status.lag_s = max(0.0, (wall_us() - oldest_us) / 1e6) if oldest_us else 0.0
        self._metrics.lag(self._status.lag_bytes, self._status.lag_s)

    def _note_published(self, durable: Durable, seconds: float, now: float) -> None:
        self._status.durable_lsn = durable.end_lsn
        counts = {
            (f"{schema}.{name}", chr(op)): events
            for (schema, name), ops in durable.counts.items()
            for op, events in ops.items()
        }
        self._metrics.published(durable.transactions, counts, durable.bytes, seconds)
        if not durable.transactions:
            return
        rows: dict[str, int] = {}
        for (relation, _), events in counts.items():
            rows[relation] = rows.get(relation, 0) + events
        self._status.published(now, durable.transactions, rows)
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
