from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

BLOCKS, BLOCK_BYTES = 150, 100_000
PROGRAM = f"""
from pathlib import Path
{{first}}
def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * {os.sysconf("SC_PAGE_SIZE")}
before = resident_bytes()
blocks = [b"x" * {BLOCK_BYTES} for _ in range({BLOCKS})]
del blocks
print(resident_bytes() - before)
"""


def kept_bytes(first: str) -> int:
    """How much more memory a process has after some allocations, all of which it has freed."""
    mapped = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # each block goes back when it is free
    return int(subprocess.check_output([sys.executable, "-c", PROGRAM.format(first=first)], env=mapped))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is another one")
def test_freed_memory_stays_at_hand_up_to_a_bound() -> None:
    kept = kept_bytes("from cdcd.daemon.freed_memory import keep_freed_memory\nassert keep_freed_memory()")
    assert kept > BLOCKS * BLOCK_BYTES * 0.8
    assert kept_bytes("") < BLOCKS * BLOCK_BYTES * 0.2
