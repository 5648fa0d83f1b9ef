#!/usr/bin/env python3
"""Chaos for the lake: `cdcd spark mirror` follows transfers of two tables while it, Spark and the daemon are killed.

    python tests/spark/chaos.py delta --minutes 6
    python tests/spark/chaos.py iceberg --minutes 6 --seed 7

Meanwhile another Spark rewrites and removes files all the time (`upkeep.py`), and another engine reads the newest
published run every few seconds (`support/lake_readers.py`).

The verdict: all tables together hold the same sum at every poll, and at the end at every LSN that the mirror has
published and retention keeps. No poll shows an older run than the log. The mirror ends only when it is killed. At the
end its views show the published run, and `verify` finds no difference to PostgreSQL. Exit code 0: all of it holds.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import servers  # noqa: E402
from py4j.protocol import Py4JError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from support import daemon as daemons  # noqa: E402
from support import fix_spark  # noqa: E402
from support import stream as streams  # noqa: E402
from support.background_thread import BackgroundThread  # noqa: E402
from support.lake_readers import LakeReader  # noqa: E402
from support.transfers import CREATE, FILL, TABLES, TOTAL, Transfers  # noqa: E402

from cdcd.errors import CdcdError  # noqa: E402
from cdcd.lsn import format_lsn  # noqa: E402
from cdcd.spark import Cdc  # noqa: E402
from cdcd.spark.mirror.run_log import PUBLISHED  # noqa: E402

CATALOGS = {"delta": "spark_catalog.chaos", "iceberg": "ice.chaos"}
VIEWS = "spark_catalog.chaos_now"
ALL_TABLES = (*TABLES, "moves", "bag")
"""One has inserts alone, the last one has no key. The sum of their balances is that of TABLES: TOTAL."""
MORE_TABLES = (
    "CREATE TABLE moves (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, balance bigint)",
    "CREATE TABLE bag (balance bigint)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    """CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO moves (balance) VALUES (NEW.balance - OLD.balance);
        UPDATE bag SET balance = balance + OLD.balance - NEW.balance WHERE ctid = (SELECT min(ctid) FROM bag);
        RETURN NULL;
    END $$""",
    "CREATE TRIGGER noted AFTER UPDATE ON here FOR EACH ROW EXECUTE FUNCTION noted()",
)
GAPS_S = {"daemon": (2.0, 25.0), "mirror": (2.0, 40.0)}
"""Seconds between two kills."""
EARLY = 0.25
"""How many kills of the mirror may come before it has published a run since the last one: Spark takes long to start."""
POLL_S = 3.0
KEEP_S = 180.0
"""What the upkeep keeps. It is longer than the mirror is down, as anybody's retention must be."""
_PUBLISHED = re.compile(r"published run \d+ at \S+ \((\d+)\)")


class Job:
    """`cdcd spark mirror`, which is started again when it ends."""

    def __init__(self, config: Path, log: IO[bytes]) -> None:
        self._command = [*daemons.command(), "spark", "mirror", "--config", str(config)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self.ended = 0
        """How often it has ended without a kill."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._is_killed = False
            self._process = subprocess.Popen(
                self._command, stdout=self._log, stderr=self._log, env=daemons.environment(), start_new_session=True
            )
            self._process.wait()
            self.ended += not self._is_killed
            self._closing.wait(0.5)

    def kill(self, what: str) -> None:
        """Send SIGKILL to the driver's Python, to its JVM, or to both."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._is_killed = True
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


class Polls(BackgroundThread):
    """Another engine, which reads the newest published run every few seconds while a `with` lasts."""

    def __init__(self, form: str, folder: Path, log: Path) -> None:
        super().__init__()
        self._reader = LakeReader(form, folder, "balance")
        self._log = log
        self.count = 0
        self.lsns: set[int] = set()
        self.faults: list[str] = []

    def run(self) -> None:
        with self._reader as reader:
            while not self._done.wait(POLL_S):
                known = max(map(int, _PUBLISHED.findall(self._log.read_text(errors="replace"))), default=0)
                lsn, total = self._read(reader)
                self.count += 1
                self.lsns.add(lsn)
                if total is not None and total != TOTAL:
                    self.faults.append(f"BROKEN at {format_lsn(lsn)}: {total}, not {TOTAL}")
                if total is not None and lsn < known:
                    self.faults.append(f"STALE: {format_lsn(lsn)}, after {format_lsn(known)} was published")

    def _read(self, reader: LakeReader) -> tuple[int, int | None]:
        """A second attempt, if files have gone in the midst of the first one: a newer run may have been published."""
        said = ""
        for _ in range(2):
            try:
                return reader.read()
            except LookupError as error:
                said = str(error)
        self.faults.append(f"UNREADABLE: {said[:500]}")
        return 0, None


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
            stream.sql(*CREATE, *MORE_TABLES)
            running = stream.daemon(sink={"transaction_linger_ms": 20}).start()
            running.wait_for_log("going on", 60)
            stream.sql(FILL, "INSERT INTO bag VALUES (0), (0), (0)")
            config = _config(folder, stream, settings, given.format)
            tables = folder / "lake" / ("delta/chaos.db" if given.format == "delta" else "ice/chaos")
            began = time.monotonic()
            kills, is_good = _break(stream, running, config, given.format, tables, given.minutes * 60, seed)
            running.wait_until_confirmed()
            print(f"{given.format}, {(time.monotonic() - began) / 60:.1f} minutes, seed {seed}: kills {dict(kills)}")
            return 0 if _judge(stream, settings, given.format) and is_good else 1


def _config(folder: Path, stream: streams.StreamFixture, settings: dict[str, str], form: str) -> Path:
    config = folder / "mirror.toml"
    lines = "".join(f'"{key}" = {value!r}\n' for key, value in settings.items())
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{stream.broker}"\nprefix = "{stream.prefix}"\n'
        f'[mirror]\ntables = ["public.*"]\ncatalog = "{CATALOGS[form]}"\nformat = "{form}"\ninterval_s = 1.0\n'
        f'views = "{VIEWS}"\ntags = {"true" if form == "iceberg" else "false"}\n'
        f"[spark]\n{lines}"
    )
    return config


def _break(
    stream: streams.StreamFixture,
    running: daemons.Daemon,
    config: Path,
    form: str,
    tables: Path,
    seconds: float,
    seed: int,
) -> tuple[Counter[str], bool]:
    """Transfer, rewrite, read and kill for this time; returns the kills, and whether all went well."""
    chance = random.Random(seed)
    kills: Counter[str] = Counter()
    log = config.with_name("mirror.log")
    with Transfers(stream.dsn) as transfers, log.open("wb") as output:
        # No kills in the first run: a catalog that dies while it is made must be removed by hand.
        command = [*daemons.command(), "spark", "mirror", "--once", "--config", str(config)]
        subprocess.run(command, stdout=output, stderr=output, env=daemons.environment(), check=True)
        with _upkeep(form, tables, config.with_name("upkeep.log")), Polls(form, tables, log) as polls:
            deadline = time.monotonic() + seconds
            job, seen, may_be_early = Job(config, output), 1, False
            due = {whom: time.monotonic() + chance.uniform(*gap) for whom, gap in GAPS_S.items()}
            while min(due.values()) < deadline:
                whom = min(due, key=lambda each: due[each])
                time.sleep(max(0.0, due[whom] - time.monotonic()))
                if whom == "daemon":
                    running.kill()
                    running.start()
                    kills["daemon"] += 1
                elif (runs := len(_PUBLISHED.findall(log.read_text(errors="replace")))) > seen or may_be_early:
                    what = chance.choice(["driver", "JVM", "both"])
                    job.kill(what)
                    kills[what] += 1
                    seen, may_be_early = runs, chance.random() < EARLY
                else:
                    due[whom] = time.monotonic() + chance.uniform(0.0, 5.0)
                    continue
                due[whom] = time.monotonic() + chance.uniform(*GAPS_S[whom])
            time.sleep(max(0.0, deadline - time.monotonic()))
            job.stop()
    said = log.read_text(errors="replace")
    print(f"{transfers.count:,} transfers; the mirror published {len(_PUBLISHED.findall(said))} times", flush=True)
    for line in sorted({line for line in said.splitlines() if line.startswith("cdcd: ")}):
        print(f"  it said: {line[:300]}")
    kept_up = config.with_name("upkeep.log").read_text().splitlines()
    print(f"upkeep: {kept_up[-1] if kept_up else 'NOTHING'}")
    print(f"polls: {polls.count}, {len(polls.lsns)} LSNs, {len(polls.faults)} faults; ended by itself: {job.ended}")
    for fault in polls.faults[:20]:
        print(f"  {fault}")
    return kills, not polls.faults and not job.ended and len(polls.lsns) > 1 and bool(kept_up)


@contextmanager
def _upkeep(form: str, tables: Path, log: Path) -> Iterator[None]:
    """Another Spark, which rewrites and removes files of these tables."""
    with log.open("wb") as output, log.with_suffix(".errors").open("wb") as errors:
        command = [sys.executable, str(HERE / "upkeep.py"), form, str(tables), str(KEEP_S)]
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _judge(stream: streams.StreamFixture, settings: dict[str, str], form: str) -> bool:
    builder = SparkSession.builder.appName("judge")
    for name, value in settings.items():
        builder = builder.config(name, value)
    stopped, spark = time.time(), builder.getOrCreate()
    try:
        cdc = Cdc(spark, stream.broker, stream.prefix)
        options = {"views": VIEWS, "tags": form == "iceberg"}
        mirror = cdc.mirror(["public.*"], CATALOGS[form], form, **options)  # type: ignore[arg-type]
        runs = spark.table(f"{CATALOGS[form]}.cdcd_runs").where(f"state = '{PUBLISHED}'").orderBy("lsn").collect()
        mirror.catch_up()
        held: Counter[str] = Counter()
        for run in runs:
            try:
                tables = mirror.as_of(run.lsn)
                total = sum(table.agg({"balance": "sum"}).first()[0] or 0 for table in tables.values())
            except (PySparkException, Py4JError, CdcdError) as error:
                is_promised = run["at"].timestamp() > stopped - KEEP_S / 2
                held["unreadable" if is_promised else "gone by upkeep"] += 1
                print(f"run {run.run}, {stopped - run['at'].timestamp():.0f} s old: {str(error)[:200]}")
            else:
                held["held" if total == TOTAL else "BROKEN"] += 1
                if total != TOTAL:
                    print(f"BROKEN at {format_lsn(run.lsn)}, run {run.run}: {total}, not {TOTAL}")
        both = " + ".join(f"(SELECT sum(balance) FROM {VIEWS}.public_{name})" for name in ALL_TABLES)
        shown = spark.sql(f"SELECT DISTINCT lsn, switching_to, {both} AS total FROM {VIEWS}.cdcd_published").collect()
        views_hold = [tuple(row) for row in shown] == [(mirror.published_lsn(), None, TOTAL)]
        report = cdc.verify(stream.dsn, ["public.*"], mirror, parallelism=2)
    finally:
        spark.stop()
    print(f"{len(runs)} published LSNs: {dict(held)}; the views {'hold' if views_hold else f'DO NOT HOLD: {shown}'}")
    print(report.as_text())
    return held.keys() <= {"held", "gone by upkeep"} and held["held"] > 1 and views_hold and report.ok


if __name__ == "__main__":
    sys.exit(main())
