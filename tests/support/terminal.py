"""A process on a terminal of its own, as a person has it: what it writes there, its size, and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Self


class OnTerminal:
    """A command whose standard streams are a terminal. Use it in a `with`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], columns: int = 100, rows: int = 60
    ) -> None:
        self._terminal, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.text = ""
        """All that was written so far."""
        # COLUMNS and LINES would say more than the terminal.
        kept = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            command, stdin=side, stdout=side, stderr=side, env={**kept, "TERM": "xterm"}, start_new_session=True
        )
        os.close(side)

    def read_until(self, words: str, timeout_s: float = 30.0) -> str:
        """Read until these words came; returns everything so far."""
        deadline = time.monotonic() + timeout_s
        while words not in self.text:
            assert time.monotonic() < deadline, f"no {words!r} on the terminal:\n{self.text[-3000:]}"
            if not self._read(0.2):
                raise AssertionError(f"it ended without {words!r}:\n{self.text[-3000:]}")
        return self.text

    def interrupt(self) -> None:
        """Send what Ctrl-C sends."""
        self._process.send_signal(signal.SIGINT)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Read to the end; returns the exit code."""
        deadline = time.monotonic() + timeout_s
        while self._read(0.2):
            assert time.monotonic() < deadline, f"it does not end:\n{self.text[-3000:]}"
        return self._process.wait(timeout_s)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._terminal], [], [], wait_s)[0]:
            return True
        try:
            piece = os.read(self._terminal, 1 << 16)
        except OSError:  # Linux says EIO when nobody has the other side any more
            return False
        self.text += piece.decode(errors="replace")
        return bool(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._terminal)
