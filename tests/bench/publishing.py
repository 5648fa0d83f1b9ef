"""The contestant `broker`: librdkafka alone publishes a recording from memory, as the daemon would.

    python tests/bench/publishing.py RECORDING BOOTSTRAP PREFIX RECORD_MB

Before: `compare` has recorded what cdcd published of a backlog: the very keys and values of its topics.
After: the broker. `contestants` starts this as a process; it prints "going on" when it begins, "done" at the end.

The producers are the daemon's own, with its settings: two transactional ids take turns. So is the rule of its backlog:
a transaction is committed at so many rows, bytes or milliseconds. What the daemon adds is missing: the progress
records. No transaction of PostgreSQL bounds a Kafka transaction here.
"""

from __future__ import annotations

import gc
import pickle
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from cdcd.config.settings import SinkSettings
from cdcd.sink.batches import Message
from cdcd.sink.interfaces import Producer
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.delivery import ExactlyOnce

Recording: TypeAlias = "Mapping[tuple[str, int], Sequence[tuple[bytes | None, bytes | None]]]"
"""Keys and values, in their order, of each table's name and partition."""

TURN_ROWS = 4_000
TURN_BYTES = 4 << 20
TRANSACTION_TIMEOUT_MS = 60_000


def write(recording: Recording, to: Path) -> None:
    """Write a recording to a file."""
    with to.open("wb") as file:
        pickle.dump(recording, file)


def turns(sizes: Mapping[tuple[str, int], int], size_bytes: int) -> Iterator[tuple[tuple[str, int], slice]]:
    """Which records to hand over next, until all are: each partition advances by its share in each turn.

    `sizes`: how many records each partition has; `size_bytes`: the size of all. A turn has about TURN_ROWS records, or
    TURN_BYTES: so all partitions are in each transaction, as with the daemon.
    """
    count = max(-(-sum(sizes.values()) // TURN_ROWS), -(-size_bytes // TURN_BYTES), 1)
    for turn in range(count):
        for place, size in sizes.items():
            some = slice(size * turn // count, size * (turn + 1) // count)
            if some.start < some.stop:
                yield place, some


def publish(records: Mapping[tuple[str, int], list[Message]], size_bytes: int, producer: Producer, prefix: str) -> None:
    """Publish all records, of this size, in Kafka transactions; the producer has started.

    Raises what the producer raises.
    """
    settings = SinkSettings.model_fields
    rows_max, bytes_max, linger_ms = (
        settings[f"transaction_{name}"].default for name in ("rows_max", "bytes_max", "linger_ms")
    )
    sizes = {place: len(some) for place, some in records.items()}
    rows_max = min(rows_max, bytes_max * sum(sizes.values()) // max(size_bytes, 1))
    rows, opened_s = 0, 0.0
    for (table, partition), some in turns(sizes, size_bytes):
        if not rows:
            producer.begin()
            opened_s = time.monotonic()
        messages = records[table, partition][some]
        rows += len(messages)
        producer.produce(f"{prefix}.public.{table}", partition, messages)
        if rows >= rows_max or (time.monotonic() - opened_s) * 1000 >= linger_ms:
            producer.flush()
            producer.commit()
            rows = 0
    if rows:
        producer.flush()
        producer.commit()


def main(recording: str, bootstrap: str, prefix: str, record_mb: str) -> None:
    """Read the recording, and publish it."""
    read: Recording = pickle.loads(Path(recording).read_bytes())
    size_bytes = sum(len(key or b"") + len(value or b"") for some in read.values() for key, value in some)
    records: dict[tuple[str, int], list[Message]] = {
        place: [{"value": value} if key is None else {"key": key, "value": value} for key, value in some]
        for place, some in read.items()
    }
    del read
    gc.collect()
    gc.freeze()  # else every full collection would look through all the records
    cluster = KafkaCluster(KafkaConnection(bootstrap, "broker", {"message.max.bytes": int(record_mb) << 20}))
    delivery = ExactlyOnce(prefix, "broker")
    known_topic = f"{prefix}.public.{next(iter(records))[0]}"
    producer = delivery.combined(list(delivery.producers(cluster, TRANSACTION_TIMEOUT_MS, known_topic)))
    producer.start(lambda: False)
    print("going on", flush=True)
    publish(records, size_bytes, producer, prefix)
    print("done", flush=True)
    time.sleep(3600)  # the CPU time of its threads is read before it is ended


if __name__ == "__main__":
    main(*sys.argv[1:])
