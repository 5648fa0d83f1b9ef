#!/usr/bin/env python3
"""Chaos on real servers: the installed daemon, twice, streams while everything that can break does; then the verdict.

    python tests/chaos/run.py --minutes 60 --report chaos.txt
    python tests/chaos/run.py --minutes 3 --seed 7 --only kafka

PostgreSQL, Kafka, two proxies between them and two daemons (one stands by) under a restarter; writers that keep a
ledger; faults from a seed. The verdict comes from the topics alone (`judge`). Exit code 0: clean; 1: it is not.
A seed gives the same faults and the same writers, but not the same timing.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import psycopg  # noqa: E402
import servers  # noqa: E402
from chaos.faults import Faults, World  # noqa: E402
from chaos.judge import Judge  # noqa: E402
from chaos.pods import Pod, wait_for  # noqa: E402
from chaos.report import Report  # noqa: E402
from chaos.writers import SCHEMA, Ledger, Writer  # noqa: E402
from servers.jars import NEWEST  # noqa: E402
from support.proxied_kafka import proxied_kafka  # noqa: E402
from support.proxy import Proxy  # noqa: E402

WRITERS = 4
PAUSE_S = 0.1
SETTLE_S = 240.0
"""After the last fault: so soon must everything be published; a daemon that hangs is killed by its probe before."""

POSTGRES = {
    "wal_sender_timeout": "8s",
    "logical_decoding_work_mem": "64kB",  # transactions of a few hundred rows are streamed
    "wal_keep_size": "0",
    "max_wal_size": "256MB",
    "checkpoint_timeout": "60s",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "source": {"two_phase": True, "status_interval_s": 1, "tables": ["public.*", '"odd one".*']},
    "spool": {"memory_bytes": 1 << 20, "bytes_max": 256 << 20},
}


def running(*parts: Faults | Judge | Writer) -> tuple[Faults | Judge | Writer, ...]:
    """The threads of a run, as what they have in common: a name, and the error that ended them."""
    return parts


def main() -> int:
    """Run, report, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long things break (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="of faults and writers (default: a new one)")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this text in their name only")
    parser.add_argument("--postgres", type=int, default=NEWEST, help="major version")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the report there")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep the daemons' logs there")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1_000_000)
    with tempfile.TemporaryDirectory(prefix="cdcd-chaos-") as folder:
        report = chaos(given.keep or Path(folder), given.minutes, seed, only=given.only, version=given.postgres)
    text = report.as_json() if given.json else report.as_text()
    print(text)
    if given.report:
        given.report.write_text(text + "\n")
    return 1 if report.problems else 0


def chaos(folder: Path, minutes: float, seed: int, *, only: str = "", version: int = NEWEST) -> Report:
    """Break things for so long, then wait until all is published, and judge."""
    began = datetime.now(UTC)
    ledger = Ledger()
    with ExitStack() as stack:
        postgres = stack.enter_context(servers.PostgreSQL(version, settings=POSTGRES))
        kafka, to_kafka = stack.enter_context(proxied_kafka({"log.segment.bytes": str(64 << 20)}))
        to_postgres = stack.enter_context(Proxy(postgres.port))
        with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
            sql.execute(SCHEMA.encode())
        dsn = f"host=127.0.0.1 port={to_postgres.port} dbname=postgres user=postgres connect_timeout=3"
        pods = [
            stack.enter_context(Pod(f"pod-{n}", folder, dsn, f"127.0.0.1:{to_kafka.port}", "chaos", **SETTINGS))
            for n in (1, 2)
        ]
        wait_for(lambda: any(pod.holds_slot for pod in pods), "daemon that streams", 60)
        judge = Judge(kafka.bootstrap, "chaos", pods[0].slot, ledger)
        judge.start()
        writers = [Writer(n, postgres.dsn(), ledger, seed, PAUSE_S, version >= 15) for n in range(1, WRITERS + 1)]
        for writer in writers:
            writer.start()
        faults = Faults(World(postgres, kafka, to_postgres, to_kafka, pods), seed, only)
        time.sleep(3)
        faults.start()
        _wait(minutes * 60, faults, judge, writers)
        faults.finish()
        problems = settle(writers, judge, pods)
        for pod in pods:
            pod.stop()
        judge.done.set()
        judge.join(30)
        tables = judge.compare_tables(postgres.dsn())
        version_text = f"PostgreSQL {version}, Kafka {kafka.version}"
    _timeline(folder / "faults.log", faults)
    report = Report(seed, commit(), f"{began:%Y-%m-%d %H:%M} UTC", minutes, version_text, tables=tables)
    _fill(report, ledger, judge, faults, pods, writers, problems)
    return report


def _wait(seconds: float, faults: Faults, judge: Judge, writers: list[Writer]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.5)
        for part in running(faults, judge, *writers):
            if part.error is not None:
                raise part.error


def settle(writers: list[Writer], judge: Judge, pods: list[Pod]) -> list[str]:
    """End the writers, and wait until everything is published; what was not, is said."""
    for writer in writers:
        writer.done.set()
    for writer in writers:
        writer.join(60)
    began, afresh = time.monotonic(), False
    while not judge.drained() and judge.error is None:
        waited_s = time.monotonic() - began
        if waited_s > SETTLE_S / 2 and not afresh:
            judge.reader.kill()  # a consumer that hangs is not what is judged here
            afresh = True
        if waited_s > SETTLE_S:
            late = f"not everything was published within {SETTLE_S:.0f} s after the last fault"
            return [late, judge.state(), *(line for pod in pods for line in pod.last_words())]
        time.sleep(0.2)
    time.sleep(3)  # whatever comes now came twice
    return []


def _fill(
    report: Report,
    ledger: Ledger,
    judge: Judge,
    faults: Faults,
    pods: list[Pod],
    writers: list[Writer],
    problems: list[str],
) -> None:
    report.transactions, report.rows = judge.count["transactions"], judge.count["rows"]
    report.kafka_transactions = judge.count["cuts"]
    report.rolled_back, report.unsure, report.kinds = ledger.rolled_back, ledger.unsure, dict(ledger.kinds)
    left = ledger.left()
    report.lost = len(left) + judge.kinds["lost"]
    report.doubled = judge.kinds["doubled"]
    report.outages(faults.log, judge.arrivals)
    report.reader = dict(judge.reader.ends)
    for pod in pods:
        report.restarts = dict(Counter(report.restarts) + pod.again)
        report.exits = dict(Counter(report.exits) + pod.exits)
        report.peak_rss_mb = max(report.peak_rss_mb, pod.peak_rss_kb / 1024)
        report.problems += pod.bugs
    report.problems += [*problems, *judge.problems]
    report.problems += [f"lost: transaction {t.number} of {sum(map(len, t.statements))} rows" for t in left.values()][
        :20
    ]
    for part in running(judge, faults, *writers):
        if part.error is not None:
            report.problems.append(f"{part.name} ended with {part.error!r}")
    # Lost, or made without the ledger knowing.
    report.problems += [f"unknown: a transaction with xid {xid} at {lsn}" for lsn, (xid, _) in judge.unknown.items()]


def _timeline(path: Path, faults: Faults) -> None:
    """Write when which fault was, on the clock of the daemons' logs."""
    offset = time.time() - time.monotonic()
    lines = [
        f"{datetime.fromtimestamp(f.start_s + offset, UTC):%H:%M:%S.%f}"[:-3]
        + f" {f.end_s - f.start_s:6.1f} s  {f.kind}\n"
        for f in sorted(faults.log, key=lambda f: f.start_s)
    ]
    path.write_text("".join(lines))


def commit() -> str:
    found = subprocess.run(
        ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
