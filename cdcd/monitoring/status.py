"""What the daemon is doing, as plain values: the supervisor and the pipeline write it, the health server shows it.

Before: `supervisor` sets `state`, `pipeline` the positions and `turned_s` once a turn.
After: `http_server` answers probes and draws the status page from it.

Each attribute has one writer and is replaced as a whole, so that another thread may read it at any time without a lock.
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
from cdcd.monitoring.stall_detection import LOOP, SERVER, SINK, STAGES, STREAM, Stage
from cdcd.source.slot import SlotState

STALLED_AFTER_S: Final = 120.0
"""Work that has not moved for so long has stalled, unless the settings say otherwise."""

ERRORS_KEPT: Final = 5
"""The last errors, for the status page."""

RATE_WINDOW_S: Final = 10
"""Rates are means over the last so many whole seconds."""


class State(Enum):
    """Where in its life the daemon is; the value is how people read it."""

    STARTING = "starting"
    WAITING = "waiting for the slot, which another daemon uses"
    STREAMING = "streaming"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True)
class QueueDepths:
    """What waits inside the daemon, at one moment."""

    queue_batches: int = 0
    queue_bytes: int = 0
    """Between reading and publishing."""
    spool_transactions: int = 0
    """In progress or prepared, on the server."""
    spool_memory_bytes: int = 0
    spool_disk_bytes: int = 0
    snapshot_tables: int = 0
    snapshot_bytes: int = 0
    """Of tables that are being copied: how many are not whole yet, and what nobody has begun to read."""


class Rate:
    """Events a second, over the last RATE_WINDOW_S whole seconds: a ring of one count a second.

    One thread adds; any reads, for `per_second` changes nothing.
    """

    def __init__(self) -> None:
        self._counts = [0] * (RATE_WINDOW_S + 1)
        self._second = 0

    def add(self, now_s: float, count: int) -> None:
        """So many happened at `now_s` (monotonic)."""
        self._turn_to(int(now_s))
        self._counts[self._second % len(self._counts)] += count

    def per_second(self, now_s: float) -> float:
        """The mean of the window that ends before the second of `now_s`."""
        now, size = int(now_s), len(self._counts)
        seconds = range(max(now - RATE_WINDOW_S, self._second - RATE_WINDOW_S), min(now, self._second + 1))
        return sum(self._counts[second % size] for second in seconds) / RATE_WINDOW_S

    def _turn_to(self, second: int) -> None:
        for passed in range(max(self._second + 1, second - RATE_WINDOW_S), second + 1):
            self._counts[passed % len(self._counts)] = 0
        self._second = max(self._second, second)


class TableStatus:
    """What was published of one table since the start. One thread writes, any reads."""

    def __init__(self) -> None:
        self.rows = 0
        self.rate = Rate()


@dataclass(frozen=True)
class ErrorSeen:
    """An error that ended a stream, or the daemon: when (monotonic seconds), what happened, what to do about it."""

    at_s: float
    message: str
    hint: str


class Status:
    """The state of one daemon. LSNs are end-exclusive, times monotonic seconds unless the name says otherwise."""

    def __init__(
        self, version: str, slot: str, publication: str, now_s: float, stalled_after_s: float = STALLED_AFTER_S
    ) -> None:
        """`stalled_after_s`: how long work may wait at a stage where nothing moves."""
        self.version = version
        self.slot = slot
        self.publication = publication
        self.started_s = now_s
        self.state = State.STARTING
        self.stalled_after_s = stalled_after_s
        self.turned_s = now_s
        """When the loop turned last."""
        self.stages: Mapping[str, Stage] = {name: Stage(now_s) for name in STAGES}
        self.depths: Callable[[], QueueDepths] = QueueDepths
        """What waits now; cheap, for any thread."""
        self.server = ""
        """PostgreSQL's version and database, as people read them."""
        self.broker = ""
        """Kafka's cluster, as people read it."""
        self.received_lsn = INVALID
        self.durable_lsn = INVALID
        self.acked_lsn = INVALID
        self.server_lsn = INVALID
        """The end of the server's WAL, as the last message from it said."""
        self.synchronous = False
        """COMMITs wait for us, as the synchronous standby."""
        self.slot_state: SlotState | None = None
        """What the server said of the slot last; None: nothing yet, or the slot is gone."""
        self.oldest_us = 0
        """When the oldest received commit that is not durable was made, microseconds since 1970 UTC; 0: there is none.
        Without a stream, no later than its end: what has been committed since is not durable either."""
        self.commit_us = 0
        """When the last published transaction was committed, microseconds since 1970 UTC."""
        self.transactions = 0
        self.rows = 0
        self.rows_rate = Rate()
        self.tables: dict[str, TableStatus] = {}
        """By relation (`schema.table`); other threads read a copy."""
        self.parked: Mapping[str, str] = {}
        """The tables whose events go to the parked topic, `schema.table`, and why."""
        self.restarts = 0
        self.errors: deque[ErrorSeen] = deque(maxlen=ERRORS_KEPT)
        """The last errors, oldest first."""
        self.history = History()

    @property
    def lag_bytes(self) -> int:
        """WAL that the server has written and Kafka does not hold: derived, so it is right whenever its parts are."""
        return max(0, self.server_lsn - self.durable_lsn) if self.durable_lsn != INVALID else 0

    def published(self, now_s: float, transactions: int, rows: Mapping[str, int]) -> None:
        """A Kafka transaction is committed: `rows` are its events by relation."""
        for relation, count in rows.items():
            table = self.tables.get(relation)
            if table is None:
                table = self.tables[relation] = TableStatus()
            table.rows += count
            table.rate.add(now_s, count)
        total = sum(rows.values())
        self.rows += total
        self.transactions += transactions
        self.rows_rate.add(now_s, total)

    def failed(self, now_s: float, error: BaseException) -> None:
        """Remember an error for the status page."""
        known = error if isinstance(error, CdcdError) else CdcdError(str(error))
        self.errors.append(ErrorSeen(now_s, known.message, known.hint))

    def sample(self, now_s: float, now_us: int) -> None:
        """Remember how it is now, for the plot of the status page."""
        self.history.add(Sample(now_s, self.lag_s(now_us), self.lag_bytes, self.rows_rate.per_second(now_s)))

    def lag_s(self, now_us: int) -> float:
        """Age of the oldest commit that is known not to be durable; 0 when there is none."""
        return max(0.0, (now_us - self.oldest_us) / 1e6) if self.oldest_us else 0.0

    def begin_stream(self, now_s: float) -> None:
        """The slot streams."""
        self.state = State.STREAMING
        self.stages[STREAM].note(now_s, False)

    def end_stream(self, now_s: float, now_us: int) -> None:
        """The stream has ended: whoever waits for changes waits from now on, if not already."""
        for name in (SERVER, SINK):
            self.stages[name].note(now_s, False)
        self.stages[STREAM].note(now_s, True)
        self.depths = QueueDepths
        self.oldest_us = self.oldest_us or now_us

    def stand_by(self, now_s: float) -> None:
        """Another daemon has the slot: it publishes, and nothing waits for us."""
        self.state = State.WAITING
        self.stages[STREAM].note(now_s, False)
        self.oldest_us = 0

    def stalled(self, now_s: float) -> tuple[str, float]:
        """The stage at which work has waited the longest while nothing moved, and for how many seconds."""
        return max(self.stalls(now_s).items(), key=lambda stall: stall[1])

    def stalls(self, now_s: float) -> dict[str, float]:
        """Of every stage, for how many seconds work has waited there while nothing moved."""
        # Opening a stream takes steps that each have a bound of their own; that it takes too long, STREAM tells.
        loop_s = 0.0 if self.state is State.STARTING else max(0.0, now_s - self.turned_s)
        return {**{name: stage.stalled_s(now_s) for name, stage in self.stages.items()}, LOOP: loop_s}

    def is_alive(self, now_s: float) -> bool:
        """Whether all that has work moves. The first start may take its time: the supervisor bounds it."""
        return self.stalled(now_s)[1] < self.stalled_after_s

    def is_ready(self) -> bool:
        """Whether changes flow."""
        return self.state is State.STREAMING

    def is_available(self) -> bool:
        """Whether changes flow, or will as soon as the daemon that has the slot gives it back."""
        return self.state in (State.STREAMING, State.WAITING)
