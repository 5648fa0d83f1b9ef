"""What a topic for each of 1,000 tables costs: cdcd drains the same backlog to 1,000 topics and to one, in turn.

    python tests/bench/one_topic.py [--rows 200000] [--runs 3] [--warm-up 1] [--transaction-rows 1000]
        [--brokers 1] [--pg 18]

The workload is `relations` of `compare.py`: each transaction has a row of each table, and each topic has one partition.
A line for each drain says its rate and CPU; the last lines have the medians, and the rate to one topic as a multiple of
that to 1,000. Each drain ends with a count: a change that is missing or doubled ends the benchmark.

A backlog hides most of the cost: one Kafka transaction holds up to 100,000 events, and pays once for each topic that it
writes. A daemon that keeps up with its server commits after each transaction of PostgreSQL. `--transaction-rows 1000`
drains the backlog in this way: each Kafka transaction has a row of each table.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
from bench import compare, formats  # noqa: E402
from bench.measuring import parse  # noqa: E402
from bench.workloads import WORKLOADS  # noqa: E402

ONE = """
[[table]]
match = "public.r[0-9]*"
topic = "{prefix}.public.r0"
"""
"""`compare` counts what the topics of the tables have: the first one has it all."""


def main() -> None:
    """Drain to 1,000 topics and to one, and print the table of medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="size of the backlog (default: 200000)")
    parser.add_argument("--runs", type=int, default=3, help="runs (default: 3)")
    parser.add_argument("--warm-up", type=int, default=1, help="more runs, not counted (default: 1)")
    parser.add_argument("--transaction-rows", type=int, help="sink.transaction_rows_max (default: cdcd's)")
    parser.add_argument("--brokers", type=int, default=1, help="brokers; of three, two must be in sync (default: 1)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    given = parse(parser)
    limit = f"transaction_rows_max = {given.transaction_rows}" if given.transaction_rows else ""
    settings = {formats.PLAIN: limit, "cdcd-one-topic": limit + ONE}
    with compare.started_servers(given.pg, brokers=given.brokers) as started:
        formats.drain(started, WORKLOADS["relations"], settings, given)


if __name__ == "__main__":
    main()
