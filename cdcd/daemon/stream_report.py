"""Reports what moves through one stream to the status, the metrics and the log.

Before: the loop says what was received, and what Kafka committed.
After: `status` and `metrics` show it; the log gets at most one line an interval.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from cdcd.clock import wall_us
from cdcd.daemon.sink_link import Commit
from cdcd.daemon.snapshot_coordinator import SnapshotCoordinator
from cdcd.lsn import format_lsn
from cdcd.monitoring.log_setup import Summary
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import CommitTimes, QueueDepths, Status
from cdcd.progress.records import ParkedTable
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.publisher import Publisher
from cdcd.source.table_selection import qualified_name
from cdcd.transaction.spool import Spool

COPIED: Final = "r"
"""The op of a row of a snapshot, or of a repair."""

log = logging.getLogger(__name__)


class StreamReport:
    """The report of one stream. For the thread that owns the stream."""

    def __init__(
        self,
        status: Status,
        metrics: Metrics,
        wall_clock_us: Callable[[], int] = wall_us,
        log_interval_s: float = 1.0,
    ) -> None:
        """`wall_clock_us` returns microseconds since 1970 UTC. `log_interval_s`: between two lines of the log."""
        self._status = status
        self._metrics = metrics
        self._wall_clock_us = wall_clock_us
        self._pending_commits: deque[tuple[int, int]] = deque()
        """For received batches that Kafka does not hold: the end LSN of the last transaction, the earliest commit time.
        The times increase: a batch is left out if a later one has an earlier time."""
        self._open_commit_us = 0
        self._summary = Summary(log, "published", log_interval_s)

    def on_start(self, durable_lsn: int) -> None:
        """The stream begins, and Kafka holds everything before `durable_lsn`."""
        self._status.positions.durable_lsn = self._status.positions.received_lsn = durable_lsn

    def show_depths(
        self, queue: BatchQueue, spool: Spool, snapshots: SnapshotCoordinator, publisher: Publisher
    ) -> None:
        """Let the status show how much waits in these. Any thread may read them."""

        def depths() -> QueueDepths:
            return QueueDepths(
                queue_batches=queue.batches,
                queue_bytes=queue.bytes,
                spool_transactions=spool.transactions,
                spool_memory_bytes=spool.memory_bytes,
                spool_disk_bytes=spool.disk_bytes,
                snapshot_tables=snapshots.tables_left,
                snapshot_bytes=snapshots.bytes_left,
                snapshots_paused=snapshots.is_paused,
                snapshots_out_of_hours=snapshots.is_out_of_hours,
                snapshots_stopped=tuple(qualified_name(*table) for table in snapshots.stopped),
                topics=publisher.touched_topics,
            )

        self._status.depths = depths
        self._status.snapshot = snapshots.progress

    def on_read(self, size_bytes: int) -> None:
        """Bytes came from the server."""
        self._metrics.received(size_bytes)

    def on_received(self, end_lsn: int, oldest_commit_us: int) -> None:
        """Transactions up to `end_lsn` were received; the oldest committed at `oldest_commit_us` (since 1970)."""
        pending = self._pending_commits
        while pending and pending[-1][1] >= oldest_commit_us:
            pending.pop()
        pending.append((end_lsn, oldest_commit_us))

    def on_positions(self, received_lsn: int, server_lsn: int, open_commit_us: int) -> None:
        """The stream came to `received_lsn`, and the server's WAL ends at `server_lsn`.

        `open_commit_us`: when the transaction was committed that is received now (since 1970), 0 if there is none. It
        can take minutes, and its first rows wait for the last one.
        """
        positions = self._status.positions
        positions.received_lsn = received_lsn
        positions.server_lsn = max(positions.server_lsn, server_lsn)
        self._open_commit_us = open_commit_us
        self._note_oldest_pending()

    def on_durable(self, end_lsn: int) -> None:
        """Kafka holds everything before `end_lsn`."""
        pending = self._pending_commits
        while pending and pending[0][0] <= end_lsn:
            pending.popleft()
        self._note_oldest_pending()

    def on_published(self, now: float, commit: Commit) -> None:
        """A Kafka transaction was committed; `now` is monotonic."""
        status, metrics, result = self._status, self._metrics, commit.result
        status.positions.durable_lsn = result.end_lsn
        counts = {
            (f"{schema}.{name}", chr(op)): events
            for (schema, name), ops in result.counts.items()
            for op, events in ops.items()
        }
        metrics.transaction(commit.open_s)
        metrics.published(result.transactions, counts, result.bytes, commit.commit_s)
        metrics.parked({f"{schema}.{name}": events for (schema, name), events in result.parked_counts.items()})
        self.on_parked(result.parked)
        changes: dict[str, int] = {}
        copied: dict[str, int] = {}
        for (relation, op), events in counts.items():
            into = copied if op == COPIED else changes
            into[relation] = into.get(relation, 0) + events
        status.published.add_copied(now, copied)
        if not result.transactions:
            return
        delay_s = (self._wall_clock_us() - result.oldest_commit_ts) / 1e6
        status.published.add(now, result.transactions, changes, CommitTimes(result.commit_ts, max(0.0, delay_s)))
        status.positions.last_commit_us = result.commit_ts
        metrics.latency(delay_s)
        self._summary.add(
            now,
            {"rows": result.rows, "transactions": result.transactions, "kafka_commits": 1},
            {"lsn": format_lsn(result.end_lsn)},
        )

    def on_parked(self, parked: Mapping[tuple[str, str], ParkedTable]) -> None:
        """These tables are parked from now on, by schema and name."""
        self._status.parked = {qualified_name(*table): each.reason for table, each in parked.items()}

    def _note_oldest_pending(self) -> None:
        pending, open_us = self._pending_commits, self._open_commit_us
        oldest_us = pending[0][1] if pending else 0
        self._status.positions.oldest_pending_us = (
            min(oldest_us, open_us) if oldest_us and open_us else oldest_us or open_us
        )

    def flush(self, now: float) -> None:
        """Write the log line if its time has come; `now` is monotonic."""
        self._summary.flush(now)

    def end(self) -> None:
        """The stream has ended: write the log line of what no line has told yet."""
        self._summary.flush(inf)
