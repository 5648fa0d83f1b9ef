"""Reads back from the progress topic what is durable: the one thing that is trusted at start.

Before: the producer has started, so that no earlier transaction of ours is open.
After: the pipeline goes on from the slot record it finds; `publisher` takes over what the table records say.
Source: Kafka protocol guide, Fetch (isolation level); KIP-98 for control records and the last stable offset.

The problem: a week of progress is kept uncompacted, hundreds of millions of records on a busy server, of which the
newest of a few keys are wanted. So windows are read from the end, each larger than the one before, until all keys are
found.

Traps: `read_committed` ends at the last stable offset, which an open transaction of *another* slot on the same topic
holds back, perhaps below our last record. So the end is the high watermark, and the reader waits until it gets there.
Control records take offsets but are never delivered: where the reader is follows from what comes next, or from the end.
Without transactions nobody is fenced: a zombie's last records may come after those of its heir. Then it is not the last
value that counts, but the highest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdcd.errors import BrokerLost
from cdcd.sink.kafka_admin import KafkaAdmin
from cdcd.sink.kafka_errors import TRY_AGAIN, Reports, kafka_error, named, unanswered
from cdcd.sink.kafka_settings import LIBRDKAFKA_LOG, Property, client_config

_PARTITION: Final = 0
_WINDOW: Final = 1_000
"""Offsets in the first window from the end: several seconds of a busy daemon, one fetch."""
_WINDOW_UNFENCED: Final = 20_000
"""As large where a zombie may have written last: more than it can still have had in its queues."""
_GROWTH: Final = 4
_SLICE_S: Final = 0.2
_CHUNK: Final = 1_000
"""Messages taken from librdkafka at once."""


class KafkaProgressReader:
    """Plays `producer.ProgressReader`. For one thread; each call to `last` makes a consumer of its own."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topic: str,
        admin: KafkaAdmin,
        properties: Mapping[str, Property] | None = None,
        timeout_s: float = 60.0,
        rank: Callable[[bytes, bytes], int] | None = None,
    ) -> None:
        """`timeout_s` bounds how long nothing may come, not the whole reading.

        `rank` says how high a value (of a key) stands, where the highest counts and not the last.
        """
        self._bootstrap = bootstrap
        self._topic = topic
        self._admin = admin
        self._timeout_s = timeout_s
        self._rank = rank
        self._reports = Reports()
        self._config: dict[str, Any] = {
            **client_config(bootstrap, client_id, properties or {}),
            "group.id": client_id,  # the client demands one; with assign() and no commits the broker never hears it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "check.crcs": True,
            "error_cb": self._reports,
        }

    def last(self, keys: frozenset[bytes], stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        """The last committed value of each key; one that was never written, or was deleted, is missing.

        Returns what it has so far if `stopping` said so. Raises BrokerLost if nothing came for `timeout_s`.
        """
        if self._admin.partitions(self._topic) is None:
            return {}
        start = self._admin.start_offset(self._topic, _PARTITION)
        stop = self._admin.end_offsets(self._topic, 1)[_PARTITION]
        found: dict[bytes, bytes | None] = {}
        try:
            consumer = Consumer(self._config, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise named(kafka_error(error), "making a consumer", self._bootstrap) from None
        try:
            size = _WINDOW if self._rank is None else _WINDOW_UNFENCED
            while stop > start and keys - found.keys() and not stopping():
                low = max(start, stop - size)
                window = self._read(consumer, low, stop, keys, stopping)
                found = window | found
                stop = low
                size *= _GROWTH
        finally:
            consumer.close()
        return {key: value for key, value in found.items() if value is not None}

    def _read(
        self, consumer: Consumer, low: int, stop: int, keys: frozenset[bytes], stopping: Callable[[], bool]
    ) -> dict[bytes, bytes | None]:
        """The last value in [low, stop) of each of the keys that is there; None stands for a tombstone."""
        doing = f"reading {self._topic} from {low} to {stop}"
        found: dict[bytes, bytes | None] = {}
        consumer.assign([TopicPartition(self._topic, _PARTITION, low)])
        heard_at = time.monotonic()
        end = low
        while not stopping():
            try:
                messages = consumer.consume(_CHUNK, _SLICE_S)
            except KafkaException as error:
                raise named(kafka_error(error), doing, self._bootstrap) from None
            for message in messages:
                offset, problem = message.offset(), message.error()
                if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                    raise named(problem, doing, self._bootstrap)
                assert offset is not None
                if problem is not None:
                    end = offset
                elif offset < stop:
                    key = message.key()
                    end = offset + 1
                    if key in keys:
                        assert key is not None
                        self._note(found, key, message.value())
                if offset >= stop or end >= stop:
                    return found
                heard_at = time.monotonic()
            if time.monotonic() - heard_at >= self._timeout_s:
                raise self._stuck(doing, end)
        return found

    def _note(self, found: dict[bytes, bytes | None], key: bytes, value: bytes | None) -> None:
        known = found.get(key)
        if self._rank is None or value is None or known is None or self._rank(key, value) >= self._rank(key, known):
            found[key] = value

    def _stuck(self, doing: str, end: int) -> Exception:
        report = self._reports.last(self._timeout_s)
        if report is not None:
            return unanswered(doing, self._bootstrap, report)
        return BrokerLost(
            f"Kafka ({self._bootstrap}) let nobody read {self._topic} beyond offset {end}, {doing}: some producer has "
            f"left a transaction open there for {self._timeout_s:.0f} s",
            f"{TRY_AGAIN} kafka-transactions.sh find-hanging names the producer.",
        )
