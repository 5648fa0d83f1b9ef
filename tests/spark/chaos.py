#!/usr/bin/env python3
"""Chaos for the lake: `cdcd spark mirror` follows transfers of two tables while it, Spark and the daemon are killed.

    python tests/spark/chaos.py delta --minutes 3
    python tests/spark/chaos.py iceberg --minutes 3 --seed 7

The verdict: both tables together hold the same sum at every LSN that the mirror has published, and at the end `verify`
finds no difference to PostgreSQL. Exit code 0: both hold; 1: one of them does not.
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
from collections import Counter
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import servers  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from support import daemon as daemons  # noqa: E402
from support import fix_spark  # noqa: E402
from support import stream as streams  # noqa: E402
from support.transfers import CREATE, FILL, TABLES, TOTAL, Transfers  # noqa: E402

from cdcd.lsn import format_lsn  # noqa: E402
from cdcd.spark import Cdc  # noqa: E402
from cdcd.spark.mirror.run_log import PUBLISHED  # noqa: E402

CATALOGS = {"delta": "spark_catalog.chaos", "iceberg": "ice.chaos"}
GAPS_S = {"daemon": (2.0, 25.0), "mirror": (2.0, 60.0)}
"""Seconds between two kills. Spark takes 20 s to start: the mirror is killed before that, or after several runs."""


class Job:
    """`cdcd spark mirror`, which is started again when it ends."""

    def __init__(self, config: Path, log: IO[bytes]) -> None:
        self._command = [*daemons.command(), "spark", "mirror", "--config", str(config)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._process = subprocess.Popen(
                self._command, stdout=self._log, stderr=self._log, env=daemons.environment(), start_new_session=True
            )
            self._process.wait()
            self._closing.wait(0.5)

    def kill(self, what: str) -> None:
        """Send SIGKILL to the driver's Python, to its JVM, or to both."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        for pid in _group(process.pid):
            is_python = pid == process.pid
            if what == "both" or is_python == (what == "driver"):
                _kill(pid)

    def stop(self) -> None:
        self._closing.set()
        self.kill("both")
        self._thread.join(30)


def _group(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == leader:
                    found.append(int(entry.name))
            except ProcessLookupError:
                pass
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def main() -> int:
    """Run, judge, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=sorted(CATALOGS))
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1_000_000)
    with tempfile.TemporaryDirectory() as name, servers.PostgreSQL() as postgres, servers.Kafka() as kafka:
        folder = Path(name)
        settings = fix_spark.for_small_data(folder / "lake") | {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.sql.catalogImplementation": "hive",  # a catalog that outlives the process
            "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        }
        with streams.StreamFixture(postgres.dsn(), kafka.bootstrap, "lake", folder) as stream:
            for statement in (*CREATE, FILL):
                stream.sql(statement)
            running = stream.daemon(sink={"transaction_linger_ms": 20}).start()
            running.wait_for_log("going on", 60)
            config = _config(folder, stream, settings, given.format)
            kills = _break(stream, running, config, given.minutes * 60, seed)
            running.wait_until_confirmed()
            return _judge(stream, settings, given.format, kills, seed, given.minutes)


def _config(folder: Path, stream: streams.StreamFixture, settings: dict[str, str], form: str) -> Path:
    config = folder / "mirror.toml"
    lines = "".join(f'"{key}" = {value!r}\n' for key, value in settings.items())
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{stream.broker}"\nprefix = "{stream.prefix}"\n'
        f'[mirror]\ntables = ["public.*"]\ncatalog = "{CATALOGS[form]}"\nformat = "{form}"\ninterval_s = 1.0\n'
        f"[spark]\n{lines}"
    )
    return config


def _break(
    stream: streams.StreamFixture, running: daemons.Daemon, config: Path, seconds: float, seed: int
) -> Counter[str]:
    """Transfer and kill for this time; afterwards only the daemon runs."""
    chance = random.Random(seed)
    kills: Counter[str] = Counter()
    log = config.with_name("mirror.log")
    with Transfers(stream.dsn) as transfers, log.open("wb") as output:
        # No kills in the first run: a catalog that dies while it is made must be removed by hand.
        command = [*daemons.command(), "spark", "mirror", "--once", "--config", str(config)]
        subprocess.run(command, stdout=output, stderr=output, env=daemons.environment(), check=True)
        deadline = time.monotonic() + seconds
        job = Job(config, output)
        due = {whom: time.monotonic() + chance.uniform(*gap) for whom, gap in GAPS_S.items()}
        while min(due.values()) < deadline:
            whom = min(due, key=lambda each: due[each])
            time.sleep(max(0.0, due[whom] - time.monotonic()))
            if whom == "daemon":
                running.kill()
                running.start()
                kills["daemon"] += 1
            else:
                what = chance.choice(["driver", "JVM", "both"])
                job.kill(what)
                kills[what] += 1
            due[whom] = time.monotonic() + chance.uniform(*GAPS_S[whom])
        time.sleep(max(0.0, deadline - time.monotonic()))
        job.stop()
    said = log.read_text(errors="replace")
    print(f"{transfers.count:,} transfers; the mirror published {said.count('published run')} times", flush=True)
    for line in sorted({line for line in said.splitlines() if line.startswith("cdcd: ")}):
        print(f"  it said: {line[:300]}")
    return kills


def _judge(
    stream: streams.StreamFixture, settings: dict[str, str], form: str, kills: Counter[str], seed: int, minutes: float
) -> int:
    builder = SparkSession.builder.appName("judge")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        cdc = Cdc(spark, stream.broker, stream.prefix)
        mirror = cdc.mirror(["public.*"], CATALOGS[form], form)  # type: ignore[arg-type]
        mirror.catch_up()
        runs = spark.table(f"{CATALOGS[form]}.cdcd_runs").where(f"state = '{PUBLISHED}'").orderBy("lsn").collect()
        broken = 0
        for run in runs:
            tables = mirror.as_of(run.lsn)
            total = sum(tables[f"public.{name}"].agg({"balance": "sum"}).first()[0] for name in TABLES)
            if total != TOTAL:
                broken += 1
                print(f"BROKEN at {format_lsn(run.lsn)}, run {run.run}: {total}, not {TOTAL}")
        report = cdc.verify(stream.dsn, ["public.*"], mirror, parallelism=2)
    finally:
        spark.stop()
    good = not broken and report.ok and len(runs) >= minutes
    print(f"{form}, {minutes:g} minutes, seed {seed}: kills {dict(kills)}; {len(runs)} published LSNs, {broken} broken")
    print(report.as_text())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
