"""One confluent-kafka producer, transactional or merely idempotent: waits, deadlines and errors are settled here.

Before: `publisher` says what goes into a transaction.
After: the broker. `tests/contract/test_producer.py` holds this to its promises.
Source: librdkafka INTRODUCTION.md, "Transactional Producer".

Traps that this module knows:

- `produce_batch` reports a full queue by marking the messages that did not fit; it is they, and they alone, that are
  tried again, so that the order holds. A message that does not fit into an empty queue never will.
- `produce_batch` holds the GIL, 1 to 4 us a record: so no call gets many, and the source thread can answer the server.
- Only the last record of each call gets a delivery report: in a transaction every failed record fails the commit.
  Without transactions nothing else would tell, so there every record gets one.
- A producer whose transaction outlived `transaction.timeout.ms` is told that it was fenced. Which of the two it was
  only our clock can tell.
- When a connection is lost under the request that ends a transaction, librdkafka sends it again; the broker may get to
  the first one later, and end the *next* transaction with it, half of its rows written (what KIP-890 ends, which
  librdkafka 2.16 does not speak: its issue 5423). A new producer fences it: see `begin`.
- A fatal error is raised by whatever poll comes next; if a delivery report is served in that same poll, Python sees
  a SystemError with the KafkaException as its cause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn, cast

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as DeliveryReport
from confluent_kafka.admin import AdminClient

from cdcd.errors import CdcdError, FatalError, Fenced, KafkaUnavailable, Unpublishable
from cdcd.sink.batches import Message
from cdcd.sink.interfaces import Offsets
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, RETRY_BACKOFF_MS, Property, client_config, producer_config
from cdcd.sink.kafka.deadline import SLICE_S, Deadline
from cdcd.sink.kafka.errors import (
    SIZE_HINT,
    TRY_AGAIN,
    Reports,
    closed,
    kafka_error,
    refuses_credentials,
    to_cdcd_error,
    unanswered,
)

log = logging.getLogger(__name__)

_CALL_RECORDS: Final = 1_000
"""Handed to librdkafka at once: larger calls cost more a record, too."""
_ABORT_S: Final = 5.0
_SUSPICIOUS_S: Final = 10.0
"""A call that gets on for so long by nothing is looked at: does Kafka answer other questions?"""
_STUCK_S: Final = 30.0
"""If it does for so long, it is the client that hangs."""
_QUESTION_S: Final = 2.0
_SENT_ONCE_S: Final = 0.8 * RETRY_BACKOFF_MS / 1000
"""Librdkafka repeats no request sooner: it takes up to a fifth off the backoff."""
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""What an abort gives up is reported so; librdkafka does the purging, ours would leave gaps in the sequence numbers."""


class KafkaProducer:
    """Plays `producer.Producer`. For one thread, `hurry` excepted."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        properties: Mapping[str, Property] | None = None,
        timeout_s: float = 60.0,
        known_topic: str = "",
    ) -> None:
        """Without `transactional_id` it delivers at least once. `timeout_s` bounds each call.

        `known_topic`, which exists, makes starting quicker. Connects in the background; nothing is asked of the broker
        yet. Raises SettingsError for properties that librdkafka does not know or that belong to cdcd.
        """
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._transaction_timeout_s = transaction_timeout_ms / 1000
        self._known_topic = known_topic
        self._patience = Deadline(timeout_s)
        self._began_at: float | None = None
        self._prepared = False
        """The next transaction is open, as far as librdkafka knows."""
        self._offsets: dict[tuple[str, int], int] = {}
        self._delivered_at = 0.0
        """When the last record was delivered, or the commit began: what ends the transaction is sent after both."""
        self._ended_in_s = 0.0
        """How long the last transaction's end took, from the moment on when it can have been asked for."""
        self._undelivered: KafkaError | None = None
        self._undelivered_topic = ""
        self._reports = Reports()
        config = producer_config(bootstrap, client_id, transactional_id, transaction_timeout_ms, properties or {})
        self._question: dict[str, Any] = {**client_config(bootstrap, client_id, properties or {}), "log_level": 0}
        config["error_cb"] = self._reports
        try:
            self._client: Producer | None = Producer(config, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise to_cdcd_error(kafka_error(error), "making a producer", bootstrap) from None

    @property
    def transactional(self) -> bool:
        """It delivers exactly once."""
        return self._transactional_id is not None

    def start(self, stopping: Callable[[], bool]) -> bool:
        """Take over the transactional.id: fence a zombie and end its open transaction. False if `stopping` said so.

        Raises KafkaUnavailable if no broker let us within the timeout, RequestRejected if one never will.
        """
        doing = f"taking over the transactional.id {self._transactional_id}"
        deadline = self._patience.deadline()
        self._connect()
        while self._transactional_id is not None:
            if stopping():
                return False
            try:
                self._producer().init_transactions(SLICE_S)
                break
            except KafkaException as error:
                found = kafka_error(error)
                self._poll(doing)
                if refuses_credentials(self._reports.last(self._patience.timeout_s)):
                    self._time_out(doing)
                if not found.retriable() or self._patience.is_over(deadline):
                    self._fail(found, doing)
        return True

    def _connect(self) -> None:
        """Wait until a broker can be asked, for SLICE_S at most.

        Librdkafka looks for the coordinator at once, and where no broker can be asked yet, not again for half a second.
        """
        if self._known_topic and self._transactional_id is not None:
            with suppress(KafkaException):  # taking over tells better what there is
                self._producer().list_topics(self._known_topic, SLICE_S)

    def begin(self) -> None:
        """Open a transaction."""
        if self._ended_in_s >= _SENT_ONCE_S:
            raise KafkaUnavailable(
                f"Kafka ({self._bootstrap}) took {self._ended_in_s:.1f} s to end a transaction: what was asked twice "
                "could end the next one, too",
                "cdcd goes on as a new producer by itself; if it happens often, look at the load of the brokers.",
            )
        self._offsets = {}
        self._began_at = time.monotonic()
        self._begin_transaction()
        self._prepared = False

    def prepare(self) -> None:
        """Open the next transaction with librdkafka, unless one is open: two threads of it talk for 0.3 ms.

        The broker hears of a transaction when it has a partition.
        """
        if self._began_at is None:
            self._begin_transaction()

    def _begin_transaction(self) -> None:
        if self._transactional_id is not None and not self._prepared:
            try:
                self._producer().begin_transaction()
            except KafkaException as error:
                self._fail(kafka_error(error), "opening a transaction")
            self._prepared = True

    def produce(self, topic: str, partition: int, messages: list[Message]) -> None:
        """Hand over records of one partition, in order; waits while the queue is full. The list is ours from now on."""
        records = cast("list[dict[str, object]]", messages)
        if self._transactional_id is not None:
            records[-1] = {**records[-1], "callback": self._on_delivery}
        for at in range(0, len(records), _CALL_RECORDS):
            self._queue(topic, partition, records[at : at + _CALL_RECORDS])

    def _queue(self, topic: str, partition: int, records: list[dict[str, object]]) -> None:
        doing = f"producing to {topic}"
        every = self._transactional_id is None
        deadline = self._patience.deadline()
        watch = _Watch()
        while True:
            client = self._producer()
            was_empty = len(client) == 0
            if every:
                queued = client.produce_batch(topic, records, partition, on_delivery=self._on_delivery)
            else:
                queued = client.produce_batch(topic, records, partition)
            self._poll(doing)
            if queued == len(records):
                break
            if queued:
                deadline, watch = self._patience.deadline(), _Watch()
            records = self._left_over(records, topic)
            if was_empty and not queued:
                raise _too_large(records[0], topic)
            self._poll(doing, SLICE_S)
            self._refuse_failed(doing)
            self._refuse_stuck(watch, doing)
            if self._patience.is_over(deadline):
                self._time_out(doing)

    def flush(self) -> Offsets:
        """Wait until all records of the open transaction are written; returns where each partition touched ends."""
        doing = "writing records"
        deadline = self._patience.deadline()
        watch, before = _Watch(), -1
        while True:
            try:
                left = self._producer().flush(SLICE_S)
            except (KafkaException, SystemError) as error:
                self._fail(_inside(error), doing)
            self._refuse_undelivered(doing)
            if not left:
                return self._offsets
            self._refuse_failed(doing)
            if left != before:
                watch, before = _Watch(), left
            self._refuse_stuck(watch, doing)
            if self._patience.is_over(deadline):
                self._time_out(doing)

    def commit(self) -> None:
        """Make the open transaction visible, wholly.

        After a KafkaUnavailable it may or may not be: the progress tells.
        """
        if self._transactional_id is None:
            self.flush()
            self._began_at = None
            return
        doing = "committing a transaction"
        self._delivered_at = time.monotonic()
        deadline = self._patience.deadline()
        watch = _Watch()
        while True:
            try:
                self._producer().commit_transaction(SLICE_S)
                break
            except (KafkaException, SystemError) as error:
                found = _inside(error)
                if not found.retriable() or self._patience.is_over(deadline):
                    self._fail(found, doing)
                self._refuse_stuck(watch, doing)
        # What is committed was delivered: a report of the opposite would have failed the commit.
        self._refuse_undelivered(doing)
        self._began_at = None
        self._ended_in_s = time.monotonic() - self._delivered_at

    def abort(self) -> None:
        """Give up the open transaction, if there is one."""
        if self._began_at is None:
            return
        self._began_at = None
        if self._transactional_id is None:
            return
        doing = "aborting a transaction"
        client = self._producer()
        deadline = time.monotonic() + min(self._patience.timeout_s, _ABORT_S)
        try:
            # A record that is on its way and comes after the abort would stand there for the next transaction to end.
            while client.flush(SLICE_S):
                self._refuse_failed(doing)
                if self._patience.is_over(deadline):
                    self._time_out(doing)
        except (KafkaException, SystemError) as error:
            self._fail(_inside(error), doing)
        began = time.monotonic()
        while True:
            try:
                client.abort_transaction(SLICE_S)
                break
            except (KafkaException, SystemError) as error:
                found = _inside(error)
                if not found.retriable() or self._patience.is_over(deadline):
                    self._fail(found, doing)
        self._undelivered = None
        self._poll(doing)  # reports of what was given up belong to no later transaction
        self._ended_in_s = time.monotonic() - began

    def serve(self) -> None:
        """Let librdkafka do its housekeeping (tokens, log, errors); raises what it found fatal."""
        self._poll("waiting for work")

    def hurry(self, within_s: float) -> None:
        """From now on no call lasts beyond `within_s` seconds from now. May be called by another thread."""
        self._patience.hurry(within_s)

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

    def _producer(self) -> Producer:
        if self._client is None:
            raise closed("the producer")
        return self._client

    def _poll(self, doing: str, wait_s: float = 0.0) -> None:
        try:
            self._producer().poll(wait_s)
        except (KafkaException, SystemError) as error:
            self._fail(_inside(error), doing)
        self._refuse_undelivered(doing)

    def _left_over(self, records: list[dict[str, object]], topic: str) -> list[dict[str, object]]:
        """The records, a tail of `records`, that did not fit into the queue; raises if any failed otherwise."""
        left_over = records[next(at for at, record in enumerate(records) if "_error" in record) :]
        for record in left_over:
            error = record.pop("_error", None)
            if error is None:
                raise AssertionError("a record was queued after one that was not: their order is lost")
            assert isinstance(error, KafkaError)
            if error.code() != KafkaError._QUEUE_FULL:
                self._fail(error, f"producing to {topic}", topic)
        return left_over

    def _refuse_undelivered(self, doing: str) -> None:
        if self._undelivered is not None:
            self._fail(self._undelivered, doing)

    def _refuse_failed(self, doing: str) -> None:
        """Find out whether the transaction has failed by a record of which there is no report.

        Records behind it are not sent any more, and no flush would ever end.
        """
        if self._transactional_id is not None:
            try:
                self._producer().begin_transaction()  # inside a transaction this can only fail, and says how it stands
            except KafkaException as exception:
                error = kafka_error(exception)
                if error.code() != KafkaError._STATE:
                    self._fail(error, doing)

    def _refuse_stuck(self, watch: _Watch, doing: str) -> None:
        """Give the client up if Kafka answers others all the while, and what it does comes to no end all the same.

        A Kafka that is away is waited for; but a connection that is dead without a word, or was lost in the wrong
        moment, has left librdkafka 2.16 waiting for minutes for what nobody owed it any more. A new client asks again.
        """
        now = time.monotonic()
        if now - watch.began_s < _SUSPICIOUS_S:
            return
        try:
            # A new connection: that of the client may be dead, and nobody have told it.
            AdminClient(self._question).list_topics(timeout=_QUESTION_S)
        except KafkaException:
            watch.answers_since_s = None
            return
        if watch.answers_since_s is None:
            watch.answers_since_s = now
        if now - watch.answers_since_s >= _STUCK_S:
            raise KafkaUnavailable(
                f"Kafka ({self._bootstrap}) answers, but the client does not get on, {doing}", TRY_AGAIN
            )

    def _time_out(self, doing: str) -> NoReturn:
        raise unanswered(doing, self._bootstrap, self._reports.last(self._patience.timeout_s))

    def _fail(self, error: KafkaError, doing: str, topic: str = "") -> NoReturn:
        """Raise what `error` means, with the best cause that can be had; `topic` is the one it is about, if known."""
        if error.code() == KafkaError._TIMED_OUT:
            self._time_out(doing)
        cause = self._cause(error)
        failure = to_cdcd_error(cause, doing, self._bootstrap)
        if isinstance(failure, Unpublishable):
            failure.topic = failure.topic or topic or (self._undelivered_topic if cause is self._undelivered else "")
        if isinstance(failure, Fenced) and self._outlived():
            raise KafkaUnavailable(
                f"Kafka ended our transaction after {self._transaction_timeout_s:.0f} s (transaction.timeout.ms) "
                f"while {doing}",
                "cdcd goes back to its last progress by itself; if it lasts, look at the load of the brokers.",
            )
        raise failure

    def _cause(self, error: KafkaError) -> KafkaError:
        """Librdkafka's later errors only say that there was an earlier one: find that."""
        if self._undelivered is not None and not isinstance(to_cdcd_error(error, "", ""), FatalError):
            return self._undelivered
        if error.code() not in (KafkaError._FATAL, KafkaError._STATE) or self._transactional_id is None:
            return error
        try:
            self._producer().begin_transaction()  # inside a transaction this can only fail, and says why
        except KafkaException as exception:
            return kafka_error(exception)
        return error

    def _outlived(self) -> bool:
        return self._began_at is not None and time.monotonic() - self._began_at >= self._transaction_timeout_s

    def _on_delivery(self, error: KafkaError | None, report: DeliveryReport) -> None:
        self._delivered_at = time.monotonic()
        if error is None:
            topic, partition, offset = report.topic(), report.partition(), report.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self._offsets[topic, partition] = offset + 1
        elif self._undelivered is None and error.code() not in _PURGED:
            self._undelivered = error
            self._undelivered_topic = report.topic() or ""


class _Watch:
    """Over one call: since when it lasts, and since when Kafka has answered other questions meanwhile."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.answers_since_s: float | None = None


def _too_large(record: dict[str, object], topic: str) -> Unpublishable:
    size = sum(len(part) for part in (record.get("key"), record["value"]) if isinstance(part, bytes))
    return Unpublishable(
        f"a row of {size:,} bytes does not fit into the producer's queue, producing to {topic}",
        f"Raise queue.buffering.max.kbytes and message.max.bytes under sink.librdkafka. {SIZE_HINT}",
        topic=topic,
    )


def _inside(error: KafkaException | SystemError) -> KafkaError:
    """The KafkaError of an exception that librdkafka's callbacks may have wrapped; re-raises what is not its own."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, KafkaException):
            return kafka_error(inner)
        inner = inner.__cause__ or inner.__context__
    raise error
