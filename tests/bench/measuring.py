"""What the benchmarks share: a process's memory and CPU time, a percentile, waiting."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path


def memory_mb(pid: int, name: str = "VmHWM") -> float:
    """A process's memory: VmHWM is its peak, VmRSS what it has now; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), default=0.0)


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, in all its threads; 0 once it has been waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: list[float], share: float) -> float:
    """Of ascending values; NaN if there are none."""
    return values[min(len(values) - 1, int(len(values) * share / 100))] if values else float("nan")


def until(ready: Callable[[], object], timeout_s: float) -> None:
    """Wait until `ready()`; ends the benchmark if it takes longer."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            sys.exit("waited too long")
        time.sleep(0.05)
