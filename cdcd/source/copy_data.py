"""Takes frames out of libpq's input buffer: every row passes this loop. Pure: `get` does the I/O.

Before: `replication_stream` (or `snapshot.reader`) has let libpq read the socket.
After: the same module hands the frames on.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64


def read_frames(
    get: Callable[[int], tuple[int, memoryview]], frames: list[bytes], frames_max: i64, bytes_max: i64
) -> tuple[i64, i64]:
    """Append what `get(1)` (psycopg's `get_copy_data`) gives to `frames`, until it has no more or a bound is reached.

    The bounds, both at least 1: at most `frames_max` frames, and no further frame once `bytes_max` bytes were read.
    Returns how many bytes were read, and the last size that `get` gave: above 0 at a bound, 0 when nothing more is
    buffered, -1 when the stream has ended. Raises what `get` raises; `frames` then holds the frames before.
    """
    taken: i64 = 0
    while True:
        nbytes, view = get(1)
        size: i64 = nbytes
        if size <= 0:
            return taken, size
        frames.append(view.tobytes())  # a third of what bytes(view) costs
        taken += size
        frames_max -= 1
        if frames_max <= 0 or taken >= bytes_max:
            return taken, size
