"""Watches the slot from outside the stream: how much WAL the server keeps for it, and whether COMMITs wait for it.

Before: `service_watch` looks every few seconds; `source.slot` asks the server, over a connection of its own.
After: `status` and `metrics` show the slot. The loop hands positions on faster while COMMITs wait for this daemon.

A look has a thread of its own because a server in trouble answers late, and the stream must not wait for that. If it
fails, the status keeps its last values.
"""

from __future__ import annotations

from collections.abc import Callable

from cdcd.config.settings import SourceSettings
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import State, Status
from cdcd.source.session import Session
from cdcd.source.slot import Slot
from cdcd.source.synchronous_standby import commits_wait


class SlotMonitor:
    """Watches one slot. For one thread."""

    def __init__(
        self, source: SourceSettings, status: Status, metrics: Metrics, wall_clock_us: Callable[[], int]
    ) -> None:
        """COMMITs that wait for the name of this session wait for the daemon, whose connections all have it.

        `wall_clock_us` returns microseconds since 1970 UTC.
        """
        self._session = Session(source.dsn, source.application_name)
        self._slot = Slot(self._session, source.slot)
        self._status = status
        self._metrics = metrics
        self._wall_clock_us = wall_clock_us
        self._was_seen = False

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def look(self) -> None:
        """Ask the server, and show what it says. Raises what `Session` raises."""
        if self._status.state is State.STREAMING:
            self._status.synchronous = commits_wait(self._session)
        state = self._slot.state()
        if state is not None:
            self._was_seen = True
            self._status.slot_state = state
            positions = self._status.positions
            positions.server_lsn = max(positions.server_lsn, state.wal_lsn)
            positions.wal.add(self._wall_clock_us(), state.wal_lsn, positions.durable_lsn)
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
