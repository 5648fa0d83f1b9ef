"""What a second slot gains and what it costs the server: one daemon compared with two shards, in the same run.

    python tests/bench/shards.py [--rows 400000] [--runs 3] [--pg 18]

Each run makes the same backlog, 12-column rows in four tables, 100 rows a transaction, and drains it exactly once: by
one slot with all four tables, and by two slots with two tables each, at the same time, into one prefix. A rate counts
all rows, from the moment the first daemon logs "going on" until the last slot is confirmed up to the end. CPU a row is
the CPU of all daemons (with their start) and of all walsenders until then, divided by all rows. Each walsender decodes
the whole WAL, also the tables that its publication leaves out: this is the server's cost of each slot.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from bench.measuring import cpu_s, memory_mb, parse, until, value_of  # noqa: E402
from bench.workloads import FILL, ORDERS  # noqa: E402
from support import daemon as installed  # noqa: E402

TABLES = ("orders_1", "orders_2", "orders_3", "orders_4")
SHARDS = {1: (TABLES,), 2: (TABLES[:2], TABLES[2:])}
TRANSACTION = 100
TIMEOUT_S = 600.0


def main() -> None:
    """Print one line for each drain, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000, help="rows of the backlog (default: 400000)")
    parser.add_argument("--runs", type=int, default=3, help="drains of each number of slots (default: 3)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    arguments = parse(parser)
    installed.command = arguments.cdcd.split
    measured: dict[int, list[tuple[float, float, float]]] = {number: [] for number in SHARDS}
    with (
        servers.PostgreSQL(arguments.pg, fsync=False) as postgres,
        servers.Kafka(jvm=()) as kafka,
        psycopg.connect(postgres.dsn(), autocommit=True) as sql,
    ):
        for table in TABLES:
            sql.execute(ORDERS.replace(" orders ", f" {table} "))
        for shards in SHARDS.values():
            for tables in shards:
                sql.execute(f"CREATE PUBLICATION {_publication(tables)} FOR TABLE {', '.join(tables)}")
        for run in range(arguments.runs):
            for number in SHARDS if run % 2 == 0 else reversed(SHARDS):
                measured[number].append(_drain(sql, postgres, kafka, number, run, arguments.rows))
    for number, runs in measured.items():
        rate, daemons, walsenders = (statistics.median(values) for values in zip(*runs, strict=True))
        print(
            f"median: {number} slot{'s' * (number > 1)} {rate:,.0f} rows/s, CPU a row: daemons {daemons:.2f} us, "
            f"walsenders {walsenders:.2f} us"
        )


def _drain(
    sql: psycopg.Connection, postgres: servers.PostgreSQL, kafka: servers.Kafka, number: int, run: int, rows: int
) -> tuple[float, float, float]:
    """Drain one backlog; returns rows a second, and CPU microseconds a row of all daemons and of all walsenders."""
    slots = [f"shard_{number}_{run}_{shard}" for shard in range(number)]
    sql.execute(f"TRUNCATE {', '.join(TABLES)}")
    for slot in slots:
        sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    _fill(sql, rows)
    end = value_of(sql, "SELECT pg_current_wal_lsn()")
    with ExitStack() as stack:
        daemons = []
        for slot, tables in zip(slots, SHARDS[number], strict=True):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            source = {"slot": slot, "publication": _publication(tables), "messages": False}
            prefix, snapshot = f"bench-{number}-{run}", {"mode": "never"}
            made = installed.Daemon(folder, postgres.dsn(), kafka.bootstrap, prefix, source=source, snapshot=snapshot)
            daemons.append(stack.enter_context(made).start())
        until(lambda: any("going on" in daemon.log.read_text() for daemon in daemons), TIMEOUT_S)
        started = time.monotonic()
        query = "SELECT bool_and(confirmed_flush_lsn >= %s::pg_lsn) FROM pg_replication_slots WHERE slot_name = ANY(%s)"
        until(lambda: value_of(sql, query, (end, slots)), TIMEOUT_S)
        seconds = time.monotonic() - started
        daemons_us = [cpu_s(daemon.pid) / rows * 1e6 for daemon in daemons]
        query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = ANY(%s) ORDER BY slot_name"
        walsenders_us = [cpu_s(pid) / rows * 1e6 for (pid,) in sql.execute(query, (slots,)).fetchall()]
        peak = sum(memory_mb(daemon.pid) for daemon in daemons)
        if any(daemon.stop() for daemon in daemons):
            sys.exit("a daemon ended with an exit code other than 0")
    for slot in slots:
        sql.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    print(
        f"{number} slot{'s' * (number > 1):1} {rows / seconds:9,.0f} rows/s  {seconds:6.2f} s  CPU a row: daemons "
        f"{_sum(daemons_us)} us, walsenders {_sum(walsenders_us)} us  {peak:5.0f} MB",
        flush=True,
    )
    return rows / seconds, sum(daemons_us), sum(walsenders_us)


def _fill(sql: psycopg.Connection, rows: int) -> None:
    sql.execute("SET synchronous_commit = off")
    for transaction, first in enumerate(range(1, rows + 1, TRANSACTION)):
        fill = FILL.replace(" orders ", f" {TABLES[transaction % len(TABLES)]} ")
        sql.execute(fill.format(first=first, last=min(first + TRANSACTION - 1, rows)))
    sql.execute("SET synchronous_commit = on")
    sql.execute("SELECT pg_logical_emit_message(true, 'end', 'end')")  # flushes the WAL before it
    sql.execute("CHECKPOINT")


def _publication(tables: tuple[str, ...]) -> str:
    return "of_" + "_".join(tables)


def _sum(parts: list[float]) -> str:
    return " + ".join(f"{part:.2f}" for part in parts)


if __name__ == "__main__":
    main()
