"""Takes frames out of libpq's input buffer: the one loop of the source that every row passes. Pure: `get` does the I/O.

Before: `replication_stream` has let libpq read the socket. After: `replication_stream` hands the frames on.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64


def read_frames(
    get: Callable[[int], tuple[int, memoryview]], frames: list[bytes], frames_max: i64, bytes_max: i64
) -> tuple[i64, i64]:
    """Append to `frames` what `get(1)` gives (psycopg's `get_copy_data`), until it has no more or a bound is reached.

    At most `frames_max` of them, and no more once `bytes_max` are reached; both at least 1. Returns how many bytes were
    taken, and the last size that `get` told: above 0 at a bound, 0 when nothing more is buffered, -1 when the stream
    has ended. Raises what `get` raises; `frames` then has what came before.
    """
    taken: i64 = 0
    while True:
        told, view = get(1)
        size: i64 = told
        if size <= 0:
            return taken, size
        frames.append(view.tobytes())  # a third of what bytes(view) costs
        taken += size
        frames_max -= 1
        if frames_max <= 0 or taken >= bytes_max:
            return taken, size
