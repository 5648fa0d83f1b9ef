"""Reads what is committed in a stretch of a partition: of cdcd's own topics, which have one each, or of a table's.

Before: `kafka.progress_reader` and `kafka.parked_reader` know which offsets they want.
After: they make sense of the records.
Source: Kafka protocol guide, Fetch (isolation level); KIP-98 for control records and the last stable offset.

Traps: `read_committed` ends at the last stable offset, which an open transaction of *another* slot on the same topic
holds back, perhaps below our last record. So a stretch ends where it was asked to, and the reader waits until it gets
there. Control records take offsets but are never delivered: where the reader is follows from what comes next, or from
the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, Property, client_config
from cdcd.sink.kafka.errors import TRY_AGAIN, Reports, kafka_error, to_cdcd_error, unanswered

_SLICE_S: Final = 0.02
_CHUNK: Final = 1_000
"""Messages taken from librdkafka at once, of those that are there: it would wait for so many to come."""


class RangeReader:
    """One topic. For one thread."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topic: str,
        admin: KafkaAdmin,
        properties: Mapping[str, Property] | None = None,
        timeout_s: float = 60.0,
        *,
        partition: int = 0,
        undecided: bool = False,
        stable: bool = False,
        there: bool = False,
    ) -> None:
        """Asks nothing yet. `timeout_s` bounds how long nothing may come, not the whole reading.

        With `undecided` records count whatever their transaction came to; with `stable` the end is where the first
        transaction begins that is not decided yet, so that nobody waits for it. `there`: that the topic exists is
        known, and no broker that has not heard of it is believed.
        """
        self.topic = topic
        self._partition = partition
        self._stable = stable
        self._there = there
        self._bootstrap = bootstrap
        self._admin = admin
        self._timeout_s = timeout_s
        self._reports = Reports()
        self._config: dict[str, Any] = {
            **client_config(bootstrap, client_id, properties or {}),
            "group.id": client_id,  # the client demands one; with assign() and no commits the broker never hears it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_uncommitted" if undecided else "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,  # only an empty answer tells of the end, and a stretch mostly ends there
            "allow.auto.create.topics": False,
            "check.crcs": True,
            "error_cb": self._reports,
        }

    def bounds(self) -> tuple[int, int] | None:
        """The topic's first offset and its end; None if there is no such topic."""
        if not self._there and not self._admin.exists(self.topic):
            return None
        start = self._admin.start_offset(self.topic, self._partition)
        if self._stable:
            return start, self._admin.stable_end(self.topic, self._partition)
        return start, self._admin.end_offsets({self.topic: self._partition + 1})[self.topic][self._partition]

    @contextmanager
    def consumer(self) -> Iterator[Consumer]:
        """For `read`."""
        try:
            consumer = Consumer(self._config, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise to_cdcd_error(kafka_error(error), "making a consumer", self._bootstrap) from None
        try:
            yield consumer
        finally:
            consumer.close()

    def read(
        self, consumer: Consumer, start: int, stop: int, stopping: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, Message]]:
        """The records with offsets in [start, stop), to the end of them or until `stopping()`.

        Raises KafkaUnavailable if nothing came for `timeout_s`.
        """
        doing = f"reading {self.topic} from {start} to {stop}"
        consumer.assign([TopicPartition(self.topic, self._partition, start)])
        heard_at = time.monotonic()
        at = start
        while at < stop and not stopping():
            try:
                first = consumer.poll(_SLICE_S)
                messages = [] if first is None else [first, *consumer.consume(_CHUNK, 0)]
            except KafkaException as error:
                raise to_cdcd_error(kafka_error(error), doing, self._bootstrap) from None
            for message in messages:
                offset, problem = message.offset(), message.error()
                if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                    raise to_cdcd_error(problem, doing, self._bootstrap)
                assert offset is not None
                heard_at = time.monotonic()
                if problem is not None:
                    at = max(at, offset)
                else:
                    at = offset + 1
                    if offset < stop:
                        yield offset, message
                if at >= stop:
                    return
            if time.monotonic() - heard_at >= self._timeout_s:
                raise self._stuck(doing, at)

    def _stuck(self, doing: str, at: int) -> Exception:
        report = self._reports.last(self._timeout_s)
        if report is not None:
            return unanswered(doing, self._bootstrap, report)
        return KafkaUnavailable(
            f"Kafka ({self._bootstrap}) let nobody read {self.topic} beyond offset {at}, {doing}: some producer has "
            f"left a transaction open there for {self._timeout_s:.0f} s",
            f"{TRY_AGAIN} kafka-transactions.sh find-hanging names the producer.",
        )
