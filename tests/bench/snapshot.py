"""How fast cdcd takes a table's snapshot, next to PostgreSQL's COPY, and how much a snapshot delays the stream.

    python tests/bench/snapshot.py [--rows 1000000] [--rate 200] [--pg 18] [--runs 3]

The first part compares rates, in rows a second, for a 12-column table:

- COPY: `COPY ... TO STDOUT (FORMAT binary)` by psql to /dev/null, on two connections with half of the blocks each.
- cdcd: a run with `snapshot.mode = "only"` and two workers, exactly once, into Kafka. The time counts from the moment
  the snapshot is exported until it is complete. The peak memory is printed, too.
- librdkafka: the client alone writes the same events from memory, with both cores for itself and the broker.

In the second part, a daemon streams single-row transactions of another table. Then the first table, which is updated
all the time, is added to its publication. The latency of the small transactions is printed for the time before the
snapshot and for the time of the snapshot.

The limits: cdcd has at least 60 % of COPY's rate, the latency's p99 rises by less than 100 ms, and the peak memory is
below 250 MB. The exit code is 1 if a limit is exceeded. Server, broker, daemon, writers and consumer share the machine.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
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
from bench.measuring import memory_mb, parse, percentile, until  # noqa: E402
from bench.workloads import FILL, ORDERS  # noqa: E402
from support.topics import Topics  # noqa: E402

from cdcd.sink.kafka.client_config import KafkaConnection, transactional_producer_config  # noqa: E402

SHARE_MIN = 0.6
LATER_MAX_MS = 100.0
RSS_MAX_MB = 250.0


def main() -> None:
    """Print the figures, and exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default: 1000000)")
    parser.add_argument("--rate", type=int, default=200, help="small transactions a second (default: 200)")
    parser.add_argument("--runs", type=int, default=3, help="runs of the first part (default: 3)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    given = parse(parser)
    with (
        servers.PostgreSQL(given.pg, fsync=False, settings={"max_wal_size": "4GB"}) as postgres,
        servers.Kafka(jvm=()) as kafka,
        tempfile.TemporaryDirectory() as folder,
    ):
        with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
            sql.execute(ORDERS.encode())
            sql.execute(FILL.format(first=1, last=given.rows).encode())
            sql.execute("VACUUM (FREEZE, ANALYZE) orders")
        good = _speed(postgres, kafka, Path(folder), given)
        good &= _added(postgres, kafka, Path(folder), given)
    sys.exit(0 if good else 1)


# The first part: rates


def _speed(postgres: servers.PostgreSQL, kafka: servers.Kafka, folder: Path, given: argparse.Namespace) -> bool:
    rates: dict[str, list[float]] = {"COPY": [], "librdkafka": [], "cdcd": []}
    peak_mb = 0.0
    with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
        sql.execute("CREATE PUBLICATION speed FOR TABLE orders")
    for run in range(given.runs):
        rates["COPY"].append(given.rows / _copy(postgres))
        config = _config(folder, postgres, kafka, f"speed_{run}", "speed", "only")
        log = folder / f"log-{run}"
        with log.open("wb") as output:
            process = subprocess.Popen([*given.cdcd.split(), "run", "--config", str(config)], stderr=output)
        while process.poll() is None:
            peak_mb = max(peak_mb, memory_mb(process.pid))
            time.sleep(0.05)
        said = log.read_text()
        if process.returncode:
            sys.exit(said)
        seconds = _at(said, "the snapshot is complete") - _at(said, "took a snapshot")
        rates["cdcd"].append(given.rows / seconds)
        rates["librdkafka"].append(given.rows / _produce(kafka, f"speed-{run}", given.rows))
        print(", ".join(f"{name} {found[-1]:,.0f}" for name, found in rates.items()), "rows/s", flush=True)
        with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
            sql.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    copy, librdkafka, cdcd = (statistics.median(rates[name]) for name in rates)
    print(
        f"median: cdcd {cdcd:,.0f}, COPY {copy:,.0f}, librdkafka {librdkafka:,.0f} rows/s; "
        f"cdcd is {cdcd / copy:.2f} of COPY, {cdcd / librdkafka:.2f} of librdkafka; peak {peak_mb:.0f} MB"
    )
    return cdcd >= SHARE_MIN * copy and peak_mb < RSS_MAX_MB


def _copy(postgres: servers.PostgreSQL) -> float:
    """How many seconds COPY takes on two connections."""
    with psycopg.connect(postgres.dsn()) as sql:
        [(blocks,)] = sql.execute("SELECT pg_relation_size('orders') / 8192").fetchall()
    began = time.monotonic()
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
    return time.monotonic() - began


def _produce(kafka: servers.Kafka, prefix: str, rows: int) -> float:
    """How many seconds librdkafka, set as in cdcd, takes to write `rows` events of the snapshot to another topic."""
    events = [
        {"key": seen.key(), "value": seen.value()}
        for seen in islice(Topics(kafka.bootstrap, prefix).raw(f"{prefix}.public.orders"), 50_000)
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
    config = _config(folder, postgres, kafka, prefix, "added", "initial")
    log = folder / "log-added"
    with log.open("wb") as output:
        process = subprocess.Popen([*given.cdcd.split(), "run", "--config", str(config)], stderr=output)
    done = threading.Event()
    try:
        until(lambda: "the snapshot is complete" in log.read_text(), 60)
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
            until(lambda: log.read_text().count("the snapshot is complete") == 2, 300)
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
    taken, complete = _at(said, "took a snapshot", 2), _at(said, "the snapshot is complete", 2)
    late = arrivals.latencies(Topics(kafka.bootstrap, prefix))
    before = sorted(ms for at, ms in late if at < taken - 1)
    during = sorted(ms for at, ms in late if taken - 1 <= at <= complete + 1)
    print(f"added: {given.rows:,} rows in {complete - taken:.1f} s, peak {peak_mb:.0f} MB")
    for name, values in (("before", before), ("during the snapshot", during)):
        print(f"small transactions {name}: {len(values)}, " + ", ".join(
            f"p{share} {percentile(values, share):.0f} ms" for share in (50, 99, 100)))  # fmt: skip
    print(f"{len(late):,} of {small.count:,} small transactions arrived")
    later_ms = percentile(during, 99) - percentile(before, 99)
    return later_ms < LATER_MAX_MS and peak_mb < RSS_MAX_MB and len(late) == small.count


def _change(dsn: str, rows: int, done: threading.Event) -> None:
    """Update 100 rows a second of the table that is added."""
    with psycopg.connect(dsn, autocommit=True) as sql:
        while not done.wait(0.1):
            some = [random.randint(1, rows) for _ in range(10)]
            sql.execute("UPDATE orders SET customer = customer + 1 WHERE id = ANY(%s)", [some])


def _config(
    folder: Path, postgres: servers.PostgreSQL, kafka: servers.Kafka, name: str, publication: str, mode: str
) -> Path:
    config = folder / f"{name}.toml"
    config.write_text(
        f'[source]\ndsn = "{postgres.dsn()}"\nslot = "{name}"\npublication = "{publication}"\n'
        f'[sink]\nbootstrap_servers = "{kafka.bootstrap}"\nprefix = "{name.replace("_", "-")}"\n'
        f'[snapshot]\nmode = "{mode}"\nworkers = 2\n'
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
