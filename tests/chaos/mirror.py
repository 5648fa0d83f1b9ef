"""Transfers between two tables, while the mirror (with its JVM) and the daemon are killed at random.

    python tests/chaos/mirror.py delta --seconds 180 [--seed 1] [--daemon-python PATH]

At the end, the sum over both tables must be right at every LSN that was ever published, and `cdcd spark verify` must
find no difference. The exit code is 0 if both hold. pytest does not collect it, because it takes minutes; the tests in
tests/spark crash between every two statements instead.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import psycopg  # noqa: E402
import servers  # noqa: E402
from support import daemon, fix_spark  # noqa: E402
from support import stream as streams  # noqa: E402

from cdcd.errors import CdcdError  # noqa: E402

ROWS, EACH = 200, 100


def main() -> int:
    """Run one round, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=["delta", "iceberg"], help="the mirror's table format")
    parser.add_argument("--seconds", type=float, default=180, help="how long processes are killed (default: 180)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the times of the kills (default: 1)")
    parser.add_argument("--daemon-python", default=sys.executable, help="Python that has cdcd (default: this one)")
    given = parser.parse_args()
    daemon.command = lambda: [given.daemon_python, "-P", "-m", "cdcd"]
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder, servers.PostgreSQL(fsync=False) as postgres, servers.Kafka() as kafka:
        home = Path(folder)
        with streams.StreamFixture(postgres.dsn(), kafka.bootstrap, "chaos", home) as stream:
            for table in ("here", "there"):
                stream.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL)")
            running = stream.daemon().start()
            running.wait_for_log("going on")
            stream.sql(
                *(f"INSERT INTO {t} SELECT g, {EACH} FROM generate_series(1, {ROWS}) g" for t in ("here", "there"))
            )
            running.wait_until_confirmed()
            config = settings(home, stream, given.format)
            done = threading.Event()
            writer = threading.Thread(target=transfers, args=[stream.dsn, done])
            writer.start()
            kills = [0, 0]
            until = time.monotonic() + given.seconds
            while time.monotonic() < until:
                process = mirror(config, home)
                dies_at = time.monotonic() + chance.uniform(12, 45)
                while time.monotonic() < min(dies_at, until) and process.poll() is None:
                    time.sleep(chance.uniform(1, 6))
                    if chance.random() < 0.3:
                        running.kill()
                        kills[1] += 1
                        running.start()
                kills[0] += 1
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            done.set()
            writer.join()
            running.wait_until_confirmed(timeout_s=120)
            return check(config, home, stream, given.format, kills)


def settings(home: Path, stream: streams.StreamFixture, form: Literal["delta", "iceberg"]) -> Path:
    """Write the settings of `cdcd spark`. The tables' catalog is on disk, so it survives a kill."""
    spark = fix_spark.settings(home / "lake") | {
        "spark.master": "local[2]",
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home}/metastore;create=true",
        "spark.driver.memory": "1500m",
    }
    catalog = f"{'spark_catalog' if form == 'delta' else 'ice'}.chaos"
    config = home / "mirror.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{stream.broker}"\nprefix = "{stream.prefix}"\n'
        f'[mirror]\ncatalog = "{catalog}"\nformat = "{form}"\ninterval_s = 0\n[postgres]\ndsn = "{stream.dsn}"\n'
        "[spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in spark.items())
    )
    return config


def mirror(config: Path, home: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start the mirror in a process group of its own, which its JVM shares."""
    with (home / "mirror.log").open("ab") as log:
        command = [sys.executable, "-m", "cdcd", "spark", "mirror", "--config", str(config), *more]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=daemon.environment())


def transfers(dsn: str, done: threading.Event) -> None:
    """Move money from one table to the other and back."""
    chance = random.Random(7)
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not done.wait(0.005):
            one, other = chance.sample(["here", "there"], 2)
            amount = chance.randrange(9)
            source, target = chance.randrange(1, ROWS + 1), chance.randrange(1, ROWS + 1)
            with connection.transaction():
                connection.execute(f"UPDATE {one} SET balance = balance - {amount} WHERE id = {source}".encode())
                connection.execute(f"UPDATE {other} SET balance = balance + {amount} WHERE id = {target}".encode())


def check(
    config: Path, home: Path, stream: streams.StreamFixture, form: Literal["delta", "iceberg"], kills: list[int]
) -> int:
    """Let the mirror catch up, then check every LSN that it published."""
    if mirror(config, home, "--once").wait() != 0:
        print((home / "mirror.log").read_text()[-3000:])
        return 1
    from cdcd.spark import settings as s
    from cdcd.spark.cdc import Cdc
    from cdcd.spark.commands import session

    loaded = s.load(str(config))
    spark = session(loaded)
    try:
        assert loaded.mirror is not None
        cdc = Cdc(spark, stream.broker, stream.prefix)
        made = cdc.mirror(["*"], loaded.mirror.catalog, form)
        runs = spark.table(f"{loaded.mirror.catalog}.cdcd_runs").where("state = 'published'").select("lsn").collect()
        broken = 0
        for (lsn,) in runs:
            tables = made.as_of(lsn)
            if len(tables) == 2:
                total = sum(rows.agg({"balance": "sum"}).first()[0] for rows in tables.values())
                broken += total != 2 * ROWS * EACH
        report = cdc.verify(stream.dsn, ["public.*"], made)
        print(report.as_text())
        print(
            f"{form}: mirror killed {kills[0]} times, daemon {kills[1]} times; {len(runs)} LSNs published, "
            f"invariant broken at {broken}; verify: {'equal' if report.ok else 'DIFFERENT'}"
        )
        return 0 if report.ok and not broken and runs else 1
    except CdcdError as error:
        print(error)
        return 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
