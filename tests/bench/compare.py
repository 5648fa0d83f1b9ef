"""How fast a backlog is drained: cdcd next to the peer (Debezium) and next to the limits of what is around it.

    python tests/bench/compare.py [--workloads orders,mixed] [--contestants pg_recvlogical,limit,broker,cdcd]
        [--rows 600000] [--runs 5] [--warm-up 2] [--pg 18] [--text] [--work-mem 64MB] [--json]

The limits: `pg_recvlogical -f /dev/null` with the same options; `limit`, a bare reader that only receives, with the
daemon's coalesced reads; and `broker`, librdkafka alone, which publishes from memory the keys and values that cdcd has
published of the workload. The peer is Debezium on Kafka Connect (`peer.py`), with JSON, with Avro, and exactly once.

Each run makes a slot for every contestant, then one backlog for all slots. The contestants drain it one after the
other, into the same broker, in an order that changes with the run. `contestants.py` says from when to when a rate
counts. The topics exist before a drain, and cdcd has published one message from its slot. After a drain the topics are
read back: every change must have arrived once. For `broker`, cdcd first drains a backlog that does not count.

The warm-up runs do not count: a new broker compiles itself, and takes four times the CPU that it takes some million
records later. Every drain prints a line. A table of the medians comes last. Its rates come twice: of the whole drain,
a JVM's warm-up included (cold), and of the second half of the changes (warm). So do the ratios, cdcd's rate divided by
the contestant's. `bound by` is what the drain was bound by; `bound.py` has the rule, and cdcd's line below the table
says how many cores each part has used.

--rows sets the sizes of all workloads; some take a part of it (`workloads.py`). Transactions in progress are received
in blocks only if they are larger than --work-mem, as 600,000 rows are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import TypeAlias

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from bench import peer, publishing  # noqa: E402
from bench.avro_registry import AvroRegistry  # noqa: E402
from bench.contestants import (  # noqa: E402
    CONTESTANTS,
    END,
    END_TABLE,
    KINDS,
    LIMITS,
    RECEIVERS,
    Backlog,
    Figures,
    Means,
    drain,
    warm,
)
from bench.measuring import parse, refuse_uncompiled_import, until, value_of  # noqa: E402
from bench.workloads import WORKLOADS, Workload  # noqa: E402
from support.topics import Topics  # noqa: E402

Results = dict[str, list[Figures]]
Recorded = dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]]
LARGE_RECORDS = {"message.max.bytes": str(8 << 20)}
ROW = "{:22} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10} {:>8} {:>10} {:>8} {:>8}  {}"
HEADER = ROW.format(
    "", "changes/s", "2nd half", "cdcd/it", "2nd half", "CPU us", "walsender", "broker", "start CPU", "RSS MB",
    "first s", "bound by",
)  # fmt: skip
"""`2nd half`: changes a second after half of them have arrived, a JVM is warm by then; and the ratio of these.
`CPU us`, `walsender`, `broker`: CPU microseconds a change. `start CPU`: the contestant's CPU seconds before the drain.
`first s`: seconds from the start to the first event."""


def main() -> None:
    """Drain every workload with every contestant, print a line for each drain, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workloads", type=some_of(WORKLOADS), default="orders", help=f"all, or {', '.join(WORKLOADS)}"
    )
    parser.add_argument(
        "--contestants", type=some_of(CONTESTANTS), default="all", help=f"all, or {', '.join(CONTESTANTS)}"
    )
    parser.add_argument("--rows", type=int, default=600_000, help="size of the workloads (default: 600000)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each workload (default: 5)")
    parser.add_argument(
        "--warm-up", type=int, default=2, help="more runs of the first workload, not counted (default: 2)"
    )
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    parser.add_argument("--text", action="store_true", help="text mode instead of binary (the peer always has text)")
    parser.add_argument("--work-mem", default="64MB", help="the server's logical_decoding_work_mem")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON at the end")
    given = parse(parser)
    refuse_uncompiled_import(allowed=given.uncompiled)  # `limit` and `broker` run this Python's
    table = ["median of the runs", HEADER]
    document: dict[str, dict[str, list[dict[str, float]]]] = {}
    with (
        started_servers(given.pg, given.work_mem) as (postgres, kafka, sql),
        AvroRegistry() as registry,
        tempfile.TemporaryDirectory() as folder,
    ):
        for number, name in enumerate(given.workloads):
            workload = WORKLOADS[name]
            commands = {"cdcd": given.cdcd, "cdcd-json": f"env CDCD_SINK__ENCODING=json {given.cdcd}"}
            means = Means(commands, registry.url, Path(folder) / name)
            bench = Bench(postgres, kafka, sql, means, workload, not given.text)
            changes = workload.changes(given.rows)
            title = f"{name}: {changes:,} changes, {workload.what}"
            print(f"{title}\n{HEADER}", flush=True)
            results: Results = {contestant: [] for contestant in given.contestants}
            with bench.tables():
                if "broker" in given.contestants:
                    bench.record(changes)
                for run in range(0 if number else -given.warm_up, given.runs):
                    for contestant, figures in bench.run(changes, in_turn(given.contestants, run)):
                        counts = run >= 0
                        if counts:
                            results[contestant].append(figures)
                        print(line(contestant, figures, changes) + ("" if counts else "  warm-up"), flush=True)
            table += [title, *medians(results, changes), *summary(results)]
            document[name] = {who: [asdict(figures) for figures in all_] for who, all_ in results.items()}
    print("\n" + "\n".join(table))
    if given.json:
        print(json.dumps(document))


Started: TypeAlias = tuple[servers.PostgreSQL, servers.KafkaCluster, psycopg.Connection]


@contextlib.contextmanager
def started_servers(postgres: str, work_mem: str = "64MB", brokers: int = 1) -> Iterator[Started]:
    """Run the server of this major version and the brokers while a `with` lasts; yields them, and a session."""
    memory = {"logical_decoding_work_mem": work_mem, "max_wal_size": "8GB"}
    with (
        servers.PostgreSQL(postgres, fsync=False, settings=memory) as server,
        servers.KafkaCluster(brokers=brokers, heap_mb=384, jvm=(), settings=LARGE_RECORDS) as kafka,
        psycopg.connect(server.dsn(), autocommit=True) as sql,
    ):
        yield server, kafka, sql


@dataclass(frozen=True)
class Bench:
    """The benchmark of one workload, on one server and one broker."""

    postgres: servers.PostgreSQL
    kafka: servers.KafkaCluster
    sql: psycopg.Connection
    means: Means
    workload: Workload
    binary: bool = True

    @contextlib.contextmanager
    def tables(self) -> Iterator[None]:
        """Make the workload's tables and their publication `bench`; drop them at the end."""
        names = ", ".join((*self.workload.tables, END))
        for statement in (*self.workload.tables.values(), END_TABLE):
            self.sql.execute(statement)
        self.sql.execute(f"CREATE PUBLICATION bench FOR TABLE {names}")
        yield
        self.sql.execute("DROP PUBLICATION bench")
        self.sql.execute(f"DROP TABLE {names}")

    def run(
        self, changes: int, contestants: Sequence[str], recording: Recorded | None = None
    ) -> Iterator[tuple[str, Figures]]:
        """Make one backlog for the slots of all contestants, and drain it with each; yields the figures.

        What has been published goes into `recording`, if it is given.
        """
        tables = tuple(self.workload.tables)
        self.sql.execute(f"TRUNCATE {', '.join((*tables, END))}")
        for statement in self.workload.before:
            self.sql.execute(statement)
        tasks = {name: self._task(name) for name in contestants}
        for name, task in tasks.items():
            if task.slot:
                self.sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (task.slot,))
            if name in self.means.commands:
                warm(name, task, self.sql, self.means)
        for statement in self.workload.backlog(changes):
            self.sql.execute(statement)
        self.sql.execute(f"INSERT INTO {END} VALUES (1)")
        end = value_of(self.sql, "SELECT pg_current_wal_lsn()")
        # pg_recvlogical ends only when it sees something after its --endpos.
        self.sql.execute("SELECT pg_logical_emit_message(false, 'end', 'end')")
        self.sql.execute("CHECKPOINT")
        backlog = Backlog(tables, changes, end)
        for name, task in tasks.items():
            with self._topics(task, tables):
                figures = drain(name, task, backlog, self.sql, self.means)
                self._check(name, task, backlog, recording)
            if task.slot:
                self.sql.execute("SELECT pg_drop_replication_slot(%s)", (task.slot,))
            yield name, figures

    def record(self, changes: int) -> None:
        """Let cdcd drain a backlog, and keep what it publishes: for `broker`."""
        recording: Recorded = defaultdict(list)
        for _ in self.run(changes, ["cdcd"], recording):
            publishing.write(recording, self.means.recording)

    def _task(self, name: str) -> peer.Task:
        # Each drain has its own topics: a new topic may still find the files of a deleted topic with the same name.
        prefix = f"{name.replace('_', '-')}-{time.monotonic_ns()}"
        slot = "" if name == "broker" else name.replace("-", "_")
        return peer.Task(
            self.postgres, self.kafka, slot, "bench", prefix, self.workload.partitions, self.workload.record_mb,
            self.workload.streaming, self.binary,
        )  # fmt: skip

    @contextlib.contextmanager
    def _topics(self, task: peer.Task, tables: Sequence[str]) -> Iterator[None]:
        """Make the tables' topics; at the end, delete all topics of the prefix."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        wanted = [NewTopic(f"{task.prefix}.public.{table}", task.partitions) for table in tables]
        made = admin.create_topics([*wanted, NewTopic(f"{task.prefix}.public.{END}", 1)])
        for future in made.values():
            future.result()
        until(lambda: made.keys() <= admin.list_topics(timeout=10).topics.keys(), 60)  # the broker learns of them later
        yield
        there = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(task.prefix)]
        for future in admin.delete_topics(there).values():
            future.result()

    def _check(self, name: str, task: peer.Task, backlog: Backlog, recording: Recorded | None) -> None:
        """End the benchmark if a change is missing or doubled, or was not received in the wanted streaming mode."""
        if task.slot:
            query = "SELECT stream_count > 0 FROM pg_stat_replication_slots WHERE slot_name = %s"
            in_blocks = value_of(self.sql, query, (task.slot,))
            if in_blocks != (task.streaming != "off" and name not in KINDS):  # the peer has protocol 1 only
                sys.exit(f"{name} received transactions in progress: {in_blocks}; change --work-mem")
        if name not in RECEIVERS:
            came = 0
            topics = {f"{task.prefix}.public.{table}": table for table in backlog.tables}
            for message in Topics(self.kafka.bootstrap, task.prefix).raw(*topics):
                came += 1
                if recording is not None:
                    recording[topics[message.topic()], message.partition()].append((message.key(), message.value()))
            if came != backlog.changes:
                sys.exit(f"{name} published {came:,} events of {backlog.changes:,} changes")


def in_turn(contestants: Sequence[str], run: int) -> list[str]:
    """The contestants' order in a run: each is first in turn, and every second round goes backwards."""
    first = run % len(contestants)
    order = [*contestants[first:], *contestants[:first]]
    return order[::-1] if run // len(contestants) % 2 else order


def line(name: str, figures: Figures, changes: int, ratios: tuple[str, str] = ("", "")) -> str:
    """One line of the table. `ratios` are its columns cdcd/it: of the whole drain, and of its second half."""
    spent = [seconds / changes * 1e6 for seconds in (figures.cpu_s, figures.walsender_cpu_s, figures.broker_cpu_s)]
    return ROW.format(
        name, f"{changes / figures.seconds:,.0f}", f"{figures.warm_rate:,.0f}", *ratios,
        *(f"{us:,.2f}" for us in spent), f"{figures.start_cpu_s:.2f}", f"{figures.rss_mb:,.0f}",
        f"{figures.first_event_s:.2f}", figures.bound(own_part(name)),
    )  # fmt: skip


def own_part(name: str) -> str:
    """The name of a contestant's own part, librdkafka excepted: cdcd's is the daemon."""
    return "daemon" if name == "cdcd" else name


def middle(many: Iterable[Figures]) -> Figures:
    """The median of each figure."""
    return Figures(*(statistics.median(values) for values in zip(*map(astuple, many), strict=True)))


def ratios_to(other: Figures, cdcd: Figures) -> tuple[float, float]:
    """The ratios of cdcd's rate to the other's: of the whole drain, and of its second half (NaN: unknown)."""
    return other.seconds / cdcd.seconds, cdcd.warm_rate / other.warm_rate if other.warm_rate else math.nan


def medians(results: Results, changes: int) -> list[str]:
    """A line for each contestant, with the median of each figure, and cdcd's rates divided by the contestant's."""
    found = {name: middle(many) for name, many in results.items()}
    lines = []
    for name, figures in found.items():
        cold, warm_ = ratios_to(figures, found["cdcd"]) if "cdcd" in found else (math.nan, math.nan)
        lines.append(line(name, figures, changes, (_ratio(cold), _ratio(warm_))))
    return lines


def summary(results: Results) -> list[str]:
    """A line with cdcd's ratios to the limits, cold and warm, and what bound it; none without cdcd."""
    if "cdcd" not in results:
        return []
    cdcd = middle(results["cdcd"])
    compared = []
    for name in LIMITS:
        if name in results:
            cold, warm_ = ratios_to(middle(results[name]), cdcd)
            compared.append(f"{_ratio(cold)} of {name} (warm {_ratio(warm_) or 'unknown'})")
    own = own_part("cdcd")
    cores = ", ".join(f"{part} {used:.2f}" for part, used in cdcd.cores(own).items())
    said = f"cdcd is {', '.join(compared)}" if compared else "cdcd"
    return [f"{said}; bound by: {cdcd.bound(own)} (cores: {cores}; machine {cdcd.machine_share:.0%} busy)"]


def _ratio(ratio: float) -> str:
    return "" if math.isnan(ratio) else f"{ratio:.2f}"


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """The type of an option whose value is `all` or some of `known`, separated by commas."""

    def names(given: str) -> list[str]:
        chosen = list(known) if given == "all" else given.split(",")
        if unknown := set(chosen) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
        return chosen

    return names


if __name__ == "__main__":
    main()
