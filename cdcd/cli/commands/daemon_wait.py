"""Waits for the daemon that takes a request, and never without a word: for `snapshot`, `unpark`, `verify --repair`.

Before: a command is about to send a request, or has sent it. After: the daemon takes it, or a sentence says why not.

The slot tells whether there is a daemon, wherever it runs: PostgreSQL shows whether somebody streams from it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from cdcd.clock import monotonic_s
from cdcd.config.settings import Settings
from cdcd.errors import PostgresUnavailable, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.records import SlotRecord
from cdcd.source.session import Session
from cdcd.source.slot import Slot
from cdcd.terminal.text_format import duration

COMES_WITHIN_S: Final = 10.0
"""Before a request is sent, the daemon may be away so long: it may be starting again."""

AWAY_MAX_S: Final = 30.0
"""The daemon that is to take a request may be away so long."""

LOOK_EVERY_S: Final = 2.0
SAY_EVERY_S: Final = 5.0

log = logging.getLogger(__name__)


class DaemonWait:
    """One command's wait for the daemon. Use it in a `with`."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`clock` returns seconds and never goes back; `sleep` waits."""
        source = settings.source
        self._slot = Slot(Session(source.login, source.application_name), source.slot)
        self._clock = clock
        self._sleep = sleep
        self._seen_s = self._said_s = self._looked_s = clock()

    def until_there(self) -> None:
        """Wait until a daemon uses the slot. Raises RequestRejected if none comes: then nothing was asked for."""
        since_s, is_said = self._clock(), False
        while not self._is_there():
            waited_s = self._clock() - since_s
            if waited_s >= COMES_WITHIN_S:
                raise RequestRejected(
                    f"no daemon uses the slot {self._slot.name}, so nobody takes the request",
                    "Start the daemon: cdcd run. Or leave the request for the daemon that starts next: --no-wait",
                    code="daemon-missing",
                )
            if not is_said:
                is_said = True
                log.info("no daemon uses the slot %s; waiting %s for one", self._slot.name, duration(COMES_WITHIN_S))
            self._sleep(0.5)
        self._seen_s = self._said_s = self._looked_s = self._clock()

    def turn(self, wait_s: float, last: SlotRecord | None, received_lsn: int) -> None:
        """Wait for `wait_s`, once the request is sent; say from time to time how far the daemon is.

        `last`: the last slot record. `received_lsn`: as in SentRequest. Raises RequestRejected if no daemon is there.
        """
        self._sleep(wait_s)
        now = self._clock()
        if now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            if self._may_be_there():
                self._seen_s = now
        if now - self._seen_s >= AWAY_MAX_S:
            raise RequestRejected(
                f"no daemon has used the slot {self._slot.name} for {duration(now - self._seen_s)}",
                "Start the daemon: cdcd run. It takes the request, which waits in PostgreSQL: do not make it again",
                code="daemon-missing",
            )
        if now - self._said_s >= SAY_EVERY_S:
            self._said_s = now
            come_to = 0 if last is None else last.lsn
            if come_to >= received_lsn:
                log.info("the daemon has the request; waiting until it is done")
            else:
                lsns = {"in_kafka": format_lsn(come_to), "request": format_lsn(received_lsn)}
                log.info("waiting until the daemon comes to the request", extra=lsns)

    def _is_there(self) -> bool:
        state = self._slot.state()
        if state is None:
            raise RequestRejected(
                f"the slot {self._slot.name} does not exist, so there is no daemon that takes the request",
                "Start the daemon: cdcd run. Or correct source.slot and source.dsn, which must be those of the daemon",
                code="daemon-missing",
            )
        return state.active

    def _may_be_there(self) -> bool:
        """Whether a daemon uses the slot, or PostgreSQL does not tell."""
        try:
            state = self._slot.state()
        except PostgresUnavailable:
            return True
        return state is not None and state.active

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._slot.close()
