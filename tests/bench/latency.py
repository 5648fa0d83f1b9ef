"""How long a committed row takes to be seen: PostgreSQL's commit to a `read_committed` consumer.

    python tests/bench/latency.py [--rates 10,200,1000] [--seconds 20] [--pg 18]

A procedure commits single-row transactions at a steady rate, each with its own `clock_timestamp()`, taken just before
the commit. A consumer of librdkafka takes the events; the latency of a row is the time of its arrival less that
timestamp.
Server, broker, daemon, writer and consumer share the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "deploy"), str(Path(__file__).resolve().parents[1])]
import servers  # noqa: E402
from topics import Topics  # noqa: E402

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


def main() -> None:
    """Run each rate and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="10,200,1000,3000")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--pg", default="18")
    parser.add_argument("--cdcd", default=f"{sys.executable} -m cdcd", help="the command")
    arguments = parser.parse_args()
    with (
        servers.PostgreSQL(arguments.pg, fsync=False) as postgres,
        servers.Kafka(jvm=()) as kafka,
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(postgres.dsn(), autocommit=True) as sql,
    ):
        for statement in SCHEMA.split(";\n", 1):
            sql.execute(statement)
        config = Path(folder) / "cdcd.toml"
        config.write_text(
            f'[source]\ndsn = "{postgres.dsn()}"\n[sink]\nbootstrap_servers = "{kafka.bootstrap}"\nprefix = "latency"\n'
            '[monitoring]\nhost = "127.0.0.1"\nport = 0\n[log]\nlevel = "warning"\n'
        )
        process = subprocess.Popen([*arguments.cdcd.split(), "run", "--config", str(config)])
        try:
            _measure(sql, kafka.bootstrap, arguments)
        finally:
            process.terminate()
            process.wait(20)


def _measure(sql: psycopg.Connection, bootstrap: str, arguments: argparse.Namespace) -> None:
    while not sql.execute("SELECT count(*) FROM pg_replication_slots WHERE active").fetchone()[0]:
        time.sleep(0.05)
    sql.execute("CALL tick(-1000, 100, 5)")  # makes the topic, and warms the broker's JIT
    reader = Topics(bootstrap, "latency")
    deadline = time.monotonic() + 30
    while "latency.public.ticks" not in reader.names() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)  # the last rows of the warm-up are not to be measured
    first = 1
    for rate in map(int, arguments.rates.split(",")):
        arrivals: list[tuple[float, bytes]] = []
        count = rate * arguments.seconds
        ready = threading.Event()
        thread = threading.Thread(target=_consume, args=(bootstrap, count, arrivals, ready))
        thread.start()
        ready.wait(10)
        sql.execute(f"CALL tick({first}, {rate}, {arguments.seconds})")
        first += count
        thread.join(60)
        late = sorted(seconds - reader._decode(value)["after"]["at"].timestamp() for seconds, value in arrivals)
        if len(late) != count:
            sys.exit(f"{len(late)} of {count} rows came")
        p = {
            name: late[min(len(late) - 1, int(len(late) * share))] * 1000
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
        }
        print(
            f"{rate:6} tx/s  "
            + "  ".join(f"{name} {ms:6.1f} ms" for name, ms in p.items())
            + f"  max {late[-1] * 1000:6.1f} ms",
            flush=True,
        )


def _consume(bootstrap: str, count: int, arrivals: list[tuple[float, bytes]], ready: threading.Event) -> None:
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
    topic = "latency.public.ticks"
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    ends = [TopicPartition(topic, p, consumer.get_watermark_offsets(TopicPartition(topic, p))[1]) for p in partitions]
    consumer.assign(ends)
    consumer.poll(0.5)
    ready.set()
    deadline = time.monotonic() + 600
    while len(arrivals) < count and time.monotonic() < deadline:
        messages = consumer.consume(1000, timeout=0.001)
        now = time.time()
        arrivals.extend((now, message.value()) for message in messages if message.error() is None)
    consumer.close()


if __name__ == "__main__":
    main()
