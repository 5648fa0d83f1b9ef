#!/usr/bin/env python3
"""Chaos on real servers: everything that can break does, while two installed daemons stream. Then comes the verdict.

    python tests/chaos/run.py --minutes 60 --report chaos.txt
    python tests/chaos/run.py --minutes 60 --brokers 3
    python tests/chaos/run.py --minutes 10 --kafka 2.8 --postgres 14
    python tests/chaos/run.py --minutes 3 --seed 7 --only kafka --events debezium/json
    python tests/chaos/run.py --minutes 3 --events cdcd/avro --routing "all tables in one topic"
    python tests/chaos/run.py --minutes 20 --every-format

There are one PostgreSQL, one broker or three, a proxy in front of each, and two daemons. One daemon streams, the other
stands by, and both are restarted when they end. Three brokers keep three replicas, of which two must be in sync.
Writers keep a ledger of what they committed. Faults come from a seed. The verdict comes from the topics alone
(`topic_check`). The seed also draws the format of the events, their topics, headers, masks, and whether the settings
have the key of a table (`draws`). The exit code is 0 if the run is clean, 1 if it is not.

`--every-format` gives each format an equal part of the minutes, one after the other, each on new servers.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import psycopg  # noqa: E402
import servers  # noqa: E402
from chaos import counts  # noqa: E402
from chaos.counts import CountWriter, Person  # noqa: E402
from chaos.daemons import RestartedDaemon, wait_for  # noqa: E402
from chaos.draws import FORMATS, ROUTINGS, Draw  # noqa: E402
from chaos.faults import Faults, World  # noqa: E402
from chaos.kafka_faults import OneBroker, ThreeBrokers  # noqa: E402
from chaos.masks import Masks, files_below  # noqa: E402
from chaos.report import Report  # noqa: E402
from chaos.topic_check import TopicCheck  # noqa: E402
from chaos.writers import KEYLESS, SCHEMA, Ledger, Writer  # noqa: E402
from servers.jars import KAFKAS, NEWEST, pinned_kafka  # noqa: E402
from support.kafka_cluster import proxied_cluster  # noqa: E402
from support.proxied_kafka import proxied_kafka  # noqa: E402
from support.proxy import Proxy  # noqa: E402
from support.registry import Registry  # noqa: E402

PREFIX, SLOT = "chaos", "schaos"
WRITERS = 4
PAUSE_S = 0.1
SETTLE_S = 240.0
"""Everything must be published this long after the last fault. A daemon that hangs is killed by its probe before."""

POSTGRES = {
    "wal_sender_timeout": "8s",
    "logical_decoding_work_mem": "64kB",  # transactions of a few hundred rows are streamed
    "wal_keep_size": "0",
    "max_wal_size": "256MB",
    "checkpoint_timeout": "60s",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "source": {"status_interval_s": 1, "tables": ["public.*", '"odd one".*', "counted.*"]},
    "spool": {"memory_bytes": 1 << 20, "bytes_max": 256 << 20},
}

KAFKA = {"log.segment.bytes": str(64 << 20)}
REPLICATED: dict[str, Any] = {"replication_factor": 3, "topic_config": {"min.insync.replicas": "2"}}


Part = Faults | TopicCheck | Writer | CountWriter | Person


def running(*parts: Part) -> tuple[Part, ...]:
    """The threads of a run, as one type. Each has a name and the error that ended it."""
    return parts


def main() -> int:
    """Run, report, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long faults come (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the faults and writers (default: a new one)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults with this text in their name")
    parser.add_argument("--postgres", type=int, default=NEWEST, help=f"major version (default: {NEWEST})")
    parser.add_argument("--kafka", default=KAFKAS[-1], help=f"one of {', '.join(KAFKAS)} (default: the newest)")
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1, help="how many (default: 1)")
    parser.add_argument("--events", choices=FORMATS, help="their format and encoding (default: by the seed)")
    parser.add_argument("--routing", choices=ROUTINGS, help="their topics (default: by the seed)")
    parser.add_argument("--every-format", action="store_true", help="all of these, for equal parts of the minutes")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the report to this file")
    parser.add_argument("--json", action="store_true", help="give the report as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep the daemons' logs in this directory")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1_000_000)
    forms = FORMATS if given.every_format else [given.events]
    reports = []
    for number, form in enumerate(forms):
        with tempfile.TemporaryDirectory(prefix="cdcd-chaos-") as folder:
            keep = given.keep / str(form).replace("/", "-") if given.keep and given.every_format else given.keep
            report = chaos(
                keep or Path(folder), given.minutes / len(forms), seed + number,
                only=given.only, version=given.postgres, kafka_version=given.kafka, brokers=given.brokers, form=form,
                routing=given.routing,
            )  # fmt: skip
        reports.append(report)
        print(report.as_json() if given.json else report.as_text(), flush=True)
    if given.every_format:
        print(summary(reports))
    if given.report:
        texts = [report.as_json() if given.json else report.as_text() for report in reports]
        given.report.write_text("\n\n".join([*texts, *([summary(reports)] if given.every_format else [])]) + "\n")
    return 1 if any(report.problems for report in reports) else 0


def summary(reports: list[Report]) -> str:
    """A line for each format, and the sum."""
    lines = [
        f"{'CLEAN' if not each.problems else 'NOT CLEAN':9}  {each.transactions:7,} transactions, {each.rows:9,} rows, "
        f"{sum(each.faults.values()):3} faults, lost {each.lost}, doubled {each.doubled}: {each.draw}"
        for each in reports
    ]
    transactions, rows = sum(each.transactions for each in reports), sum(each.rows for each in reports)
    lines.append(
        f"in all: {transactions:,} transactions, {rows:,} rows, "
        f"{sum(sum(each.faults.values()) for each in reports)} faults, lost {sum(each.lost for each in reports)}, "
        f"doubled {sum(each.doubled for each in reports)}, not clean {sum(bool(each.problems) for each in reports)}"
    )
    return "\n".join(["", *lines])


def chaos(
    folder: Path,
    minutes: float,
    seed: int,
    *,
    only: str = "",
    version: int = NEWEST,
    kafka_version: str = KAFKAS[-1],
    brokers: int = 1,
    form: str | None = None,
    routing: str | None = None,
) -> Report:
    """Break things for `minutes`, wait until everything is published, and compare the topics with the ledger.

    `form`: one of `draws.FORMATS`; `routing`: one of `draws.ROUTINGS`; None: the seed chooses.
    """
    began = datetime.now(UTC)
    draw = Draw.of(seed, form, routing)
    masks = Masks(on=draw.has_masks)
    with ExitStack() as stack:
        postgres = stack.enter_context(servers.PostgreSQL(version, settings=POSTGRES))
        kafka = stack.enter_context(kafka_of(kafka_version, brokers, folder, draw))
        to_postgres = stack.enter_context(Proxy(postgres.port))
        registry = stack.enter_context(Registry())
        reader = draw.reader(registry.schemas, PREFIX)
        ledger = Ledger(lambda change: reader.shown(masks.shown(change)))
        with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
            sql.execute((SCHEMA + counts.SCHEMA).encode())
            if draw.has_key:
                sql.execute(KEYLESS.encode())
        dsn = f"host=127.0.0.1 port={to_postgres.port} dbname=postgres user=postgres connect_timeout=3"
        two_phase = version >= 15
        settings: dict[str, Any] = SETTINGS | {"source": {**SETTINGS["source"], "two_phase": two_phase}}
        settings |= draw.settings(registry.url)
        if brokers > 1:
            settings["sink"] = REPLICATED | settings["sink"]
        daemons = [
            stack.enter_context(RestartedDaemon(f"daemon-{n}", folder, dsn, kafka.bootstrap, PREFIX, **settings))
            for n in (1, 2)
        ]
        wait_for(lambda: any(daemon.holds_slot for daemon in daemons), "daemon that streams", 240)
        check = TopicCheck(kafka.unproxied, PREFIX, ledger, reader, masks, has_headers=draw.has_headers)
        check.start()
        writers = [Writer(n, postgres.dsn(), ledger, seed, PAUSE_S, two_phase) for n in range(1, WRITERS + 1)]
        counting = CountWriter(postgres.dsn(), seed)
        person = Person(str(daemons[0].config), check.counts)
        for part in (*writers, counting, person):
            part.start()
        faults = Faults(World(postgres, kafka, to_postgres, daemons), seed, only)
        time.sleep(3)
        faults.start()
        leaks = _wait(minutes * 60, faults, check, running(*writers, counting, person), masks, daemons)
        faults.finish()
        counting.done.set()
        counting.join(60)
        check.counts.expect(postgres.dsn())
        problems = settle(writers, check, daemons)
        person.done.set()
        for daemon in daemons:
            daemon.stop()
        check.done.set()
        check.join(30)
        tables = check.compare_tables(postgres.dsn())
        check.counts.finish()
        problems += [*check.counts.problems, *leaks, *masks.leaks(daemon.log for daemon in daemons)]
        version_text = f"PostgreSQL {version}, Kafka {pinned_kafka(kafka_version)}, brokers: {brokers}"
    _timeline(folder / "faults.log", faults)
    report = Report(seed, commit(), f"{began:%Y-%m-%d %H:%M} UTC", minutes, version_text, draw.as_text(), tables=tables)
    report.counts = dict(check.counts.count) | {
        f"snapshot of {name}": how for name, how in check.counts.states.items() if how
    }
    _fill(report, ledger, check, faults, daemons, running(*writers, counting, person), problems)
    return report


@contextmanager
def kafka_of(version: str, brokers: int, folder: Path, draw: Draw) -> Iterator[OneBroker | ThreeBrokers]:
    """Start one broker or three, with their proxies."""
    if brokers == 1:
        with proxied_kafka(KAFKA, version) as (kafka, proxy):
            yield OneBroker(kafka, proxy)
    else:
        with proxied_cluster(version, settings=KAFKA) as proxied:
            topics = {draw.topic(PREFIX, "public", table) for table in ("items", "bulk")}
            yield ThreeBrokers(proxied, PREFIX, SLOT, sorted(topics), folder)


def _wait(
    seconds: float,
    faults: Faults,
    check: TopicCheck,
    writers: tuple[Part, ...],
    masks: Masks,
    daemons: list[RestartedDaemon],
) -> list[str]:
    """Wait; returns what the files of the spools hold that must be hidden."""
    deadline = time.monotonic() + seconds
    leaks: list[str] = []
    while time.monotonic() < deadline:
        time.sleep(0.5)
        check.restart_silent_reader()
        leaks = leaks or masks.leaks(file for daemon in daemons for file in files_below(daemon.spool))
        for part in running(faults, check, *writers):
            if part.error is not None:
                raise part.error
    return leaks


def settle(writers: list[Writer], check: TopicCheck, daemons: list[RestartedDaemon]) -> list[str]:
    """End the writers, and wait until everything is published; returns what is wrong if it is not."""
    for writer in writers:
        writer.done.set()
    for writer in writers:
        writer.join(60)
    began = time.monotonic()
    while not check.drained() and check.error is None:
        waited_s = time.monotonic() - began
        check.restart_silent_reader()
        if waited_s > SETTLE_S:
            late = f"not everything was published within {SETTLE_S:.0f} s after the last fault"
            return [late, check.state(), *(line for daemon in daemons for line in daemon.last_words())]
        time.sleep(0.2)
    time.sleep(3)  # a record that comes now is a duplicate
    return []


def _fill(
    report: Report,
    ledger: Ledger,
    check: TopicCheck,
    faults: Faults,
    daemons: list[RestartedDaemon],
    writers: tuple[Part, ...],
    problems: list[str],
) -> None:
    report.transactions, report.rows = check.count["transactions"], check.count["rows"]
    report.kafka_transactions = check.count["cuts"]
    report.rolled_back, report.unsure, report.kinds = ledger.rolled_back, ledger.unsure, dict(ledger.kinds)
    left = ledger.left()
    report.lost = len(left) + check.kinds["lost"]
    report.doubled = check.kinds["doubled"]
    report.outages(faults.log, check.arrivals)
    report.reader = dict(check.reader.ends)
    for daemon in daemons:
        report.restarts = dict(Counter(report.restarts) + daemon.restarts)
        report.exits = dict(Counter(report.exits) + daemon.exits)
        report.peak_rss_mb = max(report.peak_rss_mb, daemon.peak_rss_kb / 1024)
        report.problems += daemon.bugs
    report.problems += [*problems, *check.problems]
    report.problems += [f"lost: transaction {t.number} of {sum(map(len, t.statements))} rows" for t in left.values()][
        :20
    ]
    for part in running(check, faults, *writers):
        if part.error is not None:
            report.problems.append(f"{part.name} ended with {part.error!r}")
    # Such a transaction has lost rows, or the ledger missed its commit.
    report.problems += [f"unknown: a transaction with xid {xid} at {lsn}" for lsn, (xid, _) in check.unknown.items()]


def _timeline(path: Path, faults: Faults) -> None:
    """Write when each fault began and how long it lasted, on the clock of the daemons' logs."""
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
