from __future__ import annotations

import os
import select
import signal

import pytest

from cdcd.daemon.stop_signals import StopSignals
from cdcd.wakeup import WakeupPipe


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_ends_a_wait_and_is_handled_as_before_afterwards(number: signal.Signals) -> None:
    wake, before = WakeupPipe(), signal.getsignal(number)
    signals = StopSignals(wake)
    with signals.handled():
        assert not signals.received
        os.kill(os.getpid(), number)
        assert select.select([wake.fd], [], [], 5.0)[0]
        assert signals.received
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0, "stopping may not take for ever"
    assert signal.getsignal(number) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    wake.close()
