"""Reads the stream: turns the server's frames into batches for the sink, and tells the tracker what was received.

Before: `source.replication_stream` has frames, `source.read_pacing` says when to read them.
After: `sink_link` gets the batches, `progress.ack_tracker` the positions, `request_intake` the requests of the stream.
"""

from __future__ import annotations

from typing import Final

from cdcd.daemon.request_intake import RequestIntake
from cdcd.daemon.sink_link import SinkLink
from cdcd.daemon.stream_report import StreamReport
from cdcd.pgoutput.messages import COMMIT_PREPARED, PREPARE
from cdcd.progress.ack_tracker import AckTracker
from cdcd.sink.batches import BatchBuilder
from cdcd.source.read_pacing import ReadPacing
from cdcd.source.replication_stream import ReplicationStream
from cdcd.transaction.assembler import Assembler

FRAMES_MAX: Final = 5_000
READ_BYTES_MAX: Final = 2 << 20
"""One turn of the loop reads at most this much. It is more than arrives in one interval of the pacing on a busy
machine, so it does not bound the rate. It is little enough that the loop answers the server and the sink in time."""


class StreamReader:
    """The reading half of one stream. For the thread that owns the stream."""

    def __init__(
        self,
        stream: ReplicationStream,
        assembler: Assembler,
        batches: BatchBuilder,
        tracker: AckTracker,
        sink: SinkLink,
        report: StreamReport,
        requests: RequestIntake,
    ) -> None:
        """`assembler` writes to `batches`."""
        self._stream = stream
        self._assembler = assembler
        self._batches = batches
        self._tracker = tracker
        self._sink = sink
        self._report = report
        self._requests = requests
        # A Unix socket buffers too little: pauses would only cost time.
        self._pacing = ReadPacing(0.0) if stream.local else ReadPacing()
        self._has_open_rows = False
        """Rows of a transaction that has not ended were handed on."""

    def pause_s(self, now: float) -> float:
        """Return for how many seconds to leave the socket alone; 0: read at once."""
        return self._pacing.pause_s(now, commit_in_progress=self._sink.is_committing)

    def read(self, now: float, *, synchronous: bool) -> bool:
        """Hand on the rows that have come; not while `sink` is blocked. Returns whether the server has sent something.

        While the assembler is busy with a spooled transaction, this goes on with it, and leaves the socket alone.
        `synchronous`: COMMITs wait for this daemon. Raises what the stream and the assembler raise.
        """
        if self._assembler.is_busy:
            self._assembler.proceed()
            self._collect(synchronous)
            return False
        frames = self._stream.read(FRAMES_MAX, READ_BYTES_MAX)
        size_bytes = self._stream.read_bytes
        self._pacing.note_read(now, len(frames), size_bytes)
        if not frames:
            return False
        self._report.on_read(size_bytes)
        self._assembler.feed(frames)
        del frames  # a large one takes much memory, and its event is copied next
        self._collect(synchronous)
        return True

    def _collect(self, synchronous: bool) -> None:
        """Hand on the assembler's records, and tell the tracker."""
        assembler, tracker, batch = self._assembler, self._tracker, self._batches.build()
        tracker.awaits_last_published = assembler.awaits_last_published
        # A COMMIT that waits for this daemon does not wait for later rows.
        batch.commit_is_distant = batch.ends_inside_transaction and (synchronous or assembler.commit_is_distant)
        batch.more_expected = self._pacing.has_backlog and not synchronous
        batch.requests = self._requests.take(self._batches.take_requests(), batch.announced)
        if batch.rows or batch.requests or self._has_open_rows:
            if batch.transactions:
                tracker.on_received(batch.end_lsn)
                self._report.on_received(batch.end_lsn, batch.oldest_commit_ts)
            if batch.rows or batch.transactions:
                self._sink.put(batch)
        elif assembler.received_lsn:
            # The transactions are empty, or Kafka has them already: they need no Kafka transaction.
            tracker.on_skipped(assembler.received_lsn)
        for outcome in assembler.prepared_outcomes:
            if outcome.kind == PREPARE:
                tracker.on_prepare(outcome.name, outcome.lsn)
            elif outcome.kind == COMMIT_PREPARED:
                tracker.on_commit_prepared(outcome.name, outcome.lsn)
            else:
                tracker.on_rollback_prepared(outcome.name)
        assembler.prepared_outcomes.clear()
        # Last, because it is the state after all frames: a transaction may have begun after the last prepare.
        if assembler.in_transaction:
            tracker.on_begin()
        elif assembler.last_idle_keepalive_lsn:
            tracker.on_keepalive(assembler.last_idle_keepalive_lsn)
        self._has_open_rows = batch.ends_inside_transaction and (batch.rows > 0 or self._has_open_rows)
        received_lsn = max(tracker.received_lsn, tracker.server_position)
        self._report.on_positions(received_lsn, assembler.server_lsn, self._batches.open_commit_ts)
