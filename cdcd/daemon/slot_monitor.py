"""Watches the slot from outside the stream: how much WAL the server keeps for it, and whether COMMITs wait for it.

Before: `service_watch` looks every few seconds; `source.slot` asks the server, over a connection of its own.
After: `status` and `metrics` show the slot. The loop hands positions on faster while COMMITs wait for this daemon.

A look has a thread of its own because a server in trouble answers late, and the stream must not wait for that. If it
fails, the status keeps its last values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cdcd.config.settings import SourceSettings
from cdcd.errors import sentence
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import State, Status
from cdcd.source.server_errors import STANDBY_AWAY_HINT
from cdcd.source.session import Session, version_text
from cdcd.source.slot import Slot
from cdcd.source.synchronous_standby import commits_wait

log = logging.getLogger(__name__)

WAITS_SAID: Final = 3
"""A wait for a standby is logged when so many looks in a row have seen it. Short ones are usual."""


class SlotMonitor:
    """Watches one slot. For one thread."""

    def __init__(
        self, source: SourceSettings, status: Status, metrics: Metrics, wall_clock_us: Callable[[], int]
    ) -> None:
        """COMMITs that wait for the name of this session wait for the daemon, whose connections all have it.

        `wall_clock_us` returns microseconds since 1970 UTC.
        """
        self._session = Session(source.login, source.application_name)
        self._slot = Slot(self._session, source.slot)
        self._status = status
        self._metrics = metrics
        self._wall_clock_us = wall_clock_us
        self._was_seen = False
        self._waits = 0
        """Looks in a row that saw the server wait for a standby."""
        self._is_said = False

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def look(self) -> None:
        """Ask the server, and show what it says. Raises what `Session` raises."""
        if self._status.state is State.STREAMING:
            self._status.synchronous = commits_wait(self._session)
        state = self._slot.state()
        self._status.servers.postgresql = version_text(self._session.server_version)
        self._note_wait(state is not None and state.waits_for_standby)
        if state is not None:
            self._was_seen = True
            self._status.slot_state = state
            positions = self._status.positions
            wal_lsn = state.wal_lsn + positions.lsn_base
            positions.server_lsn = max(positions.server_lsn, wal_lsn)
            positions.wal.add(self._wall_clock_us(), wal_lsn, positions.durable_lsn)
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

    def _note_wait(self, waits: bool) -> None:
        """Log a wait for a standby that two looks saw, and its end: the stream is silent meanwhile."""
        self._waits = self._waits + 1 if waits else 0
        if self._waits == WAITS_SAID and not self._is_said:
            self._is_said = True
            waits_for = "PostgreSQL sends nothing, because it waits for a standby"
            log.warning("%s", sentence(waits_for, STANDBY_AWAY_HINT, "standby-away"), extra={"code": "standby-away"})
        elif not waits and self._is_said:
            self._is_said = False
            log.info("PostgreSQL does not wait for a standby any more")
