"""The contestant `limit`: a bare reader of a slot, which only receives what the walsender sends.

    python tests/bench/receiving.py DSN SLOT OPTION=VALUE...

Before: `contestants` starts it as a process; `read_rate` uses its loop.
After: frames go to /dev/null, as with `pg_recvlogical`; positions go to the server at once.

It reads as the daemon does: by `ReplicationStream`, with the large input buffer, and in a backlog with a pause between
two reads. `INTERVAL_S` is shorter than the daemon's, because nothing but reading is to be done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from cdcd.clock import monotonic_s
from cdcd.source.read_pacing import ReadPacing
from cdcd.source.replication_stream import ReplicationStream

INTERVAL_S = 0.001
STATUS_INTERVAL_S = 0.01
WAIT_S = 0.01
FRAMES_MAX = 100_000
BYTES_MAX = 1 << 24
WRITE_FRAMES_MAX = 1_024
"""IOV_MAX of Linux."""


def reads(stream: ReplicationStream, pacing: ReadPacing, wait_s: float = 1.0) -> Iterator[list[bytes]]:
    """Read from a stream that has started, for ever; yields the frames of each read, none if nothing came in `wait_s`.

    Raises what the stream raises.
    """
    while True:
        frames = stream.read(FRAMES_MAX, BYTES_MAX)
        pacing.note_read(monotonic_s(), len(frames), stream.read_bytes)
        yield frames
        pause_s = pacing.pause_s(monotonic_s())
        stream.wait(pause_s or wait_s, reading=not pause_s)


def receive(dsn: str, slot: str, options: dict[str, str]) -> None:
    """Receive from the slot, and confirm what has come, until the process is ended."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    confirmed = received = 0
    due_s = 0.0
    with ReplicationStream(dsn) as stream:
        stream.enlarge_read_buffer()
        stream.start(slot, 0, options)
        for frames in reads(stream, ReadPacing(INTERVAL_S), WAIT_S):
            for at in range(0, len(frames), WRITE_FRAMES_MAX):
                os.writev(nowhere, frames[at : at + WRITE_FRAMES_MAX])
            for frame in reversed(frames):
                # Of XLogData the position of the change, of a Commit its end; of a keepalive the end of what was sent.
                if lsn := int.from_bytes(frame[1:9]):  # a Relation may have none
                    received = max(received, lsn)
                    break
            if received > confirmed and monotonic_s() >= due_s:
                stream.send_status(received, received, received)
                confirmed, due_s = received, monotonic_s() + STATUS_INTERVAL_S


if __name__ == "__main__":
    receive(sys.argv[1], sys.argv[2], dict(word.split("=", 1) for word in sys.argv[3:]))
