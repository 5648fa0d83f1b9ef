#!/usr/bin/env python3
"""Chaos for the lake: `cdcd spark mirror` follows transfers of two tables while it, Spark and the daemon are killed.

    python tests/spark/chaos.py delta --minutes 6
    python tests/spark/chaos.py iceberg --minutes 6 --seed 7

Meanwhile another Spark rewrites and removes files all the time, and reads the views (`upkeep.py`), and another engine
reads the newest published run every few seconds (`support/lake_readers.py`).

Kills come after a random number of the mirror's steps, at a random moment of the step, so on a slow machine they are
seldomer. Most of them wait until the mirror has published a run since the last one.

The verdict: all tables together hold the same sum at every poll and in the views, and at the end at every LSN that the
mirror has published and retention keeps. No poll shows an older run than the log. The mirror ends only when it is
killed. At the end its views show the published run, and `verify` finds no difference to PostgreSQL. Each of the figures
at the end counts something: none is 0. Exit code 0: all of it holds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import servers  # noqa: E402
from py4j.protocol import Py4JError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
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
STEPS = {"daemon": (3, 25), "mirror": (0, 16)}
"""Steps of the mirror between two kills; those of the mirror's kills count from the run that it has published. A run of
the mirror has about 12.
"""
MOMENT_S = 2.0
"""How long after the step at most."""
START_S = 20.0
"""The same after a start, of which the log does not tell steps."""
EARLY = 0.25
"""How many kills of the mirror may come before it has published a run since the last one."""
STALLED_S = 90.0
"""After this time without a step the next kill comes."""
RUNS_MIN, KILLS_MIN = 6, 3
"""Until there were so many, it goes on for up to TIMES_MAX times as long."""
TIMES_MAX = 2.5
POLL_S = 3.0
_STEP = re.compile(r"^\d\d:\d\d:\d\d (?!.* s so far)", re.MULTILINE)
_CONFLICT = "has another job's commit, so the change begins again"
_PUBLISHED = re.compile(r"published run \d+ at \S+ \((\d+)\)")


TAKES_FEW_FOR_MANY = """
from cdcd.cli.main import program
from cdcd.spark.mirror import batches, new_rows
batches.SMALL_MAX, new_rows._APPENDED_ROWS_MIN = 0, 20
program()
"""
"""Every second process of the mirror takes 20 rows for a large batch: it appends inserts while it reads them."""


class Job:
    """`cdcd spark mirror`, which is started again when it ends."""

    def __init__(self, config: Path, log: IO[bytes]) -> None:
        commands = daemons.command(), [sys.executable, "-c", TAKES_FEW_FOR_MANY]
        self._commands = itertools.cycle([*each, "spark", "mirror", "--config", str(config)] for each in commands)
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
                next(self._commands),
                stdout=self._log,
                stderr=self._log,
                env=daemons.environment(),
                start_new_session=True,
            )
            self._process.wait()
            self.ended += not self._is_killed
            self._closing.wait(0.5)

    def kill(self, what: str) -> bool:
        """Send SIGKILL to the driver's Python, to its JVM, or to both; returns whether there was such a process."""
        process = self._process
        if process is None or process.poll() is not None:
            return False
        wanted = [
            pid for pid in _group(process.pid) if what == "both" or (pid == process.pid) == (what == "driver")
        ]  # fmt: skip
        self._is_killed = self._is_killed or bool(wanted)
        for pid in wanted:
            _kill(pid)
        return bool(wanted)

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


class MirrorLog:
    """The log of the mirror, which goes on."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def text(self) -> str:
        return self._file.read_text(errors="replace")

    def steps(self) -> int:
        return len(_STEP.findall(self.text()))

    def runs(self) -> int:
        """How many runs it has published, but for those that it was killed before it said so."""
        return len(_PUBLISHED.findall(self.text()))

    def lsn(self) -> int:
        """The last one that it has published."""
        return max(map(int, _PUBLISHED.findall(self.text())), default=0)

    def conflicts(self) -> int:
        return self.text().count(_CONFLICT)


class Due:
    """When the next kill comes: so many of the mirror's steps after so many of its runs."""

    def __init__(self, chance: random.Random, log: MirrorLog, steps: tuple[int, int], runs: int) -> None:
        """`steps`: least and most. `runs`: how many more runs are to be published before."""
        self._log = log
        self._left = chance.randint(*steps)
        self._moment_s = chance.uniform(0.0, START_S if not self._left and not runs else MOMENT_S)
        self._runs = log.runs() + runs
        self._steps: int | None = None
        self._seen = log.steps()
        self._moved_at = time.monotonic()
        self._at: float | None = None

    def comes(self) -> bool:
        """Whether it is time."""
        steps, now = self._log.steps(), time.monotonic()
        if steps != self._seen:
            self._seen, self._moved_at = steps, now
        if self._steps is None and self._log.runs() >= self._runs:
            self._steps = steps + self._left
        is_stalled = self._steps is not None and now - self._moved_at > STALLED_S
        if self._at is None and self._steps is not None and (steps >= self._steps or is_stalled):
            self._at = now + self._moment_s
        return self._at is not None and now >= self._at


class Polls(BackgroundThread):
    """Another engine, which reads the newest published run every few seconds while a `with` lasts."""

    def __init__(self, form: str, folder: Path, log: MirrorLog) -> None:
        super().__init__()
        self._reader = LakeReader(form, folder, "balance")
        self._log = log
        self.count = 0
        self.lsns: set[int] = set()
        self.faults: list[str] = []

    def run(self) -> None:
        with self._reader as reader:
            while not self._done.wait(POLL_S):
                known = self._log.lsn()
                lsn, total = self._read(reader)
                self.count += 1
                if total is not None:
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
    parser.add_argument("--minutes", type=float, default=6.0, help="on a slow machine, up to 2.5 times as long")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--keep-s", type=int, default=240, help="seconds that the upkeep keeps files: longer than the mirror is down"
    )
    parser.add_argument("--logs", type=Path, default=None, help="a folder to copy the logs of all processes to")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1_000_000)
    with tempfile.TemporaryDirectory() as name, servers.PostgreSQL(fsync=False) as postgres, servers.Kafka() as kafka:
        folder = Path(name)
        with streams.StreamFixture(postgres.dsn(), kafka.bootstrap, "lake", folder) as stream:
            stream.sql("CREATE DATABASE metastore", *CREATE, *MORE_TABLES)
            settings = _session(folder, postgres)
            running = stream.daemon(sink={"transaction_linger_ms": 200}).start()
            running.wait_for_log("going on", 60)
            stream.sql(FILL, "INSERT INTO bag VALUES (0), (0), (0)")
            config = _config(folder, stream, settings, given.format, given.keep_s)
            tables = folder / "lake" / ("delta/chaos.db" if given.format == "delta" else "ice/chaos")
            began = time.monotonic()
            counts, is_good = _break(
                stream, running, config, given.format, tables, given.minutes * 60, seed, given.keep_s
            )
            if given.logs is not None:
                given.logs.mkdir(parents=True, exist_ok=True)
                for each in (*folder.glob("*.log"), *folder.glob("*.errors"), running.log):
                    shutil.copy(each, given.logs)
            running.wait_until_confirmed()
            minutes = (time.monotonic() - began) / 60
            checked, holds = _judge(stream, settings, given.format, given.keep_s)
    counts.update(checked)
    print(f"{given.format}, {minutes:.1f} minutes, seed {seed}:")
    print("".join(f"  {what}: {count:,}\n" for what, count in counts.items()), end="")
    is_proof = all(counts.values())
    print("ALL OF IT HOLDS" if is_good and holds and is_proof else "IT DOES NOT HOLD" if is_proof else "NO PROOF: a 0")
    return 0 if is_good and holds and is_proof else 1


def _session(folder: Path, postgres: servers.PostgreSQL) -> dict[str, str]:
    """Settings of Spark for small data, with a catalog that outlives the process and serves several."""
    settings = fix_spark.for_small_data(folder / "lake")
    [driver] = [jar for jar in settings["spark.jars"].split(",") if "/postgresql-" in jar]
    hive = {
        "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://127.0.0.1:{postgres.port}/metastore",
        "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
        "javax.jdo.option.ConnectionUserName": "postgres",
        "javax.jdo.option.ConnectionPassword": "trusted",
        "datanucleus.schema.autoCreateTables": "true",
        "datanucleus.schema.autoCreateColumns": "true",  # constraints would wait for its own first transaction
        "hive.metastore.schema.verification": "false",
    }
    return (
        settings
        | {f"spark.hadoop.{name}": value for name, value in hive.items()}
        | {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.extraClassPath": driver,
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.shuffle.partitions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
        }
    )


def _config(folder: Path, stream: streams.StreamFixture, settings: dict[str, str], form: str, keep_s: int) -> Path:
    config = folder / "mirror.toml"
    lines = "".join(f'"{key}" = {value!r}\n' for key, value in settings.items())
    folder.joinpath("session.json").write_text(json.dumps(settings))
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{stream.broker}"\nprefix = "{stream.prefix}"\n'
        f'[mirror]\ntables = ["public.*"]\ncatalog = "{CATALOGS[form]}"\nformat = "{form}"\ninterval_s = 0.5\n'
        f'properties = {{ "delta.deletedFileRetentionDuration" = "interval {keep_s} seconds" }}\n'
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
    keep_s: int,
) -> tuple[dict[str, int], bool]:
    """Transfer, rewrite, read and kill for this time; returns what was done, and whether all went well."""
    chance = random.Random(seed)
    file = config.with_name("mirror.log")
    log, upkeep = MirrorLog(file), config.with_name("upkeep.log")
    with Transfers(stream.dsn, pause_s=0.1) as transfers, file.open("wb") as output:
        # The first run makes the catalog, which takes long.
        command = [*daemons.command(), "spark", "mirror", "--once", "--config", str(config)]
        done = subprocess.run(command, stdout=output, stderr=output, env=daemons.environment(), check=False)
        assert done.returncode == 0, log.text()[-3000:]
        with _upkeep(form, tables, upkeep, keep_s), Polls(form, tables, log) as polls:
            job = Job(config, output)
            kills = _kill_until(time.monotonic() + seconds, chance, running, job, log)
            job.stop()
    for line in sorted({line for line in log.text().splitlines() if line.startswith("cdcd: ")}):
        print(f"  the mirror said: {line[:300]}")
    kept_up = [json.loads(line) for line in upkeep.read_text().splitlines() if line.endswith("}")]
    did = Counter(kept_up[-1]["counts"] if kept_up else {})
    print(f"upkeep: {dict(did)}; the mirror ended by itself: {job.ended}")
    faults = [*polls.faults, *(each["fault"] for each in kept_up if each["fault"] is not None)]
    for fault in faults[:20]:
        print(f"  {fault}")
    of_views = "views at one run"
    counts = {
        "transfers": transfers.count,
        "kills of the daemon": kills["daemon"],
        "kills of the mirror": kills.total() - kills["daemon"],
        "outside operations": sum(n for what, n in did.items() if not what.startswith("views") and "vain" not in what),
        "polls of the views": did[of_views],
        "polls of another engine": polls.count,
        "LSNs that these saw": len(polls.lsns),
    }
    shown = f"kills: {dict(kills)}; conflicts of the mirror, retried: {log.conflicts()}"
    print(f"{shown}; faults: {len(faults)}", flush=True)
    return counts, not faults and not job.ended and len(polls.lsns) > 1


def _kill_until(
    deadline: float, chance: random.Random, running: daemons.Daemon, job: Job, log: MirrorLog
) -> Counter[str]:
    """Kill the daemon and the mirror until the deadline, or longer; returns how often each was killed."""
    kills: Counter[str] = Counter()
    due = {"daemon": Due(chance, log, STEPS["daemon"], 0), "mirror": Due(chance, log, STEPS["mirror"], 1)}
    runs, began = log.runs(), time.monotonic()

    def goes_on() -> bool:
        has_shown = log.runs() - runs >= RUNS_MIN and kills.total() - kills["daemon"] >= KILLS_MIN
        now = time.monotonic()
        return now < deadline or (not has_shown and now < began + (deadline - began) * TIMES_MAX)

    while goes_on():
        time.sleep(0.1)
        if due["daemon"].comes():
            running.kill()
            running.start()
            kills["daemon"] += 1
            due["daemon"] = Due(chance, log, STEPS["daemon"], 0)
        if due["mirror"].comes():
            what = chance.choice(["driver", "JVM", "both"])
            kills[what] += job.kill(what)
            due["mirror"] = Due(chance, log, STEPS["mirror"], int(chance.random() >= EARLY))
    return kills


@contextmanager
def _upkeep(form: str, tables: Path, log: Path, keep_s: int) -> Iterator[None]:
    """Another Spark, which rewrites and removes files of these tables, and reads the views."""
    with log.open("wb") as output, log.with_suffix(".errors").open("wb") as errors:
        command = [sys.executable, str(HERE / "upkeep.py"), form, str(tables), VIEWS, str(keep_s)]
        command.append(str(log.with_name("session.json")))
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"the upkeep has ended by itself with {process.returncode}: see its .errors")
        finally:
            process.kill()
            process.wait()


def _judge(
    stream: streams.StreamFixture, settings: dict[str, str], form: str, keep_s: int
) -> tuple[dict[str, int], bool]:
    """Read every published run, the views, and PostgreSQL; returns how many runs held, and whether all is well."""
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
                balances = [table.select("balance") for table in mirror.as_of(run.lsn).values()]
                total = reduce(DataFrame.unionAll, balances).agg({"balance": "sum"}).first()[0]
            except (PySparkException, Py4JError, CdcdError) as error:
                is_promised = run["at"].timestamp() > stopped - keep_s / 2
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
    counts = {"published runs": len(runs), "published LSNs that hold": held["held"]}
    return counts, held.keys() <= {"held", "gone by upkeep"} and held["held"] > 1 and views_hold and report.ok


if __name__ == "__main__":
    sys.exit(main())
