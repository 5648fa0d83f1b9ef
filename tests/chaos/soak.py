#!/usr/bin/env python3
"""Soak: an hour of mixed load without a fault. Memory, file descriptors, threads and spool must stay flat.

    python tests/chaos/soak.py --minutes 60 --report soak.txt --json soak.json

The daemon is the installed one. As in `run.py`, `writers` make the load and `topic_check` checks the rows. A sample is
taken every few seconds. The warm-up lasts a quarter of the time, at most ten minutes. A line is fitted to the samples
after it: a series is flat if its line rises by no more than the tolerance. The exit code is 0 if every series is flat
and every row is right, otherwise 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import linear_regression, mean

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import psycopg  # noqa: E402
import servers  # noqa: E402
from chaos.daemons import RestartedDaemon, wait_for  # noqa: E402
from chaos.events import Avro  # noqa: E402
from chaos.masks import Masks, files_below  # noqa: E402
from chaos.run import POSTGRES, SETTINGS, commit, running, settle  # noqa: E402
from chaos.topic_check import TopicCheck  # noqa: E402
from chaos.writers import SCHEMA, Ledger, Writer  # noqa: E402
from servers.jars import NEWEST  # noqa: E402

SAMPLE_S = 5.0
WRITERS = 4

TOLERANCE = {"rss_mb": 8.0, "files": 2.0, "threads": 1.0, "spool_mb": 8.0}
"""How much a flat series may grow after the warm-up. An allocator settles, a leak does not."""


@dataclass
class Series:
    """The samples of one measure."""

    name: str
    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    warm_up_s: float = 0.0

    def warm(self) -> tuple[list[float], list[float]]:
        """The samples after the warm-up."""
        kept = [(s, v) for s, v in zip(self.seconds, self.values, strict=True) if s >= self.warm_up_s]
        return [s for s, _ in kept], [v for _, v in kept]

    def slope_an_hour(self) -> float:
        """How much the line through the warm samples rises in an hour."""
        seconds, values = self.warm()
        return 0.0 if len(set(values)) < 2 else linear_regression(seconds, values).slope * 3600

    def growth(self) -> float:
        """How much the line through the warm samples rises from the first to the last of them."""
        seconds, _ = self.warm()
        return self.slope_an_hour() * (seconds[-1] - seconds[0]) / 3600

    @property
    def is_flat(self) -> bool:
        return self.growth() <= TOLERANCE[self.name]

    def plot(self, width: int = 72, height: int = 8) -> str:
        """The series as a text plot: time runs to the right, values from the least at the bottom to the greatest."""
        low, high = min(self.values), max(self.values)
        span = (high - low) or 1.0
        columns: list[list[float]] = [[] for _ in range(width)]
        for second, value in zip(self.seconds, self.values, strict=True):
            columns[min(width - 1, int(second / self.seconds[-1] * width))].append(value)
        lines = []
        for level in reversed(range(height)):
            marks = ["*" if c and round((mean(c) - low) / span * (height - 1)) == level else " " for c in columns]
            label = high if level == height - 1 else low if level == 0 else None
            lines.append(f"{'' if label is None else f'{label:.1f}':>9} |{''.join(marks)}")
        return "\n".join(lines)


@dataclass
class Soak:
    """The figures of one run."""

    minutes: float
    seed: int
    commit: str
    started: str
    transactions: int = 0
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    series: list[Series] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        """The report as a page of text."""
        lines = [
            f"soak: {self.minutes:g} minutes, seed {self.seed}, {self.started}, commit {self.commit}",
            "",
            f"verdict        {'FLAT' if not self.problems else 'NOT FLAT'}: lost {self.lost}, doubled {self.doubled}",
            f"transactions   {self.transactions:,}, rows {self.rows:,}",
            "",
            f"{'':10}{'first':>9}{'warm mean':>11}{'last':>9}{'peak':>9}{'an hour':>10}",
        ]
        for series in self.series:
            _, warm = series.warm()
            lines.append(
                f"{series.name:10}{series.values[0]:9.1f}{mean(warm):11.1f}{series.values[-1]:9.1f}"
                f"{max(series.values):9.1f}{series.slope_an_hour():+10.2f}"
            )
        for series in self.series[:1]:
            lines += ["", series.name, series.plot()]
        return "\n".join([*lines, *(["", "PROBLEMS", *self.problems] if self.problems else [])])


def soak(folder: Path, minutes: float, seed: int) -> Soak:
    """Load the daemon for `minutes`, and return the figures."""
    made = Soak(minutes, seed, commit(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    ledger = Ledger()
    with ExitStack() as stack:
        postgres = stack.enter_context(servers.PostgreSQL(settings=POSTGRES))
        kafka = stack.enter_context(servers.Kafka(settings={"log.segment.bytes": str(64 << 20)}))
        with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
            sql.execute(SCHEMA.encode())
        daemon = stack.enter_context(
            RestartedDaemon("daemon", folder, postgres.dsn(), kafka.bootstrap, "soak", **SETTINGS)
        )
        wait_for(lambda: daemon.holds_slot, "daemon that streams", 60)
        check = TopicCheck(kafka.bootstrap, "soak", ledger, Avro(), Masks(on=False))
        check.start()
        writers = [Writer(n, postgres.dsn(), ledger, seed, 0.1, NEWEST >= 15) for n in range(1, WRITERS + 1)]
        for writer in writers:
            writer.start()
        made.series = _sample(daemon, folder / "daemon" / "spool", minutes * 60)
        made.problems += settle(writers, check, [daemon])
        if daemon.exits or daemon.restarts:
            made.problems.append(f"the daemon did not run through: {dict(daemon.exits + daemon.restarts)}")
        daemon.stop()
        check.done.set()
        check.join(30)
        check.compare_tables(postgres.dsn())
    made.transactions, made.rows = check.count["transactions"], check.count["rows"]
    made.lost, made.doubled = len(ledger.left()) + check.kinds["lost"], check.kinds["doubled"]
    made.problems += [*check.problems, *daemon.bugs]
    made.problems += [f"{part.name}: {part.error!r}" for part in running(check, *writers) if part.error is not None]
    made.problems += [
        f"{s.name} has grown by {s.growth():.1f} after the warm-up, more than {TOLERANCE[s.name]:g}"
        for s in made.series
        if not s.is_flat
    ]
    return made


def _sample(daemon: RestartedDaemon, spool: Path, seconds: float) -> list[Series]:
    series = {name: Series(name, warm_up_s=min(600.0, seconds / 4)) for name in TOLERANCE}
    began = time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        if (pid := daemon.pid) is not None:
            for name, value in _measures(pid, spool).items():
                series[name].seconds.append(now)
                series[name].values.append(value)
        time.sleep(SAMPLE_S)
    return list(series.values())


def _measures(pid: int, spool: Path) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    spooled = 0
    for path in files_below(spool):
        with contextlib.suppress(FileNotFoundError):  # its transaction has just ended
            spooled += path.stat().st_size if path.suffix == ".spool" else 0
    return {
        "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
        "files": float(len(list(Path(f"/proc/{pid}/fd").iterdir()))),
        "threads": float(status["Threads"]),
        "spool_mb": spooled / (1 << 20),
    }


def main() -> int:
    """Run, report, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long the load lasts (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the writers (default: a new one)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the report to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdcd-soak-") as folder:
        made = soak(Path(folder), given.minutes, given.seed if given.seed is not None else random.randrange(1_000_000))
    print(made.as_text())
    if given.report:
        given.report.write_text(made.as_text() + "\n")
    if given.json:
        given.json.write_text(json.dumps(asdict(made)) + "\n")
    return 1 if made.problems else 0


if __name__ == "__main__":
    sys.exit(main())
