#!/usr/bin/env python3
"""Reads topics as they grow, in a process of its own. If that process crashes, a new one reads on from where it was.

Before: librdkafka's consumer (read_committed), as anyone would use it. After: `topic_check` says where to read on.

(An hour of brokers that come and go has crashed the consumer itself: librdkafka 2.16, SIGSEGV.)
"""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

LOOK_S = 1.0
"""Seconds between two requests for new topics."""

Place = tuple[str, int]
"""Topic and partition."""

_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}
"""The broker is away; the client retries by itself."""


class Record(NamedTuple):
    """A record of a topic."""

    place: Place
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


Seen = tuple[str, int, int, "tuple[bytes | None, bytes | None, dict[str, bytes]] | None"]
"""Topic, partition, offset, and the record's key, value and headers; None instead: the partition ended here."""
Portion = tuple[dict[str, int], list[Seen]]
"""New topics with their numbers of partitions, and the records that were read, maybe none."""


class Reader:
    """Starts the process that reads, and receives its records."""

    def __init__(self, brokers: str, prefix: str) -> None:
        self.brokers = brokers
        self._arguments = [sys.executable, str(Path(__file__).resolve()), brokers, prefix]
        self._child: subprocess.Popen[bytes] | None = None
        self.ends: Counter[str] = Counter()
        """How often the process was ended by a signal, by the signal's name."""

    def portion(self, seen: dict[Place, int]) -> Portion:
        """Return what was read since. A new process begins at `seen`. Raises RuntimeError if the broker refuses."""
        if self._child is None:
            self._child = subprocess.Popen(self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._child.stdin is not None
            self._child.stdin.write(json.dumps([[*place, offset] for place, offset in seen.items()]).encode())
            self._child.stdin.close()
        assert self._child.stdout is not None
        try:
            found = pickle.load(self._child.stdout)
        except (EOFError, pickle.UnpicklingError):
            code = self._child.wait()
            self._child = None
            if code >= 0:
                raise RuntimeError(f"the reader ended with {code}") from None
            self.ends[signal.Signals(-code).name] += 1
            return {}, []
        fresh, read = found
        return fresh, read

    def kill(self) -> None:
        """End the process; `portion` starts a new one."""
        if self._child is not None:
            self._child.kill()


def main(brokers: str, prefix: str) -> None:
    """Read until killed; portions go to standard output, pickled."""
    begin = {(topic, partition): offset for topic, partition, offset in json.load(sys.stdin)}
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "topic-check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "check.crcs": True,
            "enable.partition.eof": True,  # a cut may end after records that no consumer gets: markers, aborted ones
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 5_000,
            "queued.max.messages.kbytes": 16_384,
            "log_level": 0,  # brokers go away here
        }
    )
    known: set[str] = set()
    look_s = 0.0
    while True:
        fresh: dict[str, int] = {}
        if time.monotonic() >= look_s:
            fresh = _fresh(consumer, f"{prefix}.", known)
            known |= fresh.keys()
            places = [TopicPartition(t, p, begin.get((t, p), 0)) for t, count in fresh.items() for p in range(count)]
            if places:
                consumer.incremental_assign(places)
            look_s = time.monotonic() + LOOK_S
        read = [each for message in consumer.consume(2_000, timeout=0.1) if (each := _read(message)) is not None]
        pickle.dump((fresh, read), sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _fresh(consumer: Any, prefix: str, known: set[str]) -> dict[str, int]:
    try:
        there = consumer.list_topics(timeout=2).topics
    except KafkaException:
        return {}
    return {
        topic: len(data.partitions)
        for topic, data in there.items()
        if topic.startswith(prefix) and topic not in known and data.partitions
    }


def _read(message: Any) -> Seen | None:
    error = message.error()
    if error is None:
        return (
            message.topic(),
            message.partition(),
            message.offset(),
            (message.key(), message.value(), dict(message.headers() or ())),
        )
    if error.code() == KafkaError._PARTITION_EOF:
        return message.topic(), message.partition(), message.offset(), None
    if error.code() not in _PASSING and not error.retriable():
        raise KafkaException(error)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
