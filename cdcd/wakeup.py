"""Wakes a thread that polls sockets: another thread writes a byte into a socket pair.

Before: any thread calls `set`. After: the polling thread wakes up, and calls `clear`.
"""

from __future__ import annotations

import select
import socket


class WakeupPipe:
    """An event with a file descriptor, for poll. If it is set twice, the thread wakes up once."""

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
        """Wake the thread that polls. Any thread may call this; it never blocks."""
        try:
            self._write.send(b"\0")
        except (BlockingIOError, OSError):
            return  # full: the event is set already; closed: no thread waits

    def wait(self, timeout_s: float) -> None:
        """Wait until the event is set, or until `timeout_s` has passed."""
        select.select([self._read], [], [], timeout_s)

    def clear(self) -> None:
        """Unset the event."""
        try:
            while self._read.recv(4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close both sockets."""
        self._read.close()
        self._write.close()
