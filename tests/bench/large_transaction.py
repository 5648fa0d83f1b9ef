"""One transaction of millions of rows while small ones go on: their latency, the daemon's memory, that all is whole.

    python tests/bench/large_transaction.py [--rows 5000000] [--rate 50] [--write-rate 0] [--work-mem 4MB]

A session inserts the rows in one transaction, in pieces (as fast as it can, or at most `write-rate` rows a second); a
second one commits `rate` single-row transactions a second to another table until that has committed, each with its own
`clock_timestamp()`. The latency of a small row is the time of its arrival at a `read_committed` consumer less that
timestamp. Then the large transaction is read back: each row must be there once, in the order in which it was written,
under one commit LSN.

The limits: p99 of the small ones below 200 ms until the large one commits, peak RSS (VmHWM) below 250 MB. Exits 1
beyond them. Server, broker, daemon, writers and consumer share the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition
from psycopg.conninfo import make_conninfo

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "deploy"), str(Path(__file__).resolve().parents[1])]
import servers  # noqa: E402
from topics import Topics  # noqa: E402

P99_MAX_MS = 200.0
RSS_MAX_MB = 250.0
PIECE = 5_000
PREFIX = "large"

SCHEMA = (
    "CREATE TABLE big (id bigint PRIMARY KEY, customer int, status text, amount numeric(12,2), placed timestamptz)",
    "CREATE TABLE ticks (id bigint PRIMARY KEY, at timestamptz)",
)


class Ticks(threading.Thread):
    """Commits single-row transactions at a steady rate until told to stop."""

    def __init__(self, dsn: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self._rate = rate
        self.done = threading.Event()
        self.count = 0

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            started = time.monotonic()
            while not self.done.is_set():
                connection.execute("INSERT INTO ticks VALUES (%s, clock_timestamp())", (self.count,))
                self.count += 1
                self.done.wait(max(0.0, started + self.count / self._rate - time.monotonic()))


class Arrivals(threading.Thread):
    """Notes when each record of the small table arrives."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._broker = bootstrap
        self.ready = threading.Event()
        self.done = threading.Event()
        self.seen: list[tuple[float, bytes]] = []

    def run(self) -> None:
        consumer = _consumer(self._broker)
        topic = f"{PREFIX}.public.ticks"
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign(
            [TopicPartition(topic, p, consumer.get_watermark_offsets(TopicPartition(topic, p))[1]) for p in partitions]
        )
        consumer.poll(0.5)
        self.ready.set()
        while not self.done.is_set():
            messages = consumer.consume(1000, timeout=0.02)
            now = time.time()
            self.seen.extend((now, message.value()) for message in messages if message.error() is None)
        consumer.close()


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rate", type=int, default=50, help="small transactions a second")
    parser.add_argument("--write-rate", type=int, default=0, help="rows a second of the large one; 0: no limit")
    parser.add_argument("--work-mem", default="", help="logical_decoding_work_mem of the stream: how large a block is")
    parser.add_argument("--pg", default="18")
    parser.add_argument("--cdcd", default=f"{sys.executable} -m cdcd", help="the command")
    arguments = parser.parse_args()
    with (
        servers.PostgreSQL(arguments.pg, fsync=False, settings={"max_wal_size": "4GB"}) as postgres,
        servers.Kafka(jvm=()) as kafka,
        tempfile.TemporaryDirectory() as folder,
    ):
        with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
            for statement in SCHEMA:
                connection.execute(statement)
        options = f"-c logical_decoding_work_mem={arguments.work_mem}" if arguments.work_mem else ""
        config = Path(folder) / "cdcd.toml"
        config.write_text(
            f'[source]\ndsn = "{make_conninfo(postgres.dsn(), options=options)}"\n'
            f'[sink]\nbootstrap_servers = "{kafka.bootstrap}"\nprefix = "{PREFIX}"\n'
            f'[spool]\ndirectory = "{folder}/spool"\n'
            '[monitoring]\nhost = "127.0.0.1"\nport = 0\n[log]\nlevel = "warning"\n'
        )
        process = subprocess.Popen([*arguments.cdcd.split(), "run", "--config", str(config)])
        try:
            good = _measure(postgres.dsn(), kafka.bootstrap, process.pid, arguments)
        finally:
            process.terminate()
            process.wait(20)
    sys.exit(0 if good else 1)


def _measure(dsn: str, bootstrap: str, pid: int, arguments: argparse.Namespace) -> bool:
    reader = Topics(bootstrap, PREFIX)
    with psycopg.connect(dsn, autocommit=True) as sql:
        _until(lambda: sql.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchone(), 60)
        for number in range(200):  # makes the topics, and warms the broker's JIT
            sql.execute("INSERT INTO ticks VALUES (%s, clock_timestamp())", (-1 - number,))
            time.sleep(0.01)
        sql.execute("INSERT INTO big VALUES (0, 0, '', 0, now())")
        _until(lambda: f"{PREFIX}.public.big" in reader.names(), 30)
        idle_mb = _memory_mb(pid, "VmRSS")
        arrivals, ticks = Arrivals(bootstrap), Ticks(dsn, arguments.rate)
        arrivals.start()
        arrivals.ready.wait(20)
        ticks.start()
        time.sleep(3)
        before = len(arrivals.seen)
        started = time.monotonic()
        with psycopg.connect(dsn) as large:
            for first in range(1, arguments.rows + 1, PIECE):
                large.execute(
                    "INSERT INTO big SELECT n, n %% 1000, 'status of row ' || n, n / 100.0, clock_timestamp() "
                    "FROM generate_series(%s::bigint, %s) n",
                    (first, min(first + PIECE, arguments.rows + 1) - 1),
                )
                if arguments.write_rate:
                    time.sleep(max(0.0, started + (first + PIECE) / arguments.write_rate - time.monotonic()))
            # What the server has still to send of it is sent before the commit, as it would be of a slow transaction.
            written_s = time.monotonic() - started
            wal_end = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
            _until(lambda: sql.execute(
                "SELECT 1 FROM pg_stat_replication WHERE sent_lsn >= %s", wal_end).fetchone(), 600)  # fmt: skip
            time.sleep(1)
            committed_at = time.time()
            large.commit()
        streamed_mb = _memory_mb(pid, "VmHWM")
        published_from = time.monotonic()
        target = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
        _until(lambda: sql.execute(
            "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= %s", target).fetchone(), 1800)  # fmt: skip
        published_s = time.monotonic() - published_from
        ticks.done.set()
        ticks.join(10)
        last = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
        _until(lambda: sql.execute(
            "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= %s", last).fetchone(), 60)  # fmt: skip
        _until(lambda: len(arrivals.seen) >= ticks.count, 30)
        arrivals.done.set()
        streams = sql.execute(
            "SELECT stream_txns, stream_count, stream_bytes FROM pg_stat_replication_slots"
        ).fetchone()
    peak_mb = _memory_mb(pid, "VmHWM")
    late = _latencies(reader, arrivals.seen)
    quiet = sorted(ms for _, ms in late[:before])
    until = sorted(ms for at, ms in late[before:] if at < committed_at)
    after = sorted(ms for at, ms in late if at >= committed_at)
    print(f"{arguments.rows:,} rows written in {written_s:.0f} s, published {published_s:.0f} s after the commit")
    print(f"streams (transactions, blocks, bytes): {streams}")
    for name, values in (("before it", quiet), ("until its commit", until), ("while it is published", after)):
        print(f"small transactions {name}: {len(values)}, " + ", ".join(
            f"p{share} {_percentile(values, share):.0f} ms" for share in (50, 99, 100)))  # fmt: skip
    print(f"daemon: {idle_mb:.0f} MB before, peak {streamed_mb:.0f} MB until the commit, {peak_mb:.0f} MB in all")
    whole = _whole(reader, arguments.rows)
    print(f"rows whole and in order: {whole}")
    return whole and _percentile(until, 99) < P99_MAX_MS and peak_mb < RSS_MAX_MB and len(late) == ticks.count


def _latencies(reader: Topics, seen: list[tuple[float, bytes]]) -> list[tuple[float, float]]:
    """When each small row was committed (seconds since 1970), and how many ms later it came."""
    found = []
    for arrived, value in seen:
        at = reader._decode(value)["after"]["at"].timestamp()
        found.append((at, (arrived - at) * 1000))
    return sorted(found)


def _whole(reader: Topics, rows: int) -> bool:
    """Each row once, ascending within its partition, numbered through by one commit as it was written.

    All that is read of every row is its key and its position; every thousandth is decoded and compared in full.
    """
    last: dict[int, tuple[int, int]] = {}
    commits: set[int] = set()
    count = seqs = 0
    for count, message in enumerate(reader.raw(f"{PREFIX}.public.big"), 1):  # noqa: B007  # counted
        value = message.value()
        commit_lsn, at = _long(value, 12)  # behind the header and the op
        seq, _ = _long(value, at)
        number, _ = _long(message.key(), 10)
        if last.get(message.partition(), (-1, -1)) >= (commit_lsn, seq):
            return False
        last[message.partition()] = commit_lsn, seq
        commits.add(commit_lsn)
        seqs += seq
        if number == 0:
            continue
        if number != seq + 1:
            return False
        if number % 1000 == 0:
            event = reader._decode(value)
            row = event["after"]
            if (event["op"], row["id"], row["status"]) != ("c", number, f"status of row {number}"):
                return False
    return count == rows + 1 and len(commits) == 2 and seqs == rows * (rows - 1) // 2


def _long(data: bytes, at: int) -> tuple[int, int]:
    """The Avro long at `at`, not negative, and the offset behind it."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at += 1
        shift += 7
        if data[at - 1] < 0x80:
            return number >> 1, at


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "large",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 1,
        }
    )


def _percentile(values: list[float], share: int) -> float:
    return values[min(len(values) - 1, len(values) * share // 100)] if values else float("nan")


def _memory_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(name)


def _until(ready: Any, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            sys.exit("waited too long")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
