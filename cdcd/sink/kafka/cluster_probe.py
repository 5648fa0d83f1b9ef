"""Asks whether the cluster answers, and if nothing moves, what it is that takes no records.

Before: `daemon.service_watch` asks every few seconds.
After: the broker. An error goes to `monitoring.reachability`.

The producer cannot tell this: it waits for brokers without a word, and its connection may be dead without an error. So
the probe has a client of its own. It outlives streams, so it reads rotated certificates again by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from cdcd.errors import CdcdError, KafkaUnavailable
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection, client_config
from cdcd.sink.kafka.errors import TRY_AGAIN, Reports, kafka_error, to_cdcd_error
from cdcd.sink.kafka.tls_files import naming_files, watch_tls_files
from cdcd.sink.kafka.token_endpoint import no_answer
from cdcd.sink.kafka.unwritable_topics import why_unwritable

TIMEOUT_S: Final = 3.0
"""A cluster that answers later than this does not answer."""


class ClusterProbe:
    """A client that asks. For one thread."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        """`topic` need not exist. Makes no client yet."""
        self._connection = connection
        self._bootstrap = connection.bootstrap
        self._topic = topic
        self._reports = Reports()
        self._connection = connection.silent()
        self._admin: KafkaAdmin | None = None
        """Made when nothing moves for the first time."""
        self._files = watch_tls_files(self._connection)
        self._client: Consumer | None = None
        """Made at the first question, because there may be no token for it yet."""

    def ask(self) -> tuple[str, int]:
        """Ask a broker for one topic. Returns the cluster's id, and the number of its brokers.

        Raises KafkaUnavailable or RequestRejected if none answers.
        Raises SettingsError for properties that librdkafka does not know or that belong to cdcd.
        """
        doing = "describing the cluster"
        if self._files.have_changed:
            self._read_files_again()
        if self._client is None:
            self._client = self._new_client()
        client = self._client
        try:
            found = client.list_topics(self._topic, timeout=TIMEOUT_S)
            return found.cluster_id or "", len(found.brokers)
        except KafkaException as error:
            client.poll(0)  # serves the report that tells why
            last = self._reports.last(TIMEOUT_S * 2)
            why = kafka_error(error) if last is None else last
            failed = no_answer(self._connection.properties, doing, self._bootstrap, why)
            raise naming_files(failed, self._connection.properties) from None

    def raise_if_unwritable(self, topics: Collection[str]) -> None:
        """Raise KafkaUnavailable, with the name, if one of `topics` takes no records as far as the cluster tells."""
        if self._admin is None:
            self._admin = KafkaAdmin(self._connection, TIMEOUT_S)
        try:
            why = why_unwritable(self._admin, topics)
        except CdcdError:
            return  # `ask` finds out
        if why:
            raise KafkaUnavailable(
                f"Kafka ({self._bootstrap}) takes no records: {why}", TRY_AGAIN, code="kafka-unavailable"
            )

    def close(self) -> None:
        """End the clients."""
        if self._admin is not None:
            self._admin.close()
        if self._client is not None:
            self._client.close()

    def _new_client(self) -> Consumer:
        config: dict[str, Any] = {
            **client_config(self._bootstrap, self._connection.client_id, self._connection.properties),
            "group.id": self._connection.client_id,  # the client demands one; without a subscription no broker sees it
            "error_cb": self._reports,
        }
        try:
            return Consumer(config)
        except KafkaException as error:
            failed = to_cdcd_error(kafka_error(error), "making a client", self._bootstrap)
            raise naming_files(failed, self._connection.properties) from None

    def _read_files_again(self) -> None:
        files = watch_tls_files(self._connection)
        client = self._new_client()
        self._files = files
        self.close()
        self._client, self._admin = client, None
