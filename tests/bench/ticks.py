"""Small transactions at a steady rate, and their rows' latency: for benchmarks of large transactions and snapshots."""

from __future__ import annotations

import threading
import time

import psycopg
from confluent_kafka import Consumer, TopicPartition
from support.topics import Topics

SCHEMA = "CREATE TABLE ticks (id bigint PRIMARY KEY, at timestamptz)"


class Ticks(threading.Thread):
    """Commits single-row transactions at a steady rate until told to stop."""

    def __init__(self, dsn: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self._rate = rate
        self.done = threading.Event()
        self.count = 0

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            started = time.monotonic()
            while not self.done.is_set():
                connection.execute("INSERT INTO ticks VALUES (%s, clock_timestamp())", (self.count,))
                self.count += 1
                self.done.wait(max(0.0, started + self.count / self._rate - time.monotonic()))


class Arrivals(threading.Thread):
    """Notes when each record of the table `ticks` arrives, from the start of the thread on."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        super().__init__(daemon=True)
        self._broker = bootstrap
        self._topic = f"{prefix}.public.ticks"
        self.ready = threading.Event()
        self.done = threading.Event()
        self.seen: list[tuple[float, bytes]] = []

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker,
                "group.id": "ticks",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 1,
            }
        )
        partitions = consumer.list_topics(self._topic, timeout=10).topics[self._topic].partitions
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        for place in places:
            place.offset = consumer.get_watermark_offsets(place)[1]
        consumer.assign(places)
        consumer.poll(0.5)
        self.ready.set()
        while not self.done.is_set():
            messages = consumer.consume(1000, timeout=0.001)
            now = time.time()
            self.seen.extend((now, message.value() or b"") for message in messages if message.error() is None)
        consumer.close()

    def latencies(self, reader: Topics) -> list[tuple[float, float]]:
        """When each row was committed (seconds since 1970), and its latency in ms; ascending.

        Rows with negative numbers are left out: they warm up.
        """
        found = []
        for arrived, value in self.seen:
            row = reader._decode(value)["after"]
            if row["id"] >= 0:
                at = row["at"].timestamp()
                found.append((at, (arrived - at) * 1000))
        return sorted(found)
