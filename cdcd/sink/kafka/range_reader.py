"""Reads a range of offsets of one partition.

Before: `progress_reader`, `parked_reader` and the take-over know which offsets they want.
After: they interpret the records.
Source: Kafka protocol guide, Fetch (isolation level); KIP-98 for control records and the last stable offset.

Traps:

- `read_committed` ends at the last stable offset. An open transaction of *another* slot on the same topic holds it
  back, perhaps below this slot's last record. So the range ends where the caller says, and the reader waits until it
  gets there.
- Control records take offsets but are never delivered. So only the next record, or the end of the partition, tells how
  far the reader has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, KafkaConnection, client_config
from cdcd.sink.kafka.errors import TRY_AGAIN, Reports, is_about_group, kafka_error, to_cdcd_error, unanswered

_SLICE_S: Final = 0.02
_FETCHED_MAX: Final = 1_000
"""Records taken from librdkafka at once, without a wait for more."""


Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]
End: TypeAlias = Literal["log_end", "last_stable"]


class RangeReader:
    """One partition of a topic. For one thread."""

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        admin: KafkaAdmin,
        timeout_s: float = 60.0,
        *,
        partition: int = 0,
        isolation: Isolation = "read_committed",
        end: End = "log_end",
        assume_exists: bool = False,
    ) -> None:
        """Asks nothing yet. `timeout_s` bounds a wait without a record, not the whole reading.

        With `isolation` "read_uncommitted" the records of open and aborted transactions count, too. With `end`
        "last_stable" the partition ends at its last stable offset, so that the reader does not wait for an open
        transaction. `assume_exists`: the topic is known to exist, even if a broker does not know it yet.
        """
        self.topic = topic
        self._partition = partition
        self._end = end
        self._assume_exists = assume_exists
        self._bootstrap = connection.bootstrap
        self._admin = admin
        self._timeout_s = timeout_s
        self._reports = Reports()
        self._config: dict[str, Any] = {
            **client_config(connection.bootstrap, connection.client_id, connection.properties),
            "group.id": connection.client_id,  # the client demands one; with assign() no broker keeps it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,  # only an empty answer shows the end of the partition, where most ranges end
            "check.crcs": True,
            "error_cb": self._reports,
        }

    def bounds(self) -> tuple[int, int] | None:
        """Return the partition's first offset and its end; None if there is no such topic."""
        if not self._assume_exists and not self._admin.exists(self.topic):
            return None
        start = self._admin.start_offset(self.topic, self._partition)
        if self._end == "last_stable":
            return start, self._admin.stable_end(self.topic, self._partition)
        return start, self._admin.end_offsets({self.topic: self._partition + 1})[self.topic][self._partition]

    @contextmanager
    def consumer(self) -> Iterator[Consumer]:
        """Return a consumer for `read`."""
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
        """Yield the records with offsets in [start, stop), each with its offset, until the end or until `stopping()`.

        Raises KafkaUnavailable if nothing came for `timeout_s`.
        """
        doing = f"reading {self.topic} from {start} to {stop}"
        consumer.assign([TopicPartition(self.topic, self._partition, start)])
        last_record_at = time.monotonic()
        at = start
        while at < stop and not stopping():
            try:
                first = consumer.poll(_SLICE_S)
                messages = [] if first is None else [first, *consumer.consume(_FETCHED_MAX, 0)]
            except KafkaException as error:
                raise to_cdcd_error(kafka_error(error), doing, self._bootstrap) from None
            for message in messages:
                offset, problem = message.offset(), message.error()
                if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                    if is_about_group(message):
                        continue
                    raise to_cdcd_error(problem, doing, self._bootstrap)
                assert offset is not None
                last_record_at = time.monotonic()
                if problem is not None:
                    at = max(at, offset)
                else:
                    at = offset + 1
                    if offset < stop:
                        yield offset, message
                if at >= stop:
                    return
            if time.monotonic() - last_record_at >= self._timeout_s:
                raise self._no_progress(doing, at)

    def _no_progress(self, doing: str, at: int) -> Exception:
        report = self._reports.last(self._timeout_s)
        if report is not None:
            return unanswered(doing, self._bootstrap, report)
        return KafkaUnavailable(
            f"Kafka ({self._bootstrap}) does not show {self.topic} beyond offset {at}, {doing}: a producer has "
            f"left a transaction open there for {self._timeout_s:.0f} s",
            f"{TRY_AGAIN} kafka-transactions.sh find-hanging names the producer.",
            code="transaction-hanging",
        )
