"""How fast cdcd takes a table's snapshot, next to PostgreSQL's COPY, and how much a snapshot delays the stream.

    python tests/bench/snapshot.py [--rows 1000000] [--rate 200] [--pg 18] [--runs 3] [--daemons 2]
    python tests/bench/snapshot.py --daemon-cores 0 --other-cores 1

The first part compares rates, in rows a second, for a 12-column table:

- COPY: `COPY ... TO STDOUT (FORMAT binary)` by psql to /dev/null, on two connections with half of the blocks each.
- cdcd: a first run with two workers, exactly once, into Kafka. The time counts from the moment the snapshot is exported
  until Kafka has its last row. The peak memory is printed, too.
- librdkafka: the client alone writes the same events from memory, with both cores for itself and the broker.
- their sum: COPY first, and librdkafka after it, as one rate. No program that uses both is faster on cores that it
  shares with the servers.

For COPY and cdcd, the CPU a row of each part follows: the server's, and the client's; of cdcd the daemon without
librdkafka's threads, these, and the broker. Rates depend on what else the machine does, the CPU a row hardly.

With `--daemons 2` each of two tables has half of the rows, and a daemon of its own. `--daemon-cores` and
`--other-cores` (as for taskset) give cores to the daemons, and to everything else. `--against` measures another cdcd in
turn.

In the second part, a daemon streams single-row transactions of another table. Then the first table, which is updated
all the time, is added to its publication. The latency of the small transactions is printed for the time before the
snapshot and for the time of the snapshot.

The limits: cdcd has at least 40 % of COPY's rate, the latency's p99 rises by less than 50 ms, and the peak memory is
below 250 MB. The exit code is 1 if a limit is exceeded. Server, broker, daemon, writers and consumer share the machine.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from bench import ticks  # noqa: E402
from bench.contestants import client  # noqa: E402
from bench.measuring import (  # noqa: E402
    cpu_s,
    family_cpu_s,
    memory_mb,
    parse,
    percentile,
    threads_cpu_s,
    until,
)
from bench.workloads import FILL, ORDERS  # noqa: E402
from support.topics import Topics  # noqa: E402

from cdcd.sink.kafka.client_config import KafkaConnection, transactional_producer_config  # noqa: E402

SHARE_MIN = 0.4
LATER_MAX_MS = 50.0
RSS_MAX_MB = 250.0
BEGUN, COMPLETE = "took a snapshot", "the snapshot is complete"
COPY_MAX_S = 600.0


def main() -> None:
    """Print the figures, and exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default: 1000000)")
    parser.add_argument("--rate", type=int, default=200, help="small transactions a second (default: 200)")
    parser.add_argument("--runs", type=int, default=3, help="runs of the first part (default: 3)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    parser.add_argument("--daemons", type=int, default=1, help="daemons of the first part (default: 1)")
    parser.add_argument("--daemon-cores", default="", help="cores of the daemons, such as 0,1 (default: all)")
    parser.add_argument("--other-cores", default="", help="cores of everything else (default: all)")
    parser.add_argument("--against", default="", help="command of another cdcd, to measure in turn in the first part")
    parser.add_argument("--parts", default="speed,added", help="the parts to run (default: speed,added)")
    given = parse(parser)
    if given.daemon_cores:
        given.cdcd = f"taskset -c {given.daemon_cores} {given.cdcd}"
        given.against = given.against and f"taskset -c {given.daemon_cores} {given.against}"
    if given.other_cores:
        os.sched_setaffinity(0, map(int, given.other_cores.split(",")))  # what this process starts inherits it
    with (
        servers.PostgreSQL(given.pg, fsync=False, settings={"max_wal_size": "4GB"}) as postgres,
        servers.Kafka(jvm=()) as kafka,
        tempfile.TemporaryDirectory() as folder,
    ):
        with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
            _fill(sql, "orders", given.rows)
        good = True
        if "speed" in given.parts:
            good &= _speed(postgres, kafka, Path(folder), given)
        if "added" in given.parts:
            good &= _added(postgres, kafka, Path(folder), given)
    sys.exit(0 if good else 1)


def _fill(sql: psycopg.Connection, table: str, rows: int) -> None:
    sql.execute(ORDERS.replace(" orders ", f" {table} ").encode())
    sql.execute(FILL.replace(" orders ", f" {table} ").format(first=1, last=rows).encode())
    sql.execute(f"VACUUM (FREEZE, ANALYZE) {table}".encode())


# The first part: rates


def _speed(postgres: servers.PostgreSQL, kafka: servers.Kafka, folder: Path, given: argparse.Namespace) -> bool:
    commands = {"cdcd": given.cdcd} | ({"against": given.against} if given.against else {})
    rates: dict[str, list[float]] = {name: [] for name in ("COPY", "librdkafka", *commands)}
    spent: dict[str, list[Mapping[str, float]]] = {name: [] for name in ("COPY", *commands)}
    peaks_mb = dict.fromkeys(commands, 0.0)
    tables = ["orders"] if given.daemons == 1 else [f"orders_{number}" for number in range(given.daemons)]
    rows = given.rows // len(tables) * len(tables)
    with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
        for table in tables:
            if table != "orders":
                _fill(sql, table, rows // len(tables))
            sql.execute(f"CREATE PUBLICATION of_{table} FOR TABLE {table}".encode())
    for run in range(given.runs):
        seconds, by_part = _copy(postgres)
        rates["COPY"].append(given.rows / seconds)
        spent["COPY"].append({part: used_s / given.rows * 1e6 for part, used_s in by_part.items()})
        for name in commands if run % 2 == 0 else reversed(commands):
            prefix = f"{name}_{run}"
            seconds, by_part, peak_mb = _first_run(postgres, kafka, folder, prefix, tables, commands[name])
            peaks_mb[name] = max(peaks_mb[name], peak_mb)
            rates[name].append(rows / seconds)
            spent[name].append({part: used_s / rows * 1e6 for part, used_s in by_part.items()})
            with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
                sql.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        rates["librdkafka"].append(given.rows / _produce(kafka, f"cdcd-{run}", tables[0], given.rows))
        print(
            ", ".join(f"{name} {found[-1]:,.0f}" for name, found in rates.items()),
            "rows/s;",
            "; ".join(f"CPU a row of {name}: {_parts(found[-1])}" for name, found in spent.items()),
            flush=True,
        )
    copy, librdkafka, cdcd, *_ = (statistics.median(found) for found in rates.values())
    both = 1 / (1 / copy + 1 / librdkafka)
    print(
        f"median: cdcd {cdcd:,.0f}, COPY {copy:,.0f}, librdkafka {librdkafka:,.0f}, their sum {both:,.0f} rows/s; "
        f"cdcd is {cdcd / copy:.2f} of COPY (their sum {both / copy:.2f}), {cdcd / librdkafka:.2f} of librdkafka, "
        f"{cdcd / both:.2f} of their sum; peak {peaks_mb['cdcd']:.0f} MB"
    )
    for name, found in spent.items():
        medians = {part: statistics.median(each[part] for each in found) for part in found[0]}
        print(f"median of {name}: {statistics.median(rates[name]):,.0f} rows/s, CPU a row {_parts(medians)}")
    return cdcd >= SHARE_MIN * copy and peaks_mb["cdcd"] < RSS_MAX_MB


def _parts(spent_us: Mapping[str, float]) -> str:
    each = ", ".join(f"{part} {used_us:.2f}" for part, used_us in spent_us.items())
    return f"{sum(spent_us.values()):.2f} us ({each})"


def _first_run(
    postgres: servers.PostgreSQL,
    kafka: servers.Kafka,
    folder: Path,
    prefix: str,
    tables: list[str],
    command: str,
) -> tuple[float, dict[str, float], float]:
    """Copy the tables, each by a daemon; returns seconds, CPU seconds by part, and the daemons' peak MB."""
    logs = [folder / f"log-{prefix}-{table}" for table in tables]
    processes = []
    for number, (table, log) in enumerate(zip(tables, logs, strict=True)):
        own = prefix if number == 0 else f"{prefix}_{number}"
        config = _config(folder, postgres, kafka, own, f"of_{table}")
        with log.open("wb") as output:
            processes.append(subprocess.Popen([*command.split(), "run", "--config", str(config)], stderr=output))
    pids = [process.pid for process in processes]

    def used_s() -> dict[str, float]:
        librdkafka_s = sum(threads_cpu_s(pid, "rdk:") for pid in pids)
        return {
            "server": family_cpu_s(postgres.pid),
            "daemon": sum(map(cpu_s, pids)) - librdkafka_s,
            "librdkafka": librdkafka_s,
            "broker": cpu_s(kafka.pid),
        }

    try:
        until(lambda: all(BEGUN in log.read_text() for log in logs) or _ended(processes, logs), COPY_MAX_S)
        began = used_s()
        until(lambda: all(COMPLETE in log.read_text() for log in logs) or _ended(processes, logs), COPY_MAX_S)
        ended, peak_mb = used_s(), sum(map(memory_mb, pids))
    finally:
        for process in processes:
            process.terminate()
            process.wait(30)
    said = [log.read_text() for log in logs]
    seconds = max(_at(each, COMPLETE) for each in said) - min(_at(each, BEGUN) for each in said)
    return seconds, {part: ended[part] - began[part] for part in ended}, peak_mb


def _ended(processes: list[subprocess.Popen[bytes]], logs: list[Path]) -> bool:
    """Ends the benchmark if a daemon failed; else False."""
    for process, log in zip(processes, logs, strict=True):
        if process.poll():
            sys.exit(log.read_text())
    return False


def _copy(postgres: servers.PostgreSQL) -> tuple[float, dict[str, float]]:
    """How many seconds COPY takes on two connections, and how many CPU seconds the server and psql."""
    with psycopg.connect(postgres.dsn()) as sql:
        [(blocks,)] = sql.execute("SELECT pg_relation_size('orders') / 8192").fetchall()
    began, before_s, children_s = time.monotonic(), family_cpu_s(postgres.pid), os.times()
    psql = Path(client()).with_name("psql")
    halves = [
        subprocess.Popen(
            [psql, postgres.dsn(), "-qc", f"COPY (SELECT * FROM orders WHERE {half}) TO STDOUT (FORMAT binary)"],
            stdout=subprocess.DEVNULL,
        )
        for half in (f"ctid < '({blocks // 2},0)'", f"ctid >= '({blocks // 2},0)'")
    ]
    for half in halves:
        if half.wait():
            sys.exit("psql failed")
    seconds, now = time.monotonic() - began, os.times()
    psql_s = now.children_user + now.children_system - children_s.children_user - children_s.children_system
    return seconds, {"server": family_cpu_s(postgres.pid) - before_s, "psql": psql_s}


def _produce(kafka: servers.Kafka, prefix: str, table: str, rows: int) -> float:
    """How many seconds librdkafka, set as in cdcd, takes to write `rows` events of the snapshot to another topic."""
    events = [
        {"key": seen.key(), "value": seen.value()}
        for seen in islice(Topics(kafka.bootstrap, prefix).raw(f"{prefix}.public.{table}"), 50_000)
    ]
    topic = f"{prefix}.alone"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(transactional_producer_config(KafkaConnection(kafka.bootstrap, "alone"), topic, 60_000))
    producer.init_transactions(30)
    producer.begin_transaction()
    began, left = time.monotonic(), rows
    while left > 0:
        for at in range(0, min(left, len(events)), 1_000):
            some = [dict(event) for event in events[at : at + 1_000]]
            while some := some[producer.produce_batch(topic, some, 0) :]:
                for event in some:
                    event.pop("_error", None)
                producer.poll(0.01)
        left -= len(events)
    producer.commit_transaction(60)
    return time.monotonic() - began


# The second part: a snapshot while a stream runs


def _added(postgres: servers.PostgreSQL, kafka: servers.Kafka, folder: Path, given: argparse.Namespace) -> bool:
    prefix = "added"
    with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
        sql.execute(ticks.SCHEMA.encode())
        sql.execute("CREATE PUBLICATION added FOR TABLE ticks")
    config = _config(folder, postgres, kafka, prefix, "added")
    log = folder / "log-added"
    with log.open("wb") as output:
        process = subprocess.Popen([*given.cdcd.split(), "run", "--config", str(config)], stderr=output)
    done = threading.Event()
    try:
        until(lambda: COMPLETE in log.read_text(), 60)
        with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
            for number in range(300):  # makes the topic, and warms the broker's JIT
                sql.execute("INSERT INTO ticks VALUES (%s, clock_timestamp())", (-1 - number,))
                time.sleep(0.01)
            small, arrivals = ticks.Ticks(postgres.dsn(), given.rate), ticks.Arrivals(kafka.bootstrap, prefix)
            arrivals.start()
            arrivals.ready.wait(20)
            small.start()
            changing = threading.Thread(target=_change, args=(postgres.dsn(), given.rows, done), daemon=True)
            changing.start()
            time.sleep(10)
            sql.execute("ALTER PUBLICATION added ADD TABLE orders")
            until(lambda: log.read_text().count(COMPLETE) == 2, 300)
            time.sleep(3)
            done.set()
            changing.join()
            small.done.set()
            small.join()
            until(lambda: len(arrivals.seen) >= small.count, 60)
            arrivals.done.set()
        peak_mb = memory_mb(process.pid)
    finally:
        process.terminate()
        process.wait(20)
    said = log.read_text()
    taken, complete = _at(said, BEGUN, 2), _at(said, COMPLETE, 2)
    late = arrivals.latencies(Topics(kafka.bootstrap, prefix))
    before = sorted(ms for at, ms in late if at < taken - 1)
    during = sorted(ms for at, ms in late if taken - 1 <= at <= complete + 1)
    rate = given.rows / (complete - taken)
    print(f"added: {given.rows:,} rows in {complete - taken:.1f} s, {rate:,.0f} rows/s, peak {peak_mb:.0f} MB")
    for name, values in (("before", before), ("during the snapshot", during)):
        print(f"small transactions {name}: {len(values)}, " + ", ".join(
            f"p{share} {percentile(values, share):.0f} ms" for share in (50, 99, 100)))  # fmt: skip
    print(f"{len(late):,} of {small.count:,} small transactions arrived")
    later_ms = percentile(during, 99) - percentile(before, 99)
    print(f"the snapshot adds {later_ms:.0f} ms to p99")
    return later_ms < LATER_MAX_MS and peak_mb < RSS_MAX_MB and len(late) == small.count


def _change(dsn: str, rows: int, done: threading.Event) -> None:
    """Update 100 rows a second of the table that is added."""
    with psycopg.connect(dsn, autocommit=True) as sql:
        while not done.wait(0.1):
            some = [random.randint(1, rows) for _ in range(10)]
            sql.execute("UPDATE orders SET customer = customer + 1 WHERE id = ANY(%s)", [some])


def _config(folder: Path, postgres: servers.PostgreSQL, kafka: servers.Kafka, name: str, publication: str) -> Path:
    config = folder / f"{name}.toml"
    config.write_text(
        f'[source]\ndsn = "{postgres.dsn()}"\nslot = "{name}"\npublication = "{publication}"\n'
        f'[sink]\nbootstrap_servers = "{kafka.bootstrap}"\nprefix = "{name.replace("_", "-")}"\n'
        "[snapshot]\nworkers = 2\n"
        '[monitoring]\nport = 0\nhost = "127.0.0.1"\n'
    )
    return config


def _at(log: str, what: str, which: int = 1) -> float:
    """The time of the `which`th line of the daemon's log that contains `what`, in seconds since 1970."""
    lines = [line for line in log.splitlines() if what in line]
    stamp = re.match(r"\S+", lines[which - 1])
    assert stamp is not None
    return datetime.fromisoformat(stamp.group()).timestamp()


if __name__ == "__main__":
    main()
