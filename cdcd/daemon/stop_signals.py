"""SIGTERM and SIGINT ask the daemon to stop; if that takes too long, the daemon leaves at once.

Before: the operating system, a person or Kubernetes sends the signal.
After: `supervisor` and `pipeline` see `received`, and finish in order. SIGHUP goes to `settings_watch`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)

LEAVE_AFTER_S: Final = 9.0


class StopTookTooLong(BaseException):
    """Leave at once. The server sends again what Kafka has not committed, so nothing is lost."""


class StopSignals:
    """Whether a signal came. For the main thread."""

    def __init__(self, wake: WakeupPipe, on_hangup: Callable[[], None] | None = None) -> None:
        """A signal sets `wake`, which ends every wait.

        `on_hangup` is called at SIGHUP, within the handler; None: SIGHUP asks to stop, too, because a terminal is gone.
        """
        self._wake = wake
        self._on_hangup = on_hangup
        self.received = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals within this context. It raises StopTookTooLong LEAVE_AFTER_S after the first one.

        Once a signal has come, more of them change nothing until the process has ended: the exit code is the daemon's.
        """

        def stop(number: int, _: FrameType | None) -> None:
            if not self.received:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
                self.received = True
                signal.setitimer(signal.ITIMER_REAL, LEAVE_AFTER_S)
            self._wake.set()

        def give_up(_: int, __: FrameType | None) -> None:
            raise StopTookTooLong

        def hang_up(number: int, frame: FrameType | None) -> None:
            if self._on_hangup is None:
                stop(number, frame)
            else:
                self._on_hangup()

        handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGALRM: give_up}
        if self._on_hangup is not None or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            handlers[signal.SIGHUP] = hang_up
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        wakeup_fd = signal.set_wakeup_fd(self._wake.write_fd, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.set_wakeup_fd(wakeup_fd)
            for number, handler in before.items():
                # At its end the interpreter gives up every handler of its own, and a signal would end it.
                ignores = self.received and number != signal.SIGALRM
                signal.signal(number, signal.SIG_IGN if ignores else handler)
