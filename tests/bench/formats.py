"""What the other formats, masks and headers cost: cdcd drains the same backlog with each of them, in turn.

    python tests/bench/formats.py [--rows 600000] [--runs 5] [--warm-up 2] [--variants cdcd-json,headers] [--pg 18]

The workload is `orders` of `compare.py`: rows of 12 columns. A line for each variant says its rate and CPU,
and the rate as a part of that of cdcd's own format in Avro, in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
from bench import compare  # noqa: E402
from bench.contestants import Figures, Means  # noqa: E402
from bench.measuring import parse  # noqa: E402
from bench.workloads import WORKLOADS, Workload  # noqa: E402
from servers.registry import SchemaRegistry  # noqa: E402

PLAIN = "cdcd"
_MASKS = """
[tables]
hash_secret = "sixteen bytes .."
[[table]]
match = "public.orders"
mask = { city = "hash", remark = { last = 4 } }
"""
VARIANTS = {
    PLAIN: "",
    "cdcd-json": 'encoding = "json"',
    "debezium-json": 'format = "debezium"\nencoding = "json"',
    "debezium-json-schema": 'format = "debezium"\nencoding = "json-schema"',
    "debezium-avro": 'format = "debezium"\nencoding = "avro"\n[avro]\nregistry_url = "{registry}"\n'
    '[debezium]\nschema_name_adjustment_mode = "avro"',  # the prefix has hyphens
    "row-json": 'format = "row"\nencoding = "json"',
    "masks": _MASKS,
    "headers": 'headers = ["op", "table", "lsn", "txid", "commit_time", "schema_version"]',
    "cloudevents": 'headers = ["cloudevents"]',
}
"""The settings of each variant, as `Means.settings`."""


def main() -> None:
    """Drain with every variant, and print the table of medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--variants", type=compare.some_of(VARIANTS), default="all", help=f"all, or {', '.join(VARIANTS)}"
    )
    parser.add_argument("--rows", type=int, default=600_000, help="size of the backlog (default: 600000)")
    parser.add_argument("--runs", type=int, default=5, help="runs (default: 5)")
    parser.add_argument("--warm-up", type=int, default=2, help="more runs, not counted (default: 2)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    given = parse(parser)
    names = list(dict.fromkeys([PLAIN, *given.variants]))
    with compare.started_servers(given.pg) as started, SchemaRegistry() as registry:
        settings = {name: VARIANTS[name].replace("{registry}", registry.url) for name in names}
        drain(started, WORKLOADS["orders"], settings, given)


def drain(started: compare.Started, workload: Workload, settings: Mapping[str, str], given: argparse.Namespace) -> None:
    """Drain with each of these settings in turn, and print each drain and the table of medians."""
    names = list(settings)
    changes = workload.changes(given.rows)
    results: compare.Results = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        means = Means(dict.fromkeys(names, given.cdcd), "", Path(folder) / "recording", settings)
        bench = compare.Bench(*started, means, workload)
        print(f"{changes:,} changes, {workload.what}\n{compare.HEADER}", flush=True)
        with bench.tables():
            for run in range(-given.warm_up, given.runs):
                for name, figures in bench.run(changes, compare.in_turn(names, run)):
                    print(compare.line(name, figures, changes) + ("" if run >= 0 else "  warm-up"), flush=True)
                    if run >= 0:
                        results[name].append(figures)
    print("\n" + "\n".join(table(results, changes)))


def table(results: compare.Results, changes: int) -> list[str]:
    """A line for each variant: its medians, and the median over the runs of its rate divided by the plain one's."""
    lines = ["median of the runs", compare.HEADER]
    for name, many in results.items():
        pairs = zip(many, results[PLAIN], strict=True)
        ratio = statistics.median(_ratio(one, plain) for one, plain in pairs)
        lines.append(f"{compare.line(name, compare.middle(many), changes)}   {ratio:.2f} of {PLAIN}")
    return lines


def _ratio(one: Figures, plain: Figures) -> float:
    """The rate of a drain, divided by that of another one of the same backlog."""
    return plain.seconds / one.seconds


if __name__ == "__main__":
    main()
