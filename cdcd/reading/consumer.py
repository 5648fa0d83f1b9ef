"""A Kafka consumer that reads committed records and leaves no trace on the broker.

Before: a command has the properties of the client. After: `tail`, `verify` and `schema_finder` get the records.
Source: librdkafka `rdkafka.h`; Kafka protocol guide, Fetch (isolation level).

It joins no consumer group, commits no offsets and creates no topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG
from cdcd.sink.kafka.errors import is_about_group, kafka_error, to_cdcd_error

__all__ = ["BEGINNING", "Message", "TopicReader"]

BEGINNING: Final = OFFSET_BEGINNING
"""Stands for the offset of the first record that the partition still holds."""

REQUEST_TIMEOUT_S: Final = 10.0
BATCH_WAIT_S: Final = 0.2

_TRANSIENT: Final = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})

log = logging.getLogger(__name__)


class TopicReader:
    """Reads the partitions that the caller assigns. For one thread. Its methods raise what `to_cdcd_error` returns."""

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        on_end: Callable[[int, int], None] | None = None,
        with_uncommitted: bool = False,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Make the consumer. It sends no request yet.

        `config`: the client's properties, as `client_config` makes them. `on_end` is called with a partition and its
        end offset when `read` reaches the end. With `with_uncommitted`, `read` also gives records that are not
        committed yet, and `bounds` counts them. `timeout_s`: the longest wait for the answer to a request.

        Raises SettingsError for properties that librdkafka does not know.
        """
        self._bootstrap = str(config["bootstrap.servers"])
        self._on_end = on_end
        self._timeout_s = timeout_s
        own = {
            "group.id": "cdcd-tail",  # librdkafka requires a group.id; this consumer never joins the group
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted" if with_uncommitted else "read_committed",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,
            # With 100,000 records in its queue, librdkafka would stop fetching for a second: longer than they last.
            "fetch.queue.backoff.ms": 10,
            "enable.partition.eof": on_end is not None,
        }
        with self._translating("making a consumer"):
            self._consumer = Consumer({**config, **own}, logger=LIBRDKAFKA_LOG)

    def topics(self) -> dict[str, list[int]]:
        """All topics: the partitions of each, by the topic's name."""
        with self._translating("reading topics"):
            topics = self._consumer.list_topics(timeout=self._timeout_s).topics
        return {name: sorted(topic.partitions) for name, topic in topics.items()}

    def partitions(self, topic: str) -> list[int]:
        """The partitions of one topic; empty if the topic does not exist."""
        with self._translating(f"reading {topic}"):
            metadata = self._consumer.list_topics(topic, timeout=self._timeout_s).topics[topic]
        return [] if metadata.error is not None else sorted(metadata.partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the offset after its last record."""
        with self._translating(f"reading {topic}"):
            marks = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=self._timeout_s)
        if marks is None:
            raise KafkaUnavailable(
                f"Kafka ({self._bootstrap}) did not say where {topic} ends", code="kafka-unavailable"
            )
        return marks

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset published at `timestamp_ms` (since 1970-01-01 UTC) or later; None: there is none."""
        wanted = [TopicPartition(topic, partition, timestamp_ms)]
        with self._translating(f"reading {topic}"):
            [found] = self._consumer.offsets_for_times(wanted, timeout=self._timeout_s)
            if found.error is not None:
                raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else None

    def assign(self, places: Iterable[tuple[str, int, int]]) -> None:
        """Read these partitions: topic, partition, first offset."""
        with self._translating("reading topics"):
            self._consumer.assign([TopicPartition(*place) for place in places])

    def pause(self, topic: str, partitions: Iterable[int]) -> None:
        """Stop reading these partitions, until `resume`."""
        with self._translating(f"reading {topic}"):
            self._consumer.pause([TopicPartition(topic, partition) for partition in partitions])

    def resume(self, topic: str, partitions: Iterable[int]) -> None:
        """Continue with paused partitions."""
        with self._translating(f"reading {topic}"):
            self._consumer.resume([TopicPartition(topic, partition) for partition in partitions])

    def read(self, rows_max: int, *, skip_errors: bool = False) -> Iterator[Message]:
        """The next records, at most `rows_max`; none if none come within BATCH_WAIT_S.

        If a broker does not answer, that is only logged: librdkafka tries again. Other errors of a partition are
        raised. `skip_errors` ignores all of them, for a caller that has a deadline.
        """
        yield from self._without_errors(self._consume(rows_max), skip_errors=skip_errors)

    def read_batch(self, rows_max: int) -> list[Message]:
        """As `read`, with no step of Python for each record: for topics with very many."""
        messages = self._consume(rows_max)
        if any(map(Message.error, messages)):
            return list(self._without_errors(messages, skip_errors=False))
        return messages

    def _consume(self, rows_max: int) -> list[Message]:
        with self._translating("reading topics"):
            return self._consumer.consume(rows_max, BATCH_WAIT_S)

    def _without_errors(self, messages: list[Message], *, skip_errors: bool) -> Iterator[Message]:
        for message in messages:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                if self._on_end is not None:
                    self._on_end(int(message.partition() or 0), int(message.offset() or 0))
            elif skip_errors or is_about_group(message):
                continue
            elif error.code() in _TRANSIENT:
                log.warning("Kafka does not answer; trying again", extra={"error": error.str()})
            else:
                raise to_cdcd_error(error, f"reading {message.topic()}", self._bootstrap)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _translating(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise to_cdcd_error(kafka_error(error), doing, self._bootstrap) from error
