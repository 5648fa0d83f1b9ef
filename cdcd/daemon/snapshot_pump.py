"""Does what the snapshot coordinator decides: pauses and resumes the stream, hands rows on, shows the progress.

Before: `snapshot_coordinator` returns an action a turn.
After: `sink_link` gets the batches, in the order of the LSNs.
"""

from __future__ import annotations

import logging
import sys
from math import inf
from typing import Final

from cdcd.daemon.gap_repairs import GapRepairs
from cdcd.daemon.sink_link import SinkLink
from cdcd.daemon.snapshot_coordinator import (
    KEEPALIVE_INTERVAL_S,
    NOTHING,
    Finished,
    SnapshotCoordinator,
    SnapshotState,
)
from cdcd.monitoring.log_setup import Summary
from cdcd.progress.ack_tracker import AckTracker
from cdcd.source.replication_stream import ReplicationStream
from cdcd.terminal.progress_bar import COPY_FIRST_S, ProgressBar, SnapshotBar
from cdcd.transaction.assembler import Assembler

log = logging.getLogger(__name__)

QUEUED_BYTES_MAX: Final = 1 << 20
"""A snapshot adds rows while less than this waits for the sink, because the stream's rows wait for all of it."""


OUT_OF_HOURS: Final = "snapshots wait for their hours, which snapshot.hours and [[table]] say"
PAUSED: Final = "the snapshots are paused; cdcd snapshot --resume lets them go on"


class SnapshotPump:
    """The snapshots of one stream on their way to the sink. For the thread that owns the stream."""

    def __init__(
        self,
        coordinator: SnapshotCoordinator,
        stream: ReplicationStream,
        assembler: Assembler,
        tracker: AckTracker,
        sink: SinkLink,
        gap_repairs: GapRepairs,
        *,
        only: bool = False,
        progress_interval_s: float = 5.0,
    ) -> None:
        """`only`: nothing but snapshots is wanted, so they may fill the queue. `progress_interval_s`: between two
        lines of the log.
        """
        self._progress_interval_s = progress_interval_s
        self._coordinator = coordinator
        self._gap_repairs = gap_repairs
        self._next_keepalive_s = 0.0
        self._stream = stream
        self._assembler = assembler
        self._tracker = tracker
        self._sink = sink
        self._only = only
        self._bar = ProgressBar(sys.stderr)
        self._progress = self._begin_progress()
        self._is_paused = False
        """The log says that the snapshots are paused."""
        self._is_out_of_hours = False
        """The log says that they wait for their hours."""
        self._finished: list[tuple[int, Finished]] = []
        """How many batches Kafka must have before a snapshot is complete, and the summary of the snapshot."""

    def turn(self, now: float) -> None:
        """Move the snapshots and the comparisons on. Raises what `SnapshotCoordinator` and `GapRepairs` raise."""
        self._turn_snapshots(now)
        if self.accepts_batch and (compared := self._gap_repairs.turn()) is not None:
            self._sink.put(compared)
        if self.awaits_progress and now >= self._next_keepalive_s:
            self._next_keepalive_s = now + KEEPALIVE_INTERVAL_S
            self._request_keepalive()

    def _turn_snapshots(self, now: float) -> None:
        if self._coordinator.is_paused is not self._is_paused:
            self._is_paused = self._coordinator.is_paused
            log.info(PAUSED if self._is_paused else "the snapshots are resumed")
        if self._coordinator.is_out_of_hours is not self._is_out_of_hours:
            self._is_out_of_hours = self._coordinator.is_out_of_hours
            log.info(OUT_OF_HOURS if self._is_out_of_hours else "the hours of snapshots have begun")
        action = self._coordinator.turn(now, self)
        if action is NOTHING:
            return
        if action.pause_before_lsn:
            self._assembler.pause_before(action.pause_before_lsn)
        if action.consistent_lsn:
            self._tracker.on_keepalive(action.consistent_lsn)
        if action.resumes:
            self._assembler.resume()
        if action.requests_keepalive:
            self._request_keepalive()
        batch = action.batch
        if batch is not None:
            if batch.rows and action.left is not None:
                self._progress.add(now, {"rows": batch.rows}, action.left)
            # Nothing was committed for this daemon between the consistent point and the server's position.
            batch.end_lsn = self._tracker.server_position if action.consistent_lsn else 0
            self._sink.put(batch)
        if action.finished is not None:
            self._finished.append((self._sink.handed_over, action.finished))
            self._progress = self._begin_progress()

    def on_durable(self, batches: int) -> None:
        """Kafka has the first `batches` batches of the stream. Log the end of a snapshot among them."""
        while self._finished and batches >= self._finished[0][0]:
            _, finished = self._finished.pop(0)
            log.info(finished.message, extra=finished.as_log())

    def sockets(self) -> list[int]:
        """Return the sockets to wait on for rows; none while there is no room for rows."""
        sockets = self._coordinator.sockets()
        return sockets if sockets and self.wants_rows else []

    @property
    def wait_s(self) -> float:
        """How long the loop may wait, at most, because the limits let more rows be read then. Without end: infinite."""
        return self._coordinator.wait_s if self.wants_rows else inf

    @property
    def may_have_more_rows(self) -> bool:
        """The last turn left rows that no socket announces."""
        return self._coordinator.may_have_more_rows

    @property
    def awaits_progress(self) -> bool:
        """A comparison waits until the progress has come to its LSN, also if nothing is published."""
        return self._gap_repairs.waits

    @property
    def is_all_done(self) -> bool:
        """Nothing but snapshots is wanted, and Kafka has them."""
        waits = self._coordinator.is_paused or self._coordinator.is_out_of_hours
        is_idle = self._coordinator.state is SnapshotState.IDLE and not waits
        return self._only and is_idle and self._sink.is_drained

    # Room, as the coordinator sees it

    @property
    def is_stream_paused(self) -> bool:
        """See Room."""
        return self._assembler.is_paused

    @property
    def accepts_batch(self) -> bool:
        """See Room."""
        return not self._sink.is_blocked

    @property
    def is_history_known(self) -> bool:
        """See Room."""
        return self._tracker.is_history_known

    @property
    def wants_rows(self) -> bool:
        """See Room."""
        return not self._sink.is_blocked and (self._only or self._sink.has_less_than(QUEUED_BYTES_MAX))

    @property
    def is_sink_idle(self) -> bool:
        """See Room."""
        return self._sink.is_idle

    def name_in_stream(self, relation_oid: int) -> tuple[str, str] | None:
        """See Room."""
        return self._assembler.announced_name(relation_oid)

    def _request_keepalive(self) -> None:
        """Ask the server how far it is."""
        ack = self._tracker.ack()
        self._stream.send_status(ack, ack, ack, reply=True)

    def _begin_progress(self) -> SnapshotBar | Summary:
        """Make what shows the progress of one snapshot."""
        if self._bar.on:
            return SnapshotBar(self._bar)
        return Summary(log, "published snapshot rows", self._progress_interval_s, COPY_FIRST_S)
