"""What the benchmarks share: the daemon under test, a process's memory and CPU time, a percentile, waiting."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line, which may name another `cdcd`; end the benchmark if that `cdcd` is not compiled.

    From a checkout's root `python -m cdcd` finds the sources before the installed wheel, and measures a tenth of the
    speed: hence `-P`.
    """
    parser.add_argument("--cdcd", default=f"{sys.executable} -P -m cdcd", help="the command")
    parser.add_argument("--uncompiled", action="store_true", help="measure it although its hot modules are Python")
    given = parser.parse_args()
    refuse_uncompiled(given.cdcd, allowed=given.uncompiled)
    return given


def refuse_uncompiled(command: str, *, allowed: bool = False) -> None:
    """End the benchmark if `cdcd --version` says that its hot modules are Python, unless that is allowed."""
    done = subprocess.run([*command.split(), "--version"], capture_output=True, text=True, check=False)
    version = done.stdout.strip()
    if done.returncode != 0:
        sys.exit(f"{command} --version failed: {done.stderr.strip()}")
    if "(compiled)" not in version and not allowed:
        sys.exit(
            f"not compiled: {version}\nInstall the wheel with CDCD_COMPILE=require, or say --uncompiled to measure it."
        )


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


def value_of(connection: psycopg.Connection[Any], query: str, parameters: Sequence[object] = ()) -> Any:
    """The first column of the only row that a query gives."""
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None, query
    return row[0]
