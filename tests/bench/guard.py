"""The guard against regressions: is the new commit slower than the old one, and is that more than chance?

    python tests/bench/guard.py OLD NEW [--workloads orders] [--rows 600000] [--rates 200,1000,3000] [--runs 10]
        [--warm-up 2] [--seconds 10] [--confidence 0.95] [--tolerance 0.01] [--pg 18] [--json]

OLD and NEW are commits of this repository. Each is built once, compiled, into an environment of its own (`builds.py`).
Then both drain the same backlogs (`compare.py`) and stream the same small transactions (`latency.py`), in turn, on one
server and one broker; the first changes from run to run. Rows that are missing or doubled end the benchmark.

For each figure, a line says the ratio new/old, and the interval that the true ratio lies in: Student's t interval of
the logarithms of the runs' ratios (`ratios.py`). --confidence is that of all intervals together: each is wider by
Bonferroni's rule, so the guard raises a false alarm in one case of 20 or less, however many figures there are.

The exit code is 1 if a figure is worse with confidence: if its whole interval is worse than 1 by more than --tolerance.
Small differences need many runs and a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
from bench import compare, latency  # noqa: E402
from bench.builds import command_of, commit_of  # noqa: E402
from bench.contestants import Figures, Means  # noqa: E402
from bench.ratios import Interval, interval  # noqa: E402
from bench.workloads import WORKLOADS  # noqa: E402

NAMES = ("old", "new")
PERCENTILES = (50, 99)
"""Of SHARES in `latency`: the others are the luck of a few rows."""


@dataclass(frozen=True)
class Figure:
    """A figure of one run of one cdcd, above 0."""

    name: str
    value: float
    more_is_better: bool = False


@dataclass(frozen=True)
class Verdict:
    """A figure's ratio new/old."""

    name: str
    interval: Interval
    word: str
    """`worse`, `better`, or nothing: with confidence."""


def main() -> None:
    """Measure both commits in turn, print the ratios, and exit with 1 if something became worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="commit, branch or tag")
    parser.add_argument("new", help="commit, branch or tag")
    parser.add_argument("--workloads", type=compare.some_of(WORKLOADS), default="orders", help="as in compare.py")
    parser.add_argument("--rows", type=int, default=600_000, help="size of the workloads (default: 600000)")
    parser.add_argument("--rates", default="200,1000,3000", help="transactions a second; empty: no latency")
    parser.add_argument("--runs", type=int, default=10, help="pairs of runs, 2 or more (default: 10)")
    parser.add_argument("--warm-up", type=int, default=2, help="more pairs of drains, not counted (default: 2)")
    parser.add_argument("--seconds", type=int, default=10, help="length of each latency measurement (default: 10)")
    parser.add_argument("--confidence", type=float, default=0.95, help="of all intervals together (default: 0.95)")
    parser.add_argument("--tolerance", type=float, default=0.01, help="what is no change (default: 0.01, 1 %%)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON at the end")
    given = parser.parse_args()
    if given.runs < 2:
        parser.error("an interval needs --runs 2 at least")
    commits = {"old": commit_of(given.old), "new": commit_of(given.new)}
    commands = {name: command_of(commit) for name, commit in commits.items()}
    measured: dict[str, list[Figure]] = {name: [] for name in NAMES}
    for name, figure in _measure(commands, given):
        measured[name].append(figure)
    found = verdicts(measured["old"], measured["new"], given.confidence, given.tolerance)
    print(f"\nnew/old, {commits['new'][:12]} / {commits['old'][:12]}, {given.runs} pairs of runs; ", end="")
    print(f"all intervals hold together with {given.confidence:.0%}")
    for verdict in found:
        ratio = verdict.interval
        print(f"{verdict.name:40} {ratio.ratio:7.3f}   {ratio.low:.3f} to {ratio.high:.3f}   {verdict.word}")
    if given.json:
        print(json.dumps({name: [(figure.name, figure.value) for figure in measured[name]] for name in NAMES}))
    sys.exit(any(verdict.word == "worse" for verdict in found))


def _measure(commands: Mapping[str, str], given: argparse.Namespace) -> Iterator[tuple[str, Figure]]:
    """Run both cdcds in turn, and print a line for each run; yields the name and each figure that counts."""
    rates = [int(rate) for rate in given.rates.split(",") if rate]
    with (
        compare.started_servers(given.pg) as (postgres, kafka, sql),
        tempfile.TemporaryDirectory() as folder,
    ):
        means = Means(commands, "", Path(folder) / "recording")
        for number, workload in enumerate(given.workloads):
            drains = compare.Bench(postgres, kafka, sql, means, WORKLOADS[workload])
            changes = WORKLOADS[workload].changes(given.rows)
            print(f"{workload}: {changes:,} changes\n{compare.HEADER}", flush=True)
            with drains.tables():
                for run in range(0 if number else -given.warm_up, given.runs):
                    for name, figures in drains.run(changes, compare.in_turn(NAMES, run)):
                        print(compare.line(name, figures, changes) + ("" if run >= 0 else "  warm-up"), flush=True)
                        if run >= 0:
                            yield from ((name, figure) for figure in of_drain(workload, figures, changes))
        if rates:
            latencies = latency.Bench(postgres, kafka, sql, commands, given.seconds, warm_up_s=5)
            latencies.make_table()
            for run in range(given.runs):
                for name in compare.in_turn(NAMES, run):
                    for rate, percentiles in latencies.run(name, rates, run):
                        print(latency.line(name, rate, percentiles), flush=True)
                        yield from ((name, figure) for figure in of_latency(rate, percentiles))


def of_drain(workload: str, figures: Figures, changes: int) -> list[Figure]:
    """The figures of a drain that the guard compares."""
    return [
        Figure(f"{workload}: changes/s", changes / figures.seconds, more_is_better=True),
        Figure(f"{workload}: CPU us a change", figures.cpu_s / changes * 1e6),
        Figure(f"{workload}: CPU s of the start", figures.start_cpu_s),
        Figure(f"{workload}: peak RSS MB", figures.rss_mb),
    ]


def of_latency(rate: int, percentiles: Sequence[float]) -> list[Figure]:
    """The percentiles at a rate that the guard compares; `percentiles` in ms, as latency.SHARES."""
    by_share = dict(zip(latency.SHARES, percentiles, strict=True))
    return [Figure(f"latency at {rate:,} tx/s: p{share} ms", by_share[share]) for share in PERCENTILES]


def verdicts(old: Sequence[Figure], new: Sequence[Figure], confidence: float, tolerance: float) -> list[Verdict]:
    """The verdict on each figure; `old` and `new` hold the same figures, one of each name for each run.

    `confidence` is that of all intervals together.
    """
    names = list(dict.fromkeys(figure.name for figure in old))
    each = 1 - (1 - confidence) / len(names)
    found = []
    for name in names:
        before, after = ([figure for figure in figures if figure.name == name] for figures in (old, new))
        ratio = interval([figure.value for figure in before], [figure.value for figure in after], each)
        found.append(Verdict(name, ratio, ratio.judge(tolerance, more_is_better=before[0].more_is_better)))
    return found


if __name__ == "__main__":
    main()
