"""The latency of a row, from PostgreSQL's commit to a `read_committed` consumer, with cdcd and the peer (Debezium).

    python tests/bench/latency.py [--rates 10,1000,5000] [--contestants cdcd,debezium-exactly-once] [--seconds 20]
        [--warm-up 10] [--runs 1] [--brokers 1] [--pg 18] [--json]

The contestants: cdcd and debezium-exactly-once with Kafka's transactions; cdcd-at-least-once and debezium-json without.

A procedure in the server commits single-row transactions at a steady rate. Each row has its `clock_timestamp()`, taken
just before the commit. A consumer (librdkafka) receives the events: a row's latency is the time of its arrival minus
that timestamp. The contestants run one after the other. Each is warmed up first, with 1,000 transactions a second. The
first contestant finds a cold broker, so make several runs; each run has another order, and the medians come last.
Server, broker, daemon, writer and consumer share the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from bench import peer  # noqa: E402
from bench.compare import in_turn  # noqa: E402
from bench.contestants import KINDS, cdcd  # noqa: E402
from bench.measuring import parse, percentile, until  # noqa: E402
from support.topics import Topics  # noqa: E402

SCHEMA = """
CREATE TABLE ticks (id bigint PRIMARY KEY, at timestamptz, payload text);
CREATE PROCEDURE tick(first bigint, rate int, seconds int) LANGUAGE plpgsql AS $$
DECLARE start timestamptz := clock_timestamp(); due bigint; n bigint := 0;
BEGIN
  WHILE n < rate * seconds LOOP
    due := least(rate * seconds, floor(extract(epoch FROM clock_timestamp() - start) * rate));
    WHILE n < due LOOP
      INSERT INTO ticks VALUES (first + n, clock_timestamp(), 'payload of a row');
      COMMIT;
      n := n + 1;
    END LOOP;
    PERFORM pg_sleep(0.0003);
    COMMIT;
  END LOOP;
END $$;
"""


SHARES = (50, 99, 99.9, 100)
CDCD = {"cdcd": "exactly_once", "cdcd-at-least-once": "at_least_once"}
"""The setting `sink.delivery` of cdcd's contestants."""
CONTESTANTS = (*CDCD, "debezium-json", "debezium-exactly-once")


def main() -> None:
    """Measure each contestant at each rate, print a line for each, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="10,1000,5000", help="transactions a second (default: 10,1000,5000)")
    parser.add_argument("--contestants", default="cdcd", help=f"some of {', '.join(CONTESTANTS)} (default: cdcd)")
    parser.add_argument("--seconds", type=int, default=20, help="length of each measurement (default: 20)")
    parser.add_argument("--warm-up", type=int, default=10, help="seconds before the first measurement (default: 10)")
    parser.add_argument("--runs", type=int, default=1, help="runs of each contestant (default: 1)")
    parser.add_argument("--brokers", type=int, default=1, help="brokers; of three, two must be in sync (default: 1)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    parser.add_argument("--json", action="store_true", help="print each run's percentiles as JSON at the end")
    given = parse(parser)
    rates = [int(rate) for rate in given.rates.split(",")]
    names = given.contestants.split(",")
    if unknown := set(names) - set(CONTESTANTS):
        parser.error(f"not a contestant: {', '.join(unknown)}")
    found: dict[str, dict[int, list[list[float]]]] = {name: {rate: [] for rate in rates} for name in names}
    with (
        servers.PostgreSQL(given.pg, fsync=False) as postgres,
        servers.KafkaCluster(brokers=given.brokers, heap_mb=384, jvm=()) as kafka,
        psycopg.connect(postgres.dsn(), autocommit=True) as sql,
    ):
        bench = Bench(postgres, kafka, sql, dict.fromkeys(CDCD, given.cdcd), given.seconds, given.warm_up)
        bench.make_table()
        for run, name in [(number, name) for number in range(given.runs) for name in in_turn(names, number)]:
            for rate, percentiles in bench.run(name, rates, run):
                found[name][rate].append(percentiles)
                print(line(name, rate, percentiles), flush=True)
    for rate in rates:
        for name in names:
            middle = [statistics.median(figures) for figures in zip(*found[name][rate], strict=True)]
            print(f"median of {given.runs}  {line(name, rate, middle)}", flush=True)
    if given.json:
        print(json.dumps(found))


def line(name: str, rate: int, percentiles: list[float]) -> str:
    """One line of the output; `percentiles` in ms, as SHARES."""
    figures = (f"p{p} {ms:7.1f} ms" for p, ms in zip(SHARES, percentiles, strict=True))
    return f"{name:22} {rate:6,} tx/s  {'  '.join(figures)}"


@dataclass(frozen=True)
class Bench:
    """The benchmark, on one server and one broker."""

    postgres: servers.PostgreSQL
    kafka: servers.KafkaCluster
    sql: psycopg.Connection
    commands: Mapping[str, str]
    """The contestants that are a cdcd, each with the command that runs it."""
    seconds: int
    """The length of each measurement."""
    warm_up_s: int

    def make_table(self) -> None:
        """Make the table, its publication and the procedure that fills it."""
        for statement in SCHEMA.split(";\n", 1):
            self.sql.execute(statement)
        self.sql.execute("CREATE PUBLICATION latency FOR TABLE ticks")

    def run(self, name: str, rates: Sequence[int], run: int) -> Iterator[tuple[int, list[float]]]:
        """Run a contestant, and measure it at each rate; yields the rate and its latencies in ms, as SHARES.

        No other run of the contestant has the number `run`.
        """
        slot = name.replace("-", "_")
        prefix = f"latency-{name}-{run}"
        task = peer.Task(self.postgres, self.kafka, slot, "latency", prefix, streaming="auto", quick=True)
        self.sql.execute("TRUNCATE ticks")
        self.sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        with self._started(name, task):
            for rate, late in self._measured(task, self._commit_time(name, task), rates):
                yield rate, [percentile(late, share) * 1000 for share in SHARES]
        self.sql.execute("SELECT pg_drop_replication_slot(%s)", (slot,))

    @contextlib.contextmanager
    def _started(self, name: str, task: peer.Task) -> Iterator[None]:
        """Run the contestant while a `with` lasts."""
        if name in self.commands:
            with cdcd(task, self.commands[name], CDCD.get(name, "exactly_once")):
                yield
        else:
            with peer.Connect(task, KINDS[name]):
                yield

    def _commit_time(self, name: str, task: peer.Task) -> Callable[[bytes], float]:
        """A function that reads from an event when its row was committed, in seconds since 1970."""
        if name in self.commands:
            reader = Topics(task.kafka.bootstrap, task.prefix)
            return lambda value: float(reader._decode(value)["after"]["at"].timestamp())
        return lambda value: dt.datetime.fromisoformat(json.loads(value)["after"]["at"]).timestamp()

    def _measured(
        self, task: peer.Task, commit_time: Callable[[bytes], float], rates: Sequence[int]
    ) -> Iterator[tuple[int, list[float]]]:
        """Measure every rate; yields the rate and its rows' latencies in seconds, ascending."""
        active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
        until(lambda: self.sql.execute(active, (task.slot,)).fetchone(), 120)
        # Make the topic, and warm up the JITs. The measurement begins when all of these rows have arrived.
        early, early_s = (1000, self.warm_up_s) if self.warm_up_s else (1, 1)
        self.sql.execute(f"CALL tick({-early * early_s}, {early}, {early_s})")
        topic = f"{task.prefix}.public.ticks"
        reader = Topics(task.kafka.bootstrap, task.prefix)
        until(lambda: topic in reader.names(), 60)
        until(lambda: sum(1 for _ in reader.raw(topic)) == early * early_s, 120)
        first = 1
        for rate in rates:
            arrivals: list[tuple[float, bytes]] = []
            count = rate * self.seconds
            ready = threading.Event()
            thread = threading.Thread(target=_consume, args=(task.kafka.bootstrap, topic, count, arrivals, ready))
            thread.start()
            ready.wait(10)
            self.sql.execute(f"CALL tick({first}, {rate}, {self.seconds})")
            first += count
            thread.join(60)
            late = sorted(seconds - commit_time(value) for seconds, value in arrivals)
            if len(late) != count:
                sys.exit(f"{len(late)} of {count} rows came")
            yield rate, late


def _consume(
    bootstrap: str, topic: str, count: int, arrivals: list[tuple[float, bytes]], ready: threading.Event
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "latency",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 1,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    ends = [TopicPartition(topic, p, consumer.get_watermark_offsets(TopicPartition(topic, p))[1]) for p in partitions]
    consumer.assign(ends)
    consumer.poll(0.5)
    ready.set()
    deadline = time.monotonic() + 600
    while len(arrivals) < count and time.monotonic() < deadline:
        first = consumer.poll(0.1)  # `consume` would wait for more events, up to its timeout
        now = time.time()
        if first is not None:
            messages = [first, *consumer.consume(1000, timeout=0)]
            arrivals.extend((now, message.value() or b"") for message in messages if message.error() is None)
    consumer.close()


if __name__ == "__main__":
    main()
