"""The producer of `sink.delivery = "exactly_once"`: one transactional.id.

Before: `publisher` says what goes into a transaction.
After: the broker. `tests/contract/test_producer.py` holds this to its promises.
Source: librdkafka INTRODUCTION.md, "Transactional Producer".

Traps that this module knows:

- Only the last record of each call gets a delivery report: in a transaction every failed record fails the commit.
- The broker says "fenced" also to a producer whose transaction outlived `transaction.timeout.ms`. Only this process's
  own clock can tell the two cases apart.
- When a connection is lost during the request that ends a transaction, librdkafka sends the request again. The broker
  may handle the first request later, and end the *next* transaction with it, half of whose rows are written. (KIP-890
  solves this, but librdkafka 2.16 does not speak it: its issue 5423.) A new producer fences the old request: see
  `begin`.
- librdkafka takes the answer of a commit for the answer of an abort if abort_transaction was called meanwhile, even if
  that call was refused, and then ends the process (`rd_kafka_txn_endtxn_complete`). See `abort`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as DeliveryReport

from cdcd.errors import Fenced, KafkaUnavailable
from cdcd.sink.batches import Message
from cdcd.sink.kafka.client_config import KafkaConnection, transactional_producer_config
from cdcd.sink.kafka.deadline import SLICE_S
from cdcd.sink.kafka.errors import kafka_error, refuses_credentials, unanswered
from cdcd.sink.kafka.producer_client import ProducerClient, unwrap
from cdcd.sink.kafka.stuck_client import StuckClient

_ABORT_S: Final = 5.0
_SENT_ONCE_SHARE: Final = 0.8
"""librdkafka repeats no request before this share of its backoff has passed."""


_VAGUE: Final = frozenset(
    {KafkaError._FATAL, KafkaError._STATE, KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD}
)
"""The error of the transaction says more than these: also of a record, if the broker refused all of its batch."""


class KafkaProducer(ProducerClient):
    """Plays `interfaces.Producer`. For one thread, `shorten_deadlines` excepted."""

    is_transactional = True

    def __init__(
        self,
        connection: KafkaConnection,
        transactional_id: str,
        transaction_timeout_ms: int = 60_000,
        timeout_s: float = 60.0,
        known_topic: str = "",
        stuck_client: StuckClient | None = None,
    ) -> None:
        """`timeout_s` bounds each call.

        `known_topic`, which exists, makes starting quicker. Connects in the background; nothing is asked of the broker
        yet. Raises SettingsError for properties that librdkafka does not know or that belong to cdcd.
        """
        self._bounds = connection.bounds
        self._sent_once_s = _SENT_ONCE_SHARE * self._bounds.retry_backoff_ms / 1000
        config = transactional_producer_config(connection, transactional_id, transaction_timeout_ms)
        super().__init__(connection, config, timeout_s, stuck_client)
        self._transactional_id = transactional_id
        self._transaction_timeout_s = transaction_timeout_ms / 1000
        self._known_topic = known_topic
        self._began_at: float | None = None
        self._has_begun_next = False
        """The next transaction is open, as far as librdkafka knows."""
        self._is_committing = False
        """A commit may be under way: it has begun, and librdkafka has not said how it ended."""
        self._end_sent_at = 0.0
        """Earliest moment at which the end can have been sent: the last delivery, or the start of the commit."""
        self._ended_in_s = 0.0
        """How long the last transaction's end took, from `_end_sent_at` on."""

    def start(self, stopping: Callable[[], bool]) -> bool:
        """Take over the transactional.id: fence a zombie and end its open transaction. False if `stopping` is true.

        Raises KafkaUnavailable if no broker let the client in within the timeout, RequestRejected if one never will.
        """
        doing = f"taking over the transactional.id {self._transactional_id}"
        deadline = self._deadline.of_call()
        self._connect()
        while True:
            if stopping():
                return False
            try:
                self._producer().init_transactions(SLICE_S)
                break
            except KafkaException as error:
                found = kafka_error(error)
                self._poll(doing)
                if refuses_credentials(self._reports.last(self._deadline.timeout_s)):
                    self._time_out(doing)
                if not found.retriable() or self._deadline.is_over(deadline):
                    self._fail(found, doing)
        return True

    def _connect(self) -> None:
        """Wait until a broker can be asked, for SLICE_S at most.

        librdkafka looks for the coordinator at once. If no broker can be asked yet, it waits half a second.
        """
        if self._known_topic:
            with suppress(KafkaException):  # init_transactions gives the better error
                self._producer().list_topics(self._known_topic, SLICE_S)

    def begin(self) -> None:
        """Open a transaction.

        Raises KafkaUnavailable if the end of the last one may have been sent twice.
        """
        if self._ended_in_s >= self._sent_once_s:
            raise KafkaUnavailable(
                f"Kafka ({self._bootstrap}) took {self._ended_in_s:.1f} s to end a transaction, so librdkafka may have "
                "sent the request twice; a duplicate could end the next transaction",
                "The daemon restarts with a new producer by itself, and a longer backoff if commits stay slow; if it "
                "happens often, look at the load of the brokers.",
                code="kafka-slow",
            )
        self._offsets = {}
        self._stuck_client.topics.clear()
        self._began_at = time.monotonic()
        self._begin_transaction()
        self._has_begun_next = False

    def begin_next(self) -> None:
        """Open the next transaction with librdkafka, unless one is open: this takes librdkafka's threads 0.3 ms.

        The broker learns of a transaction only when the first partition joins it.
        """
        if self._began_at is None:
            self._begin_transaction()

    def _begin_transaction(self) -> None:
        if not self._has_begun_next:
            try:
                self._producer().begin_transaction()
            except KafkaException as error:
                self._fail(kafka_error(error), "opening a transaction")
            self._has_begun_next = True

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        """Hand over records of one partition, in order; waits while the queue is full. The producer keeps the list."""
        records = cast("list[dict[str, object]]", messages)
        records[-1] = {**records[-1], "callback": self._on_delivery}
        self._produce(topic, partition, records, has_headers=has_headers)

    def commit(self) -> None:
        """Make the open transaction visible, wholly.

        After a KafkaUnavailable it may or may not be visible: the progress tells.
        """
        doing = "committing a transaction"
        self._end_sent_at = time.monotonic()
        deadline = self._deadline.of_call()
        watch = self._stuck_client.watch()
        self._is_committing = True
        while True:
            try:
                self._producer().commit_transaction(SLICE_S)
                break
            except (KafkaException, SystemError) as error:
                found = unwrap(error)
                self._is_committing = found.retriable()
                if not found.retriable() or self._deadline.is_over(deadline):
                    self._fail(found, doing)
                watch.raise_if_stuck(doing)
        self._is_committing = False
        # A committed record was delivered: an error report would have failed the commit.
        self._raise_if_undelivered(doing)
        self._began_at = None
        self._ended_in_s = time.monotonic() - self._end_sent_at
        self._bounds.note_commit(self._ended_in_s)

    def abort(self) -> None:
        """Give up the open transaction, if there is one.

        Raises KafkaUnavailable if a commit may be under way: only the progress tells whether it succeeds.
        """
        if self._began_at is None:
            return
        self._began_at = None
        doing = "aborting a transaction"
        if self._is_committing:
            raise unanswered("committing a transaction", self._bootstrap, None)
        client = self._producer()
        deadline = time.monotonic() + min(self._deadline.timeout_s, _ABORT_S)
        try:
            # A record that reaches the broker after the abort would stay there until the next transaction ends it.
            while client.flush(SLICE_S):
                self._raise_if_transaction_failed(doing)
                if self._deadline.is_over(deadline):
                    self._time_out(doing)
        except (KafkaException, SystemError) as error:
            self._fail(unwrap(error), doing)
        began = time.monotonic()
        while True:
            try:
                client.abort_transaction(SLICE_S)
                break
            except (KafkaException, SystemError) as error:
                found = unwrap(error)
                if not found.retriable() or self._deadline.is_over(deadline):
                    self._fail(found, doing)
        self._undelivered = None
        self._poll(doing)  # serves the reports of the aborted records now: they belong to no later transaction
        self._ended_in_s = time.monotonic() - began

    def _raise_if_transaction_failed(self, doing: str) -> None:
        """Check whether the transaction failed because of a record that has no delivery report.

        librdkafka sends no record after the failed one any more, so a flush would never end.
        """
        try:
            self._producer().begin_transaction()  # inside a transaction this only fails, and the error tells its state
        except KafkaException as exception:
            error = kafka_error(exception)
            if error.code() != KafkaError._STATE:
                self._fail(error, doing)

    def _fail(self, error: KafkaError, doing: str, topic: str = "") -> NoReturn:
        try:
            super()._fail(error, doing, topic)
        except Fenced:
            if not self._has_outlived_timeout():
                raise
        raise KafkaUnavailable(
            f"Kafka ended the daemon's transaction after {self._transaction_timeout_s:.0f} s (transaction.timeout.ms) "
            f"while {doing}",
            "The daemon goes back to its last progress by itself; if it lasts, look at the load of the brokers.",
            code="kafka-slow",
        )

    def _cause_in_transaction(self, error: KafkaError) -> KafkaError:
        if error.code() not in _VAGUE:
            return error
        try:
            self._producer().begin_transaction()  # as above: the error tells why
        except KafkaException as exception:
            return kafka_error(exception)
        return error

    def _has_outlived_timeout(self) -> bool:
        return self._began_at is not None and time.monotonic() - self._began_at >= self._transaction_timeout_s

    def _on_delivery(self, error: KafkaError | None, report: DeliveryReport) -> None:
        self._end_sent_at = time.monotonic()
        super()._on_delivery(error, report)
