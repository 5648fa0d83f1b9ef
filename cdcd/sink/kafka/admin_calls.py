"""One admin client: asks a question, waits for the answer, and translates the error.

Before: `admin`, `topic_creation`, `partition_offsets` and `broker_configs` ask.
After: the brokers, through confluent-kafka's AdminClient. The futures of a client fail once Python has collected the
client, so this object keeps it.

Traps that this module knows:

- A future keeps the exception that it raised, and the exception keeps its stack frames. If one of these frames keeps
  the future, they are a cycle, and the client in it lives on with its four threads. So no future keeps a name here.
- A broker that has just started answers a metadata request without a broker. librdkafka 2.16 aborts the process if
  DescribeCluster gets that answer. So nothing uses DescribeCluster.
- The client still fills the dict of futures that it has returned. So futures are taken out of a copy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from math import inf
from threading import Thread
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from cdcd.errors import CdcdError
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, KafkaConnection, client_config
from cdcd.sink.kafka.deadline import SLICE_S, Deadline
from cdcd.sink.kafka.errors import Reports, closed, kafka_error, refuses_for_good, to_cdcd_error
from cdcd.sink.kafka.tls_files import naming_files
from cdcd.sink.kafka.token_endpoint import no_answer

T = TypeVar("T")

PAUSE_S: Final = 0.05
"""The pause between two questions for what the cluster does not know yet."""
_BROKERS_KNOWN_S: Final = 1.0
"""So long an answer that names a broker is trusted."""
NO_ANSWER: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
NOT_ALLOWED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class AdminCalls:
    """The calls of one client. For one thread, `deadline` excepted."""

    def __init__(self, connection: KafkaConnection, timeout_s: float) -> None:
        """Connects in the background; `timeout_s` bounds each call.

        Raises SettingsError for properties that librdkafka does not know or that belong to cdcd.
        """
        self.bootstrap = connection.bootstrap
        self.deadline = Deadline(timeout_s)
        self.reports = Reports()
        self._properties = connection.properties
        self._brokers_known_s = -inf
        config: dict[str, Any] = client_config(connection.bootstrap, connection.client_id, connection.properties)
        config["error_cb"] = self.reports
        try:
            self._client: AdminClient | None = AdminClient(config, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            failed = to_cdcd_error(kafka_error(error), "making an admin client", connection.bootstrap)
            raise naming_files(failed, self._properties) from None

    @property
    def client(self) -> AdminClient:
        """The client, for one request."""
        if self._client is None:
            raise closed("the admin client")
        return self._client

    @property
    def timeout_s(self) -> float:
        """What bounds each call."""
        return self.deadline.timeout_s

    def close(self) -> None:
        """End the client's threads."""
        self._client = None

    @contextmanager
    def asking(self, doing: str) -> Iterator[None]:
        """Translate the errors of the questions inside; `doing` is a participle: "describing topics"."""
        try:
            yield
        except KafkaException as error:
            found = kafka_error(error)
            if found.code() in NO_ANSWER:
                raise self.unanswered(doing) from None
            raise to_cdcd_error(found, doing, self.bootstrap) from None
        except FutureTimeoutError:
            raise self.unanswered(doing) from None

    def answers(self, futures: dict[Any, Future[T]]) -> dict[Any, T]:
        """Wait for all futures, and return their results; raises the error of the first that failed."""
        deadline = self.deadline.of_call()
        pending = list(futures.items())
        del futures
        answers = {}
        while pending:
            key, future = pending.pop()
            try:
                while not future.done() and not self.deadline.is_over(deadline):
                    wait((future,), SLICE_S)
                    self.client.poll(0)
                    if self.is_refused():
                        break
                answers[key] = future.result(0)
            finally:
                del future
        return answers

    def cluster(self, topic: str | None = None) -> ClusterMetadata:
        """Return the first answer that names a broker: before that, the cluster does not know its topics either.

        The question is about `topic`, or about all topics. An answer without a word about `topic` is none: librdkafka
        ends the process if DescribeTopics gets such a one.
        """
        deadline = self.deadline.of_call()
        while not (answer := self.metadata(topic)).brokers or (topic is not None and topic not in answer.topics):
            if self.deadline.is_over(deadline):
                lacks = "the topic" if answer.brokers else "a broker"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the cluster does not name {lacks}"))
            time.sleep(PAUSE_S)
        self._brokers_known_s = time.monotonic()
        return answer

    def wait_for_brokers(self, topic: str) -> None:
        """Ask for `topic` until the answer names a broker, unless one has named a broker a moment ago."""
        if time.monotonic() >= self._brokers_known_s + _BROKERS_KNOWN_S:
            self.cluster(topic)

    def metadata(self, topic: str | None = None) -> ClusterMetadata:
        """Ask for the metadata of one topic, or of all."""
        return self.answers({"": _metadata(self.client, topic, self.timeout_s)})[""]

    def is_refused(self) -> bool:
        """Whether the client has just reported what every other try would meet, too."""
        return refuses_for_good(self.reports.last(self.timeout_s))

    def unanswered(self, doing: str) -> CdcdError:
        """Return the error of a question without an answer."""
        self.client.poll(0)
        failed = no_answer(self._properties, doing, self.bootstrap, self.reports.last(self.timeout_s))
        return naming_files(failed, self._properties)


def _metadata(client: AdminClient, topic: str | None, timeout_s: float) -> Future[ClusterMetadata]:
    """Ask in a thread: librdkafka blocks its caller, and signals wait for the main thread."""
    answer: Future[ClusterMetadata] = Future()

    def ask() -> None:
        try:
            answer.set_result(client.list_topics(*([] if topic is None else [topic]), timeout=timeout_s))
        except KafkaException as error:
            answer.set_exception(error.with_traceback(None))  # its frames keep the future

    Thread(target=ask, name="cdcd-metadata", daemon=True).start()
    return answer
