"""The state of the daemon, as plain values.

Before: the supervisor writes `state` and `errors`, the loop the positions, the counts and the stages, the slot monitor
the slot. After: `http_answers` answers probes from it, `status_report` and `metrics` show it.

Each attribute has one writer, which replaces the whole value. So any thread may read it at any time without a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cdcd.errors import CdcdError
from cdcd.lsn import INVALID
from cdcd.monitoring.history import History, Sample
from cdcd.monitoring.identity import Identity, Servers
from cdcd.monitoring.reachability import NEEDED, POSTGRESQL, Reachability
from cdcd.monitoring.stall_detection import STALLED_AFTER_S, Stages
from cdcd.monitoring.wal_history import WalHistory
from cdcd.snapshot.table_progress import SnapshotProgress
from cdcd.source.slot import SlotState
from cdcd.terminal.text_format import duration

ERRORS_MAX: Final = 5
"""The status page shows the last errors, at most so many."""

RATE_WINDOW_S: Final = 10
"""A rate is a mean over the last so many full seconds."""


class State(Enum):
    """A phase in the life of the daemon. The value is the text that people read."""

    STARTING = "starting"
    WAITING = "waiting for the slot, which another daemon uses"
    STREAMING = "streaming"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True)
class QueueDepths:
    """The amounts that wait inside the daemon at one moment."""

    queue_batches: int = 0
    queue_bytes: int = 0
    """Between reading and publishing."""
    spool_transactions: int = 0
    """In progress or prepared on the server."""
    spool_memory_bytes: int = 0
    spool_disk_bytes: int = 0
    snapshot_tables: int = 0
    """Tables whose snapshot is not complete."""
    snapshot_bytes: int = 0
    """The part of these tables that was not read yet, as far as it can be estimated."""
    snapshots_paused: bool = False
    """A person has paused the snapshots."""
    snapshots_out_of_hours: bool = False
    """It is no time of the day for snapshots."""
    snapshots_stopped: tuple[str, ...] = ()
    """The tables whose snapshots a person has stopped."""
    topics: tuple[str, ...] = ()
    """The topics of the open Kafka transaction."""


class Rate:
    """Events per second, over the last RATE_WINDOW_S full seconds: a ring with one count per second.

    One thread adds. Any thread reads, because `per_second` changes nothing.
    """

    def __init__(self) -> None:
        self._counts = [0] * (RATE_WINDOW_S + 1)
        self._second = 0

    def add(self, now_s: float, count: int) -> None:
        """Add `count` events at `now_s` (monotonic seconds)."""
        self._advance_to(int(now_s))
        self._counts[self._second % len(self._counts)] += count

    def per_second(self, now_s: float) -> float:
        """Return the mean of the window that ends before the second of `now_s`."""
        now, size = int(now_s), len(self._counts)
        seconds = range(max(now - RATE_WINDOW_S, self._second - RATE_WINDOW_S), min(now, self._second + 1))
        return sum(self._counts[second % size] for second in seconds) / RATE_WINDOW_S

    def _advance_to(self, second: int) -> None:
        for passed in range(max(self._second + 1, second - RATE_WINDOW_S), second + 1):
            self._counts[passed % len(self._counts)] = 0
        self._second = max(self._second, second)


class Positions:
    """How far the stream has come. LSNs are end-exclusive; commit times are microseconds since 1970 UTC."""

    def __init__(self) -> None:
        self.lsn_base = 0
        """It was added to the server's own LSNs: see `cdcd.lsn`. All others here have it, too."""
        self.server_lsn = INVALID
        """The end of the server's WAL, as far as the server has told."""
        self.wal = WalHistory()
        self.received_lsn = INVALID
        """The server has sent every change that was committed before it."""
        self.durable_lsn = INVALID
        self.acked_lsn = INVALID
        self.oldest_pending_us = 0
        """Commit time of the oldest transaction that Kafka does not hold, of those whose commit was received; 0 if
        there is none. While no stream runs, at most the end of the last stream: later commits are not in Kafka either.
        """
        self.last_commit_us = 0
        """Commit time of the last published transaction."""

    @property
    def lag_bytes(self) -> int:
        """WAL that the server has written and Kafka does not hold. Derived, so it cannot contradict the positions."""
        return max(0, self.server_lsn - self.durable_lsn) if self.durable_lsn != INVALID else 0

    def lag_s(self, now_us: int) -> float:
        """Return the age of the oldest commit that Kafka may not hold; 0 if Kafka holds all.

        Such a commit was received, or it may be in WAL that the server has not sent yet.
        """
        unsent_us = self.wal.beyond_us(self.received_lsn) if self.received_lsn != INVALID else 0
        oldest_us = min(filter(None, (self.oldest_pending_us, unsent_us)), default=now_us)
        return max(0.0, (now_us - oldest_us) / 1e6)


class TableCounts:
    """Events of one table that were published since the start. One thread writes, any thread reads."""

    def __init__(self) -> None:
        self.rows = 0
        """Changes, from the stream."""
        self.copied_rows = 0
        """Rows of snapshots and repairs."""
        self.rate = Rate()
        """Of both."""
        self.last_commit_us = 0
        """Commit time of the last published transaction that changed the table, or of one that Kafka committed with
        it; 0 if there was none."""
        self.delay_s = 0.0
        """From the commit of these transactions in PostgreSQL, the oldest one's, to Kafka's."""


@dataclass(frozen=True)
class CommitTimes:
    """When the PostgreSQL transactions of a Kafka transaction were committed."""

    last_commit_us: int
    """Of the last one, microseconds since 1970 UTC."""
    delay_s: float
    """From the commit of the oldest one to Kafka's."""


class PublishedCounts:
    """Counts of published events since the start of the daemon. One thread writes, any thread reads."""

    def __init__(self) -> None:
        self.transactions = 0
        self.rows = 0
        """Changes, from the stream."""
        self.copied_rows = 0
        """Rows of snapshots and repairs."""
        self.rows_rate = Rate()
        """Of both."""
        self.tables: dict[str, TableCounts] = {}
        """By relation (`schema.table`). Other threads read a copy."""

    def add(
        self,
        now_s: float,
        transactions: int,
        rows: Mapping[str, int],
        times: CommitTimes | None = None,
    ) -> None:
        """A Kafka transaction is committed: `rows` are its changes by relation."""
        for relation, count in rows.items():
            table = self._table(relation)
            table.rows += count
            table.rate.add(now_s, count)
            if times is not None:
                table.last_commit_us, table.delay_s = times.last_commit_us, times.delay_s
        total = sum(rows.values())
        self.rows += total
        self.transactions += transactions
        self.rows_rate.add(now_s, total)

    def add_copied(self, now_s: float, rows: Mapping[str, int]) -> None:
        """A Kafka transaction is committed that has `rows` rows of snapshots and repairs, by relation."""
        for relation, count in rows.items():
            table = self._table(relation)
            table.copied_rows += count
            table.rate.add(now_s, count)
        total = sum(rows.values())
        self.copied_rows += total
        self.rows_rate.add(now_s, total)

    def _table(self, relation: str) -> TableCounts:
        table = self.tables.get(relation)
        if table is None:
            table = self.tables[relation] = TableCounts()
        return table


@dataclass(frozen=True)
class ErrorSeen:
    """An error that ended a stream, or the daemon."""

    at_s: float
    """Monotonic seconds."""
    message: str
    hint: str
    code: str


class ErrorLog:
    """The last errors, and how often the stream was restarted."""

    def __init__(self) -> None:
        self.restarts = 0
        self._seen: deque[ErrorSeen] = deque(maxlen=ERRORS_MAX)

    def add(self, now_s: float, error: BaseException, *, restarts: bool = False) -> None:
        """Keep an error. With `restarts` the stream starts again because of it."""
        known = error if isinstance(error, CdcdError) else CdcdError(str(error), code="internal-error")
        self._seen.append(ErrorSeen(now_s, known.message, known.hint, known.code))
        self.restarts += restarts

    def last(self) -> list[ErrorSeen]:
        """Return the last errors, oldest first."""
        return list(self._seen.copy())


class Status:
    """The state of one daemon. Times are monotonic seconds unless the name says otherwise."""

    def __init__(self, identity: Identity, now_s: float, stalled_after_s: float = STALLED_AFTER_S) -> None:
        """`stalled_after_s`: how long work may wait at a stage where nothing moves."""
        self.identity = identity
        self.servers = Servers()
        self.started_s = now_s
        self.state = State.STARTING
        self.stages = Stages(now_s, stalled_after_s)
        self.positions = Positions()
        self.published = PublishedCounts()
        self.errors = ErrorLog()
        self.depths: Callable[[], QueueDepths] = QueueDepths
        """Returns what waits now. Cheap, and safe in any thread."""
        self.snapshot: Callable[[float], SnapshotProgress | None] = _no_snapshot
        """Takes monotonic seconds, and returns the snapshot that is under way. Safe in any thread."""
        self.synchronous = False
        """COMMITs on the server wait for this daemon, as its synchronous standby."""
        self.slot_state: SlotState | None = None
        """The slot as the server described it last. None: not seen yet, or the slot is gone."""
        self.parked: Mapping[str, str] = {}
        """The tables whose events go to the parked topic: `schema.table`, and the reason."""
        self.history = History()
        self.reachability = Reachability()

    def sample(self, now_s: float, now_us: int) -> None:
        """Keep a sample of this moment, for the plots of the status page."""
        lag_s, lag_bytes = self.positions.lag_s(now_us), self.positions.lag_bytes
        self.history.add(Sample(now_s, lag_s, lag_bytes, self.published.rows_rate.per_second(now_s)))

    def begin_stream(self, now_s: float) -> None:
        """The slot streams."""
        self.state = State.STREAMING
        self.stages.begin_stream(now_s)

    def end_stream(self, now_s: float, now_us: int) -> None:
        """The stream has ended: changes wait from now on, unless some wait already."""
        self.stages.end_stream(now_s)
        self.depths = QueueDepths
        self.snapshot = _no_snapshot
        self.positions.oldest_pending_us = self.positions.oldest_pending_us or now_us

    def stand_by(self, now_s: float) -> None:
        """Another daemon has the slot and publishes: nothing waits for this one."""
        self.state = State.WAITING
        self.stages.begin_stream(now_s)
        positions = self.positions
        positions.received_lsn = positions.durable_lsn = INVALID
        positions.oldest_pending_us = 0

    def stalled_s(self, now_s: float) -> dict[str, float]:
        """Return by stage for how many seconds work has waited there while nothing moved."""
        # Each step of a start-up has its own bound. STREAM shows that a start-up takes too long as a whole.
        return self.stages.stalled_s(now_s, loop_runs=self.state is not State.STARTING)

    def longest_stall(self, now_s: float) -> tuple[str, float]:
        """Return the stage where work has waited longest while nothing moved, and for how many seconds."""
        return max(self.stalled_s(now_s).items(), key=lambda stall: stall[1])

    def is_alive(self, now_s: float) -> bool:
        """Whether all waiting work moves. The supervisor bounds the first start, which may take its time."""
        return self.longest_stall(now_s)[1] < self.stages.stalled_after_s

    @property
    def sees_server(self) -> bool:
        """PostgreSQL tells how far its WAL and the slot are. While it is lost, nobody knows."""
        return POSTGRESQL not in self.reachability.losses()

    def lost(self, now_s: float) -> list[str]:
        """Say which services are lost, and for how long: `Kafka lost for 12 s`."""
        return [
            f"{loss.name} lost for {duration(now_s - loss.since_s)}" for loss in self.reachability.losses().values()
        ]

    def is_ready(self) -> bool:
        """Whether changes flow: the slot streams, and PostgreSQL and Kafka answer."""
        return self.state is State.STREAMING and not any(map(self.reachability.losses().get, NEEDED))

    def is_available(self) -> bool:
        """Whether this daemon does its part: it streams, or will as soon as the other daemon gives the slot back.

        It does so while a service is lost, too: another daemon in its place would not bring the service back.
        """
        return self.state in (State.STREAMING, State.WAITING)


def _no_snapshot(_: float) -> None:
    return None
