from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from cdcd.daemon.stop_signals import StopSignals
from cdcd.wakeup import WakeupPipe

STOPPED = """
import os, signal, sys, time
from cdcd.daemon.stop_signals import StopSignals
from cdcd.wakeup import WakeupPipe

signals = StopSignals(WakeupPipe())
with signals.handled():
    os.kill(os.getpid(), signal.{first})
assert signals.received
for _ in range(3):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
print("ending", flush=True)


class Late:
    def __del__(self):  # the interpreter is at its end
        os.kill(os.getpid(), signal.SIGTERM)


sys.modules["late"] = Late()
sys.exit(3)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_ends_a_wait(number: signal.Signals) -> None:
    wake = WakeupPipe()
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    signals = StopSignals(wake)
    try:
        with signals.handled():
            assert not signals.received
            os.kill(os.getpid(), number)
            assert select.select([wake.fd], [], [], 5.0)[0]
            assert signals.received
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 0, "stopping may not take for ever"
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        assert signal.getsignal(signal.SIGALRM) is before[signal.SIGALRM]
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        wake.close()


def test_a_hang_up_stops_a_daemon_on_a_terminal_and_is_handed_on_by_another() -> None:
    wake, before = WakeupPipe(), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    hang_ups: list[int] = []
    try:
        signals = StopSignals(wake, lambda: hang_ups.append(1))
        with signals.handled():
            os.kill(os.getpid(), signal.SIGHUP)
            assert hang_ups == [1]
            assert not signals.received
        on_terminal = StopSignals(wake)
        with on_terminal.handled():
            os.kill(os.getpid(), signal.SIGHUP)
            assert on_terminal.received
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        kept = StopSignals(wake)
        with kept.handled():
            os.kill(os.getpid(), signal.SIGHUP)
            assert not kept.received
    finally:
        signal.signal(signal.SIGHUP, before)
        wake.close()


def test_without_a_signal_all_are_handled_as_before_afterwards() -> None:
    wake, before = WakeupPipe(), signal.getsignal(signal.SIGTERM)
    with StopSignals(wake).handled():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    wake.close()


@pytest.mark.parametrize("first", ["SIGTERM", "SIGINT"])
def test_a_later_signal_does_not_change_the_exit_code(first: str) -> None:
    ended = subprocess.run([sys.executable, "-c", STOPPED.format(first=first)], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, b"ending\n"), ended.stderr
