"""How long `cdcd verify --repair` takes for a table in which few rows differ, next to one copy of the table.

    python tests/bench/repair.py [--rows 2000000] [--different 100] [--pg 18]

The copy is that of a daemon with `snapshot.mode = "initial"` and two workers: from the moment the snapshot is exported
until it is complete. One COPY of the table into nothing is timed beside it, `COPY orders TO STDOUT`, as text and as
binary: that is what PostgreSQL alone takes. Then some rows are changed, deleted and inserted behind the publication's
back. The repair is one run of the command beside the daemon, from its start to its end, while a program writes a few
rows a second into another table. (Without writers, the command may wait for a status interval until the daemon records
a position without rows.)

The limits: the repair takes at most twice the time of that COPY as text, it publishes one event for each row that
differs, and its peak memory is below 250 MB, that of the processes that it starts included. The exit code is 1 if a
limit is exceeded. Server, broker and daemon share the machine: the last line has the CPU seconds of each during the
repair.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from bench.measuring import cpu_s, family_cpu_s, memory_mb, parse, until  # noqa: E402
from bench.workloads import FILL, ORDERS  # noqa: E402
from servers.processes import children  # noqa: E402

from cdcd.reading.consumer import BEGINNING, TopicReader  # noqa: E402
from cdcd.snapshot.repair_events import REPAIR_ORIGIN  # noqa: E402

TIMES_MAX = 2.0
RSS_MAX_MB = 250.0
TOPIC = "repair.public.orders"
PUBLISH = "ALTER PUBLICATION cdcd SET (publish = '{}')"


def main() -> None:
    """Print the figures, and exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the table (default: 2000000)")
    parser.add_argument("--different", type=int, default=100, help="rows that differ (default: 100)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    given = parse(parser)
    with (
        servers.PostgreSQL(given.pg, fsync=False, settings={"max_wal_size": "4GB"}) as postgres,
        servers.Kafka(jvm=()) as kafka,
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(postgres.dsn(), autocommit=True) as sql,
    ):
        sql.execute(ORDERS.encode())
        sql.execute("CREATE TABLE ticks (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")
        sql.execute(FILL.format(first=1, last=given.rows).encode())
        sql.execute("VACUUM (FREEZE, ANALYZE) orders")
        config, log = _config(Path(folder), postgres, kafka), Path(folder) / "log"
        with log.open("wb") as output:
            daemon = subprocess.Popen([*given.cdcd.split(), "run", "--config", str(config)], stderr=output)
        try:
            until(lambda: "the snapshot is complete" in log.read_text() or daemon.poll() is not None, 3600)
            if daemon.poll() is not None:
                sys.exit(log.read_text())
            copy_s = _at(log.read_text(), "the snapshot is complete") - _at(log.read_text(), "took a snapshot")
            print(f"the copy took {copy_s:.1f} s, {given.rows / copy_s:,.0f} rows/s", flush=True)
            text_s, binary_s = (_copied_s(sql, form) for form in ("text", "binary"))
            print(f"COPY into nothing took {text_s:.1f} s as text, {binary_s:.1f} s as binary", flush=True)
            sql.execute(PUBLISH.format("truncate").encode())
            step = given.rows // given.different
            sql.execute(f"UPDATE orders SET id = -id WHERE id % {step * 2} = 1".encode())
            sql.execute(PUBLISH.format("insert, update, delete, truncate").encode())
            before_s = _used_s(postgres, kafka, daemon)
            began, peak_mb = time.monotonic(), 0.0
            command = [
                *given.cdcd.split(),
                "verify",
                "public.orders",
                "--config",
                str(config),
                "--repair",
                "--wait",
                "600",
            ]
            writer = Thread(target=_write, args=(postgres.dsn(), is_over := Event()))
            writer.start()
            repair = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            while repair.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    repair.wait(0.5)
                peak_mb = max(peak_mb, sum(map(memory_mb, [repair.pid, *children(repair.pid)])))
            repair_s = time.monotonic() - began
            used_s = [after - before for before, after in zip(before_s, _used_s(postgres, kafka, daemon), strict=True)]
            is_over.set()
            writer.join()
            assert repair.stdout is not None
            said = repair.stdout.read().splitlines()
            print(said[0], said[-1], sep="\n")
            print(f"the repair took {repair_s:.1f} s", flush=True)
            published = _published(kafka)
        finally:
            daemon.terminate()
            daemon.wait()
    print(
        f"the repair took {repair_s:.1f} s, {repair_s / copy_s:.2f} times the copy and "
        f"{repair_s / text_s:.2f} times COPY as text, {repair_s / binary_s:.2f} times COPY as binary, and published "
        f"{published} events; "
        f"peak {peak_mb:.0f} MB"
    )
    print("CPU seconds: the command {:.1f}, PostgreSQL {:.1f}, Kafka {:.1f}, the daemon {:.1f}".format(*used_s))
    sys.exit(0 if published == given.different and repair_s <= TIMES_MAX * text_s and peak_mb < RSS_MAX_MB else 1)


def _copied_s(sql: psycopg.Connection[Any], form: str) -> float:
    """How long one COPY of the table takes, in seconds."""
    began = time.monotonic()
    with sql.cursor().copy(f"COPY orders TO STDOUT (FORMAT {form})".encode()) as copy:
        for _ in copy:
            pass
    return time.monotonic() - began


def _write(dsn: str, is_over: Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as sql:
        while not is_over.wait(0.2):
            sql.execute("INSERT INTO ticks DEFAULT VALUES")


def _used_s(postgres: servers.PostgreSQL, kafka: servers.Kafka, daemon: subprocess.Popen[bytes]) -> list[float]:
    """CPU seconds of the commands that have ended, of PostgreSQL, of the broker, of the daemon."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [ended.ru_utime + ended.ru_stime, family_cpu_s(postgres.pid), cpu_s(kafka.pid), cpu_s(daemon.pid)]


def _published(kafka: servers.Kafka) -> int:
    """How many events of repairs the topic has."""
    found, ended = 0, set[int]()
    config = {"bootstrap.servers": kafka.bootstrap}
    with TopicReader(config, on_end=lambda partition, _: ended.add(partition)) as reader:
        partitions = reader.partitions(TOPIC)
        reader.assign((TOPIC, partition, BEGINNING) for partition in partitions)
        while len(ended) < len(partitions):
            found += sum(REPAIR_ORIGIN.encode() in bytes(each.value() or b"") for each in reader.read(10_000))
    return found


def _config(folder: Path, postgres: servers.PostgreSQL, kafka: servers.Kafka) -> Path:
    config = folder / "repair.toml"
    config.write_text(
        f'[source]\ndsn = "{postgres.dsn()}"\nslot = "repair"\ncreate = true\ntables = ["public.*"]\n'
        f'[sink]\nbootstrap_servers = "{kafka.bootstrap}"\nprefix = "repair"\npartitions = 4\n'
        '[snapshot]\nmode = "initial"\nworkers = 2\n'
        '[monitoring]\nport = 0\nhost = "127.0.0.1"\n'
    )
    return config


def _at(log: str, what: str) -> float:
    """The time of the first line of the daemon's log that contains `what`, in seconds since 1970."""
    stamp = next(re.match(r"\S+", line) for line in log.splitlines() if what in line)
    assert stamp is not None
    return datetime.fromisoformat(stamp.group()).timestamp()


if __name__ == "__main__":
    main()
