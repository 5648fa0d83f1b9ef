"""Watches the slot from outside the stream: how much WAL the server keeps for it, and whether COMMITs wait for it.

Before: `source.slot` asks the server, over a connection of its own.
After: `status` and `metrics` show the slot. The loop hands positions on faster while COMMITs wait for this daemon.

The monitor has a thread of its own because a server in trouble answers late, and the stream must not wait for that.
If a query fails, the status keeps its last values: the stream itself notices a lost server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cdcd.clock import monotonic_s, wall_us
from cdcd.errors import CdcdError
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import State, Status
from cdcd.source.session import Session
from cdcd.source.slot import Slot
from cdcd.source.synchronous_standby import commits_wait_for

INTERVAL_S: Final = 5.0


class SlotMonitor:
    """Watches one slot until `close`."""

    def __init__(
        self,
        dsn: str,
        application_name: str,
        slot: str,
        status: Status,
        metrics: Metrics,
        clock: Callable[[], float] = monotonic_s,
        wall_clock_us: Callable[[], int] = wall_us,
    ) -> None:
        """Start the thread. COMMITs that wait for `application_name` wait for this daemon.

        `clock` returns monotonic seconds, `wall_clock_us` microseconds since 1970 UTC.
        """
        self._session = Session(dsn, application_name)
        self._application_name = application_name
        self._slot = Slot(self._session, slot)
        self._status = status
        self._metrics = metrics
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self._was_seen = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cdcd-slot-monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching. Does not wait for an answer that is still on its way: the thread ends with the process."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            self._status.sample(self._clock(), self._wall_clock_us())
            with suppress(CdcdError):
                self._poll()
            self._closed.wait(INTERVAL_S)
        self._session.close()

    def _poll(self) -> None:
        if self._status.state is State.STREAMING:
            self._status.synchronous = commits_wait_for(self._session, self._application_name)
        state = self._slot.state()
        if state is not None:
            self._was_seen = True
            self._status.slot_state = state
            positions = self._status.positions
            positions.server_lsn = max(positions.server_lsn, state.wal_lsn)
            self._metrics.slot(
                active=state.active,
                lost=state.lost,
                wal_status=state.wal_status,
                retained_bytes=state.retained_bytes,
                lag_bytes=state.lag_bytes,
                safe_bytes=state.safe_wal_bytes if state.wal_status != "lost" else 0,
            )
        elif self._was_seen:  # a slot that was never seen is still to be created
            self._status.slot_state = None
            self._metrics.slot(active=False, lost=True, wal_status="", retained_bytes=0, lag_bytes=0, safe_bytes=0)
