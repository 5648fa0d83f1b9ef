"""Keeps freed memory at hand, where the C library is glibc.

Before: `process` calls this at the start.
After: every allocation of the process: libpq's, Python's above 512 bytes, librdkafka's.
Source: mallopt(3).

The problem: a row passes through some six buffers of its size. By default glibc gives the end of its heap back to the
kernel as soon as that is a few buffers long, and takes it again for the next rows. The kernel clears each page again.
That is a quarter of the daemon's CPU where rows are large.

So a heap gives memory back only from KEPT_BYTES on, free at its end. glibc has a heap for each of the busy threads. A
block from MAPPED_BYTES on is a mapping of its own, and goes back as soon as it is free.
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT_BYTES: Final = 32 << 20
MAPPED_BYTES: Final = 4 << 20

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> bool:
    """Set the bounds for this process. False if the C library has no such bounds."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    )
