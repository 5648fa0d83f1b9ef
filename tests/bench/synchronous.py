"""How long a COMMIT takes if it waits for Kafka, that is, with cdcd as the server's synchronous standby.

    python tests/bench/synchronous.py [--seconds 20] [--sessions 1,4] [--pg 18] [--cdcd "python -m cdcd"]

Each session inserts one row and commits, as fast as it can. The figures are commits a second and the time of a commit.
The same without waiting (synchronous_commit = local) is measured next to it. The first 10 s of each measurement do not
count. Server, broker, daemon and sessions share the machine. PostgreSQL's fsync is off; Kafka does not fsync either.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
import servers  # noqa: E402
from bench.measuring import parse  # noqa: E402

WARM_UP_S = 10.0
"""A broker that has just started is slow: its code is not compiled yet."""


def main() -> None:
    """Print two lines for each number of sessions: with and without waiting for Kafka."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="length of each measurement (default: 20)")
    parser.add_argument("--sessions", default="1,4", help="numbers of sessions to measure (default: 1,4)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    given = parse(parser)
    with (
        servers.PostgreSQL(given.pg, fsync=False, settings={"synchronous_standby_names": "cdcd"}) as postgres,
        servers.Kafka(jvm=()) as kafka,
        tempfile.TemporaryDirectory() as folder,
    ):
        local = make_conninfo(postgres.dsn(), options="-c synchronous_commit=local")
        with psycopg.connect(local, autocommit=True) as admin:
            admin.execute("CREATE TABLE ticks (id bigint PRIMARY KEY, payload text)")
        config = Path(folder) / "cdcd.toml"
        config.write_text(
            f'[source]\ndsn = "{postgres.dsn()}"\n[sink]\nbootstrap_servers = "{kafka.bootstrap}"\n'
            "[monitoring]\nport = 0\n"
        )
        daemon = subprocess.Popen([*given.cdcd.split(), "run", "--config", str(config)], stderr=subprocess.DEVNULL)
        try:
            with psycopg.connect(local, autocommit=True) as admin:
                while not admin.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchall():
                    time.sleep(0.1)
            first = 0
            for sessions in map(int, given.sessions.split(",")):
                for what, dsn in (("waiting for Kafka", postgres.dsn()), ("not waiting", local)):
                    took = _measure(dsn, sessions, given.seconds, first)
                    first += 10_000_000
                    print(
                        f"{sessions} sessions, {what}: {len(took)} commits, {len(took) / given.seconds:.0f}/s, "
                        f"p50 {_at(took, 0.5):.1f} ms, p99 {_at(took, 0.99):.1f} ms, max {took[-1] * 1000:.1f} ms",
                        flush=True,
                    )
        finally:
            daemon.terminate()
            daemon.wait()


def _measure(dsn: str, sessions: int, seconds: float, first: int) -> list[float]:
    """Measure the commits after the warm-up; returns the seconds that each took, ascending."""
    took: list[float] = []
    start = time.monotonic() + WARM_UP_S
    threads = [
        threading.Thread(target=_commit, args=(dsn, first + n * 1_000_000, start, start + seconds, took))
        for n in range(sessions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(took)


def _commit(dsn: str, number: int, start: float, end: float, took: list[float]) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        while (began := time.monotonic()) < end:
            number += 1
            session.execute("INSERT INTO ticks VALUES (%s, 'payload of a row')", (number,))
            if began >= start:
                took.append(time.monotonic() - began)


def _at(sorted_s: list[float], share: float) -> float:
    return sorted_s[min(len(sorted_s) - 1, int(len(sorted_s) * share))] * 1000


if __name__ == "__main__":
    main()
