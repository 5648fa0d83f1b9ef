"""How a daemon with many tables starts, and what their events cost: new tables, and tables that are known.

    python tests/bench/many_tables.py [--tables 5000] [--one-topic] [--registry] [--pg 18]

The daemon starts with `--tables` tables of three columns, each with a topic of one partition (`--one-topic`: one topic
for all). A line for each step:

- `start, new tables`: from the start of the process until the log says that the stream goes on. There is nothing yet.
- `first transaction`: a row of each table. The daemon makes their topics. Until the slot is confirmed.
- `next transaction`: the same, five times; the median.
- `start, known tables`: the daemon was stopped, and starts again.
- `first transaction` and `next transaction` of that process.

`CPU s` is the daemon's. `broker s`: that of the broker. `peak MB`: the most memory so far of the process, and what this
is for each table above that of a daemon with one table. `requests`: to the schema registry, with --registry.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
from bench import compare, one_topic, peer  # noqa: E402
from bench.contestants import cdcd  # noqa: E402
from bench.measuring import cpu_s, memory_mb, parse, until, value_of  # noqa: E402
from servers.processes import alive  # noqa: E402
from support.registry import Answer, Registry  # noqa: E402

ROW = "{:34} {:>8} {:>8} {:>9} {:>9} {:>12} {:>9}"
AGAIN = 5


class ManySchemas(Registry):
    """A registry that is as fast with 10,000 schemas as with one."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}
        """Where in `schemas` each of them is."""

    def register(self, subject: str, schema: str) -> Answer:
        self.requests.append(("register", subject))
        number = self._numbers.setdefault(schema, len(self.schemas))
        if number == len(self.schemas):
            self.schemas.append(schema)
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return 200, {"id": number + 1}


class Measured:
    """The steps of one daemon."""

    def __init__(self, task: peer.Task, sql: psycopg.Connection, tables: int, registry: ManySchemas) -> None:
        self._task = task
        self._sql = sql
        self._tables = tables
        self._registry = registry
        self._base_mb = 0.0
        self._rows = 0

    @contextmanager
    def running(self, command: str, more: str, what: str) -> Iterator[int]:
        """Run the daemon, and print what its start took; yields its process id."""
        self._registry.requests.clear()
        began, broker = time.monotonic(), self._broker_s()
        with cdcd(self._task, command, more=more) as (process, log):
            until(lambda: b"going on" in log.read_bytes() or not alive(process.pid), 300)
            if not alive(process.pid):
                sys.exit(f"the daemon has ended: {log.read_text()}")
            self._print(f"start, {what}", process.pid, time.monotonic() - began, cpu_s(process.pid), broker)
            yield process.pid

    def one_table(self, pid: int) -> None:
        """Note the memory of a daemon with one table."""
        self._insert(1)
        self._base_mb = memory_mb(pid)

    def transactions(self, pid: int) -> None:
        """Let the daemon publish transactions with a row of each table."""
        self._step("first transaction", pid, lambda: self._insert(self._tables))
        seconds, spent = [], []
        broker = self._broker_s()
        for _ in range(AGAIN):
            before = cpu_s(pid)
            seconds.append(self._insert(self._tables))
            spent.append(cpu_s(pid) - before)
        broker += (self._broker_s() - broker) * (1 - 1 / AGAIN)
        self._print("next transaction", pid, statistics.median(seconds), statistics.median(spent), broker)

    def _step(self, name: str, pid: int, work: Callable[[], float]) -> None:
        self._registry.requests.clear()
        before, broker = cpu_s(pid), self._broker_s()
        self._print(name, pid, work(), cpu_s(pid) - before, broker)

    def _insert(self, tables: int) -> float:
        """Insert a row into each table. Returns the seconds from the commit until the slot is confirmed."""
        self._rows += 1
        self._sql.execute(
            f"DO $$ BEGIN FOR n IN 0..{tables - 1} LOOP"
            f" EXECUTE format('INSERT INTO r%s VALUES ({self._rows}, %s, ''note'')', n, n); END LOOP; END $$".encode()
        )
        began = time.monotonic()
        end = value_of(self._sql, "SELECT pg_current_wal_lsn()")
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        until(lambda: value_of(self._sql, query, (end, self._task.slot)), 600)
        return time.monotonic() - began

    def _broker_s(self) -> float:
        return sum(cpu_s(broker.pid) for broker in self._task.kafka.brokers)

    def _print(self, name: str, pid: int, seconds: float, own: float, broker: float) -> None:
        peak = memory_mb(pid)
        each = f"{(peak - self._base_mb) * 1024 / self._tables:.1f} KB each" if self._base_mb else ""
        spent = self._broker_s() - broker
        figures = f"{seconds:.2f}", f"{own:.2f}", f"{spent:.2f}", f"{peak:.0f}", each, len(self._registry.requests)
        print(ROW.format(name, *figures), flush=True)


def main() -> None:
    """Measure the steps, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=5_000, help="how many (default: 5000)")
    parser.add_argument("--one-topic", action="store_true", help="one topic for all tables")
    parser.add_argument("--registry", action="store_true", help="schemas in a registry")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    given = parse(parser)
    with compare.started_servers(given.pg) as (postgres, kafka, sql), ManySchemas() as registry:
        more = one_topic.ONE if given.one_topic else ""
        if given.registry:
            more += f'[avro]\nregistry_url = "{registry.url}"\nsubject_strategy = "topic-record"\n'
        names = [f"r{n}" for n in range(given.tables)]
        print(ROW.format(f"{given.tables:,} tables", "seconds", "CPU s", "broker s", "peak MB", "", "requests"))
        sql.execute(f"CREATE TABLE {names[0]} (id bigint PRIMARY KEY, v int, note text)".encode())
        sql.execute(f"CREATE PUBLICATION bench FOR TABLE {names[0]}".encode())
        task = peer.Task(postgres, kafka, "bench", "bench", "bench", 1)
        measured = Measured(task, sql, given.tables, registry)
        with measured.running(given.cdcd, more, "one table") as pid:
            measured.one_table(pid)
        for first in range(1, given.tables, 500):
            some = names[first : first + 500]
            tables = [f"CREATE TABLE {name} (id bigint PRIMARY KEY, v int, note text)" for name in some]
            sql.execute("; ".join([*tables, f"ALTER PUBLICATION bench ADD TABLE {', '.join(some)}"]).encode())
        with measured.running(given.cdcd, more, "new tables") as pid:
            measured.transactions(pid)
        with measured.running(given.cdcd, more, "known tables") as pid:
            measured.transactions(pid)


if __name__ == "__main__":
    main()
