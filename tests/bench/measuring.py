"""Shared by the benchmarks: the cdcd under test; memory, CPU time and output of processes; percentiles, waiting."""

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
from servers.processes import children

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
    return _cpu_s_in(fields)


def family_cpu_s(pid: int) -> float:
    """CPU seconds that a process and its children have used, those that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return _cpu_s_in(fields) + _cpu_s_in(fields[2:]) + sum(map(cpu_s, children(pid)))


def threads_cpu_s(pid: int, name: str) -> float:
    """CPU seconds of the process's threads whose names begin with `name`; 0 after the process has ended.

    Linux keeps 15 characters of a thread's name. A call reads a file for each thread: call it now and then only.
    """
    used_s = 0.0
    for stat in Path(f"/proc/{pid}/task").glob("[0-9]*/stat"):
        try:
            beginning, _, fields = stat.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if beginning.partition("(")[2].startswith(name):
            used_s += _cpu_s_in(fields.split())
    return used_s


def _cpu_s_in(fields: Sequence[str]) -> float:
    """User and system seconds in the fields of a /proc/PID/stat, from the state on."""
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_s() -> tuple[float, float]:
    """Seconds, over all cores and since the boot, in which a core was busy; and in all."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]  # without guests, whom `user` has already
    ticks = [int(field) for field in fields]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")


def written_bytes(pid: int) -> int:
    """How many bytes the process has written to files, /dev/null included, sockets not; 0 after it has ended."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), 0)


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
