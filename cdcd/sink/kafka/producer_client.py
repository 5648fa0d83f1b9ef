"""The common part of the transactional and the idempotent producer: one client, its queue, waits and errors.

Before: `producer` and `idempotent_producer` derive from this.
After: librdkafka's queue, and the broker.
Source: librdkafka INTRODUCTION.md, "Message reliability".

Traps that this module knows:

- `produce_batch` reports a full queue by marking the messages that did not fit. Only these messages are tried again,
  so that the order holds. A message that does not fit into an empty queue never will.
- `produce_batch` drops headers without a word. `produce` takes them.
- `produce_batch` holds the GIL, 1 to 4 us a record. So no call gets many records, and the source thread can answer the
  server.
- The next poll raises a fatal error, whatever it was called for. If the same poll serves a delivery report, Python sees
  a SystemError whose cause is the KafkaException.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, cast

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as DeliveryReport

from cdcd.errors import CdcdError, FatalError, Unpublishable
from cdcd.sink.batches import Message, message_bytes
from cdcd.sink.interfaces import Offsets
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, KafkaConnection
from cdcd.sink.kafka.deadline import SLICE_S, Deadline
from cdcd.sink.kafka.errors import Reports, closed, kafka_error, to_cdcd_error, unanswered
from cdcd.sink.kafka.refusals import SIZE
from cdcd.sink.kafka.stuck_client import StuckClient

log = logging.getLogger(__name__)

_CALL_RECORDS: Final = 1_000
"""Records in one call of `produce_batch`: larger calls also cost more for each record."""
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""The reports of records that an abort gave up. librdkafka purges them; if cdcd did, the sequence numbers
would have gaps."""


class ProducerClient:
    """One client, with what it has delivered. For one thread, `shorten_deadlines` excepted."""

    def __init__(
        self,
        connection: KafkaConnection,
        config: Mapping[str, object],
        timeout_s: float,
        stuck_client: StuckClient | None,
    ) -> None:
        """`config` is librdkafka's, without `error_cb`; `timeout_s` bounds each call.

        Connects in the background; nothing is asked of the broker yet. Raises SettingsError for properties that
        librdkafka does not know.
        """
        self._bootstrap = connection.bootstrap
        self._deadline = Deadline(timeout_s)
        self._stuck_client = stuck_client or StuckClient(connection)
        self._offsets: dict[tuple[str, int], int] = {}
        self._undelivered: KafkaError | None = None
        self._undelivered_topic = ""
        self._reports = Reports()
        complete: dict[str, Any] = {**config, "error_cb": self._reports}
        try:
            self._client: Producer | None = Producer(complete, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise to_cdcd_error(kafka_error(error), "making a producer", connection.bootstrap) from None

    def flush(self) -> Offsets:
        """Wait until all records produced since `begin` are written; returns where each partition touched ends."""
        doing = "writing records"
        deadline = self._deadline.of_call()
        watch, before = self._stuck_client.watch(), -1
        while True:
            try:
                left = self._producer().flush(SLICE_S)
            except (KafkaException, SystemError) as error:
                self._fail(unwrap(error), doing)
            self._raise_if_undelivered(doing)
            if not left:
                return self._offsets
            self._raise_if_transaction_failed(doing)
            if left != before:
                watch, before = self._stuck_client.watch(), left
            watch.raise_if_stuck(doing)
            if self._deadline.is_over(deadline):
                self._time_out(doing)

    def abort(self) -> None:
        """Give up the open transaction, if there is one."""
        raise NotImplementedError

    def poll(self) -> None:
        """Let librdkafka do its housekeeping (tokens, log, errors); raises the errors that it found fatal."""
        self._poll("waiting for work")

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call lasts beyond `within_s` seconds from now. May be called by another thread."""
        self._deadline.shorten(within_s)

    def close(self) -> None:
        """Leave the broker, soon; an open transaction is aborted if the broker answers. Never raises."""
        if self._client is None:
            return
        try:
            self.abort()
        except CdcdError as error:
            log.info("The open Kafka transaction was left to the broker, the next start ends it: %s", error.message)
        client = self._client
        self._client = None
        try:
            client.purge(in_queue=True, in_flight=True)
            client.flush(SLICE_S)
        except (KafkaException, SystemError) as error:
            log.debug("While closing the producer: %s", error)

    def _produce(
        self, topic: str, partition: int, records: list[dict[str, object]], *, has_headers: bool, **reports: Any
    ) -> None:
        """Queue records of one partition, in order; waits while the queue is full. `reports`: for `produce_batch`.

        `has_headers`: some of them may have headers.
        """
        self._stuck_client.topics.add(topic)

        def send(client: Producer, left: list[dict[str, object]]) -> int:
            if has_headers:
                return _produce_each(client, topic, left, partition, **reports)
            return client.produce_batch(topic, left, partition, **reports)

        for at in range(0, len(records), _CALL_RECORDS):
            self._queue(topic, records[at : at + _CALL_RECORDS], send)

    def _queue(
        self,
        topic: str,
        records: list[dict[str, object]],
        send: Callable[[Producer, list[dict[str, object]]], int],
    ) -> None:
        """Queue records by `send`, which does as `produce_batch`; waits while the queue is full."""
        doing = f"producing to {topic}"
        deadline = self._deadline.of_call()
        watch = self._stuck_client.watch()
        while True:
            client = self._producer()
            was_empty = len(client) == 0
            queued = send(client, records)
            self._poll(doing)
            if queued == len(records):
                break
            if queued:
                deadline, watch = self._deadline.of_call(), self._stuck_client.watch()
            records = self._left_over(records, topic)
            if was_empty and not queued:
                raise _too_large(records[0], topic)
            self._poll(doing, SLICE_S)
            self._raise_if_transaction_failed(doing)
            watch.raise_if_stuck(doing)
            if self._deadline.is_over(deadline):
                self._time_out(doing)

    def _producer(self) -> Producer:
        if self._client is None:
            raise closed("the producer")
        return self._client

    def _poll(self, doing: str, wait_s: float = 0.0) -> None:
        try:
            self._producer().poll(wait_s)
        except (KafkaException, SystemError) as error:
            self._fail(unwrap(error), doing)
        self._raise_if_undelivered(doing)

    def _left_over(self, records: list[dict[str, object]], topic: str) -> list[dict[str, object]]:
        """Return the records, a tail of `records`, that did not fit into the queue; raises if one failed otherwise."""
        left_over = records[next(at for at, record in enumerate(records) if "_error" in record) :]
        for record in left_over:
            error = record.pop("_error", None)
            if error is None:
                raise AssertionError("a record was queued after one that was not: their order is lost")
            assert isinstance(error, KafkaError)
            if error.code() != KafkaError._QUEUE_FULL:
                self._fail(error, f"producing to {topic}", topic)
        return left_over

    def _raise_if_undelivered(self, doing: str) -> None:
        if self._undelivered is not None:
            self._fail(self._undelivered, doing)

    def _raise_if_transaction_failed(self, doing: str) -> None:
        """Check whether the transaction failed because of a record that has no delivery report."""

    def _time_out(self, doing: str) -> NoReturn:
        raise unanswered(doing, self._bootstrap, self._reports.last(self._deadline.timeout_s))

    def _fail(self, error: KafkaError, doing: str, topic: str = "") -> NoReturn:
        """Raise what `error` means, with the best cause that is known; `topic` is the one it is about, if known."""
        if error.code() == KafkaError._TIMED_OUT:
            self._time_out(doing)
        # No variable has the error: by one the error and its stack would keep each other alive, and a closed client.
        raise self._failure(self._cause(error), doing, topic)

    def _failure(self, cause: KafkaError, doing: str, topic: str) -> CdcdError:
        """The error that reports a failure with this cause."""
        failure = to_cdcd_error(cause, doing, self._bootstrap)
        if isinstance(failure, Unpublishable):
            failure.topic = failure.topic or topic or (self._undelivered_topic if cause is self._undelivered else "")
        return failure

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return the first error: librdkafka's later errors only say that there was an earlier one."""
        if self._undelivered is not None and not isinstance(to_cdcd_error(error, "", ""), FatalError):
            return self._undelivered
        return self._cause_in_transaction(error)

    def _cause_in_transaction(self, error: KafkaError) -> KafkaError:
        """Return why the open transaction failed, if librdkafka can tell; else the error itself."""
        return error

    def _on_delivery(self, error: KafkaError | None, report: DeliveryReport) -> None:
        if error is None:
            topic, partition, offset = report.topic(), report.partition(), report.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self._offsets[topic, partition] = offset + 1
        elif self._undelivered is None and error.code() not in _PURGED:
            self._undelivered = error
            self._undelivered_topic = report.topic() or ""


def _produce_each(
    client: Producer, topic: str, records: list[dict[str, Any]], partition: int, on_delivery: object = None
) -> int:
    """As `produce_batch`, with headers."""
    produce = client.produce
    for number, record in enumerate(records):
        report = record.get("callback", on_delivery)
        try:
            # By position, because this is called for every record: on_delivery has another name before, and the
            # timestamp 0 is now.
            produce(topic, record["value"], record.get("key"), partition, report, None, 0, record.get("headers"))
        except (BufferError, KafkaException) as error:
            cause = KafkaError(KafkaError._QUEUE_FULL) if isinstance(error, BufferError) else kafka_error(error)
            for left in records[number:]:
                left["_error"] = cause
            return number
    return len(records)


def unwrap(error: KafkaException | SystemError) -> KafkaError:
    """Return the KafkaError of an exception that librdkafka's callbacks may have wrapped; re-raises any other."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, KafkaException):
            return kafka_error(inner)
        inner = inner.__cause__ or inner.__context__
    raise error


def _too_large(record: dict[str, object], topic: str) -> Unpublishable:
    size = message_bytes(cast("Message", record))
    return Unpublishable(
        f"a row of {size:,} bytes does not fit into the producer's queue, producing to {topic}",
        f"Raise queue.buffering.max.kbytes and message.max.bytes under sink.librdkafka. {SIZE.hint}",
        topic=topic,
        code="row-too-large",
    )
