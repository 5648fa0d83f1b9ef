"""Shared by the benchmarks: the cdcd under test, a process's memory and CPU time, percentiles, waiting."""

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

from cdcd.build_info import build

COMPILE_HINT = "Install the wheel with CDCD_COMPILE=require, or add --uncompiled to measure it as it is."


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add the options --cdcd and --uncompiled, and read the command line.

    Ends the benchmark if that cdcd is not compiled, unless --uncompiled is given. The default command has `-P`:
    without it, in a checkout's root, Python would find the sources before the installed wheel, and the benchmark would
    measure a tenth of the speed.
    """
    parser.add_argument("--cdcd", default=f"{sys.executable} -P -m cdcd", help="command of the cdcd to measure")
    parser.add_argument("--uncompiled", action="store_true", help="measure cdcd even if it is not compiled")
    given = parser.parse_args()
    refuse_uncompiled(given.cdcd, allowed=given.uncompiled)
    return given


def refuse_uncompiled(command: str, *, allowed: bool = False) -> None:
    """End the benchmark if `cdcd --version` says that cdcd is not compiled, unless `allowed`."""
    done = subprocess.run([*command.split(), "--version"], capture_output=True, text=True, check=False)
    version = done.stdout.strip()
    if done.returncode != 0:
        sys.exit(f"{command} --version failed: {done.stderr.strip()}")
    if "(compiled)" not in version and not allowed:
        sys.exit(f"not compiled: {version}\n{COMPILE_HINT}")


def refuse_uncompiled_import(*, allowed: bool = False) -> None:
    """End the benchmark if the cdcd that this process imports is not compiled, unless `allowed`."""
    if build() == "pure" and not allowed:
        sys.exit(f"not compiled: the imported cdcd\n{COMPILE_HINT}")


def memory_mb(pid: int, name: str = "VmHWM") -> float:
    """A process's resident memory in MB: VmHWM is the peak, VmRSS the present value; 0 after the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), default=0.0)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, in all its threads; 0 after the process has been waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: list[float], share: float) -> float:
    """The percentile of ascending values; `share` is 0 to 100. NaN if there are no values."""
    return values[min(len(values) - 1, int(len(values) * share / 100))] if values else float("nan")


def until(ready: Callable[[], object], timeout_s: float) -> None:
    """Wait until `ready()` is true; ends the benchmark after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            sys.exit("waited too long")
        time.sleep(0.05)


def value_of(connection: psycopg.Connection[Any], query: str, parameters: Sequence[object] = ()) -> Any:
    """The first column of a query's only row."""
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None, query
    return row[0]
