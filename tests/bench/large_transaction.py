"""One transaction of millions of rows while small ones go on: the small ones' latency, and the daemon's memory.

    python tests/bench/large_transaction.py [--rows 5000000] [--rate 50] [--write-rate 40000] [--work-mem 4MB]

One session inserts the rows in one transaction, at most --write-rate rows a second. (With 0 it has no limit. One
walsender cannot decode that fast, so the small transactions wait in the server, for any client.) A second session
commits --rate single-row transactions a second to another table until the large transaction is published; each row has
its `clock_timestamp()`. A small row's latency is the time of its arrival at a `read_committed` consumer minus that
timestamp. In the end the large transaction is read back: every row must be there once, in the order in which it was
written, under one commit LSN.

The limits: the small transactions' p99 below 200 ms until the large one commits, and the daemon's peak RSS (VmHWM)
below 250 MB. The exit code is 1 if a limit is exceeded or a row is wrong. Server, broker, daemon, writers and consumer
share the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from bench import ticks  # noqa: E402
from bench.measuring import memory_mb, parse, percentile, until  # noqa: E402
from support.topics import Topics  # noqa: E402

P99_MAX_MS = 200.0
RSS_MAX_MB = 250.0
PIECE = 5_000
PREFIX = "large"

SCHEMA = (
    "CREATE TABLE big (id bigint PRIMARY KEY, customer int, status text, amount numeric(12,2), placed timestamptz)",
    ticks.SCHEMA,
)


def main() -> None:
    """Measure, print the figures, and exit with 1 if a limit is exceeded or a row is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the large transaction (default: 5000000)")
    parser.add_argument("--rate", type=int, default=50, help="small transactions a second (default: 50)")
    parser.add_argument(
        "--write-rate", type=int, default=40_000, help="rows a second of the large one; 0: no limit (default: 40000)"
    )
    parser.add_argument(
        "--work-mem", default="4MB", help="logical_decoding_work_mem, the size of a streamed block (default: 4MB)"
    )
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    arguments = parse(parser)
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
        until(lambda: sql.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchone(), 60)
        for number in range(200):  # makes the topics, and warms the broker's JIT
            sql.execute("INSERT INTO ticks VALUES (%s, clock_timestamp())", (-1 - number,))
            time.sleep(0.01)
        sql.execute("INSERT INTO big VALUES (0, 0, '', 0, now())")
        until(lambda: f"{PREFIX}.public.big" in reader.names(), 30)
        idle_mb = memory_mb(pid, "VmRSS")
        arrivals, small = ticks.Arrivals(bootstrap, PREFIX), ticks.Ticks(dsn, arguments.rate)
        arrivals.start()
        arrivals.ready.wait(20)
        small.start()
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
            # Wait until the server has sent all rows, as it would have before the commit of a slower transaction.
            written_s = time.monotonic() - started
            wal_end = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
            until(lambda: sql.execute(
                "SELECT 1 FROM pg_stat_replication WHERE sent_lsn >= %s", wal_end).fetchone(), 600)  # fmt: skip
            time.sleep(1)
            committed_at = time.time()
            large.commit()
        streamed_mb = memory_mb(pid, "VmHWM")
        published_from = time.monotonic()
        target = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
        until(lambda: sql.execute(
            "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= %s", target).fetchone(), 1800)  # fmt: skip
        published_s = time.monotonic() - published_from
        small.done.set()
        small.join(10)
        last = sql.execute("SELECT pg_current_wal_lsn()").fetchone()
        until(lambda: sql.execute(
            "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= %s", last).fetchone(), 60)  # fmt: skip
        until(lambda: len(arrivals.seen) >= small.count, 30)
        arrivals.done.set()
        streams = sql.execute(
            "SELECT stream_txns, stream_count, stream_bytes FROM pg_stat_replication_slots"
        ).fetchone()
    peak_mb = memory_mb(pid, "VmHWM")
    late = arrivals.latencies(reader)
    quiet = sorted(ms for _, ms in late[:before])
    meanwhile = sorted(ms for at, ms in late[before:] if at < committed_at)
    after = sorted(ms for at, ms in late if at >= committed_at)
    print(f"{arguments.rows:,} rows written in {written_s:.0f} s, published {published_s:.0f} s after the commit")
    print(f"streams (transactions, blocks, bytes): {streams}")
    for name, values in (("before it", quiet), ("until its commit", meanwhile), ("while it is published", after)):
        print(f"small transactions {name}: {len(values)}, " + ", ".join(
            f"p{share} {percentile(values, share):.0f} ms" for share in (50, 99, 100)))  # fmt: skip
    print(f"daemon: {idle_mb:.0f} MB before, peak {streamed_mb:.0f} MB until the commit, {peak_mb:.0f} MB in all")
    is_whole = _is_whole(reader, arguments.rows)
    print(f"rows complete and in order: {is_whole}")
    return is_whole and percentile(meanwhile, 99) < P99_MAX_MS and peak_mb < RSS_MAX_MB and len(late) == small.count


def _is_whole(reader: Topics, rows: int) -> bool:
    """Whether each row came once, ascending within its partition, numbered as it was written, under one commit LSN.

    Reads the key and the position of every row, and decodes every thousandth row to compare it in full.
    """
    last: dict[int, tuple[int, int]] = {}
    commits: set[int] = set()
    count = seqs = 0
    for count, message in enumerate(reader.raw(f"{PREFIX}.public.big"), 1):  # noqa: B007  # counted
        value = message.value()
        commit_lsn, at = _long(value, 12)  # after the header and the op
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
    """The Avro long at `at`, which must not be negative, and the offset after it."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at += 1
        shift += 7
        if data[at - 1] < 0x80:
            return number >> 1, at


if __name__ == "__main__":
    main()
