"""What the daemon is doing, as plain values: the supervisor and the pipeline write it, the health server shows it.

Before: `supervisor` sets `state`, `pipeline` the positions and `turned_s` once a turn.
After: `health` answers probes and draws the status page from it.

Each attribute has one writer and is replaced as a whole, so that another thread may read it at any time without a lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from cdcd.lsn import INVALID

ALIVE_WITHIN_S: Final = 60.0
"""A loop that has not turned for so long hangs. The longest thing that it waits for is a Kafka commit."""

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


class Rate:
    """Events a second, over the last RATE_WINDOW_S whole seconds: a ring of one count a second."""

    def __init__(self) -> None:
        self._counts = [0] * (RATE_WINDOW_S + 1)
        self._second = 0

    def add(self, now_s: float, count: int) -> None:
        """So many happened at `now_s` (monotonic)."""
        self._turn_to(int(now_s))
        self._counts[self._second % len(self._counts)] += count

    def per_second(self, now_s: float) -> float:
        """The mean of the window that ends before the second of `now_s`."""
        self._turn_to(int(now_s))
        running = self._counts[self._second % len(self._counts)]
        return (sum(self._counts) - running) / RATE_WINDOW_S

    def _turn_to(self, second: int) -> None:
        for passed in range(max(self._second + 1, second - RATE_WINDOW_S), second + 1):
            self._counts[passed % len(self._counts)] = 0
        self._second = max(self._second, second)


class Status:
    """The state of one daemon. LSNs are end-exclusive, times monotonic seconds unless the name says otherwise."""

    def __init__(self, version: str, slot: str, publication: str, now_s: float) -> None:
        self.version = version
        self.slot = slot
        self.publication = publication
        self.started_s = now_s
        self.state = State.STARTING
        self.turned_s = now_s
        """When the loop turned last."""
        self.server = ""
        """PostgreSQL's version and database, as people read them."""
        self.broker = ""
        """Kafka's cluster, as people read it."""
        self.received_lsn = INVALID
        self.durable_lsn = INVALID
        self.acked_lsn = INVALID
        self.server_lsn = INVALID
        """The end of the server's WAL, as the last message from it said."""
        self.lag_s = 0.0
        """Age of the oldest received commit that is not durable; 0 when there is none."""
        self.transactions = 0
        self.rows = 0
        self.rows_rate = Rate()
        self.tables: Mapping[str, int] = {}
        """Events published since the start, by relation (`schema.table`)."""
        self.restarts = 0
        self.last_error = ""
        self.last_error_s = 0.0

    @property
    def lag_bytes(self) -> int:
        """WAL that the server has written and Kafka does not hold: derived, so it is right whenever its parts are."""
        return max(0, self.server_lsn - self.durable_lsn) if self.durable_lsn != INVALID else 0

    def published(self, now_s: float, transactions: int, rows: Mapping[str, int]) -> None:
        """A Kafka transaction is committed: `rows` are its events by relation."""
        tables = dict(self.tables)
        for relation, count in rows.items():
            tables[relation] = tables.get(relation, 0) + count
        total = sum(rows.values())
        self.tables = tables
        self.rows += total
        self.transactions += transactions
        self.rows_rate.add(now_s, total)

    def failed(self, now_s: float, error: BaseException) -> None:
        """Remember an error for the status page."""
        self.last_error = str(error)
        self.last_error_s = now_s

    def is_alive(self, now_s: float) -> bool:
        """Whether the loop turned lately. Making a slot may take minutes, which has a bound of its own."""
        return self.state is State.STARTING or now_s - self.turned_s < ALIVE_WITHIN_S

    def is_ready(self) -> bool:
        """Whether changes flow."""
        return self.state is State.STREAMING
