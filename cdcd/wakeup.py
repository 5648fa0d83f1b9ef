"""Wakes a thread that waits on sockets: another thread writes a byte to a pair of them.

Before: any thread calls `set`. After: the waiting thread polls `fd`, and calls `clear` when it has woken.
"""

from __future__ import annotations

import select
import socket


class WakeupPipe:
    """An event that a poll can wait for. Setting it twice wakes once."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    @property
    def fd(self) -> int:
        """Readable from `set` until `clear`."""
        return self._read.fileno()

    @property
    def write_fd(self) -> int:
        """For `signal.set_wakeup_fd`: a signal sets the event."""
        return self._write.fileno()

    def set(self) -> None:
        """Wake whoever polls; for any thread, never blocks."""
        try:
            self._write.send(b"\0")
        except (BlockingIOError, OSError):
            return  # full: it is set already; closed: nobody waits any more

    def wait(self, timeout_s: float) -> None:
        """Wait until the event is set, at most so long."""
        select.select([self._read], [], [], timeout_s)

    def clear(self) -> None:
        """Forget all that was set so far."""
        try:
            while self._read.recv(4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give both ends back."""
        self._read.close()
        self._write.close()
