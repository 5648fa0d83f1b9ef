"""Asks whether the cluster answers, and if nothing moves, what it is that takes no records.

Before: `daemon.service_watch` asks every few seconds.
After: the broker. An error goes to `monitoring.reachability`.

The producer cannot tell this: it waits for brokers without a word, and its connection may be dead without an error. So
the probe has a client of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.client_config import KafkaConnection, client_config
from cdcd.sink.kafka.errors import TRY_AGAIN, Reports, kafka_error, to_cdcd_error
from cdcd.sink.kafka.token_endpoint import no_answer
from cdcd.sink.kafka.unwritable_topics import why_unwritable

TIMEOUT_S: Final = 3.0
"""A cluster that answers later than this does not answer."""


class ClusterProbe:
    """A client that asks. For one thread."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        """`topic` need not exist. Connects in the background.

        Raises SettingsError for properties that librdkafka does not know or that belong to cdcd.
        """
        self._bootstrap = connection.bootstrap
        self._topic = topic
        self._reports = Reports()
        self._admin: AdminClient | None = None
        """Made when nothing moves for the first time."""
        self._config: dict[str, Any] = {
            **client_config(connection.bootstrap, connection.client_id, connection.properties),
            "log_level": 0,  # the other clients log that a broker is gone
        }
        own = {
            "group.id": connection.client_id,  # the client demands one; without a subscription no broker sees it
            "error_cb": self._reports,
        }
        try:
            self._client = Consumer({**self._config, **own})
        except KafkaException as error:
            raise to_cdcd_error(kafka_error(error), "making a client", self._bootstrap) from None

    def ask(self) -> None:
        """Ask a broker for one topic. Raises KafkaUnavailable or RequestRejected if none answers."""
        doing = "asking whether it is there"
        try:
            self._client.list_topics(self._topic, timeout=TIMEOUT_S)
        except KafkaException as error:
            self._client.poll(0)  # serves the report that tells why
            found = kafka_error(error)
            last = self._reports.last(TIMEOUT_S * 2)
            raise no_answer(self._config, doing, self._bootstrap, last if last is not None else found) from None

    def raise_if_unwritable(self, topics: Collection[str]) -> None:
        """Raise KafkaUnavailable, with the name, if one of `topics` takes no records as far as the cluster tells."""
        if self._admin is None:
            self._admin = AdminClient(self._config)
        try:
            why = why_unwritable(self._admin, topics, TIMEOUT_S)
        except KafkaException:
            return  # `ask` finds out
        if why:
            raise KafkaUnavailable(f"Kafka ({self._bootstrap}) takes no records: {why}", TRY_AGAIN)

    def close(self) -> None:
        """End the clients."""
        self._admin = None
        self._client.close()
