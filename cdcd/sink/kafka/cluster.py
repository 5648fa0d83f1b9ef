"""One Kafka cluster, as one daemon or one command sees it: makes its clients, and remembers which topics exist.

Before: plain arguments from the settings.
After: `kafka.progress_store` and `kafka.undecided_transactions` read with them; the take-over starts the producers.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdcd.sink.interfaces import ParkedReader, Producer
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import Property, transaction_timeout_ms
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.kafka.producer import KafkaProducer
from cdcd.sink.kafka.range_reader import RangeReader
from cdcd.sink.topics import TopicSpec


class KafkaCluster:
    """`close` ends the admin client; the other clients belong to the caller."""

    def __init__(self, bootstrap: str, client_id: str, properties: Mapping[str, Property]) -> None:
        """Connects to nothing yet. `properties` are librdkafka's, for all clients."""
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._properties = properties
        self._existing: frozenset[str] = frozenset()
        self.admin = KafkaAdmin(bootstrap, client_id, properties)

    def ensure(self, *specs: TopicSpec) -> None:
        """Make the topics that are missing. From now on a reader takes for certain that they exist. Raises as admin."""
        self.admin.ensure(*specs)
        self._existing |= {spec.name for spec in specs}

    def producer(self, transactional_id: str | None, timeout_ms: int, known_topic: str) -> Producer:
        """A producer that has not started. `timeout_ms` is the transaction's; `known_topic` exists when it starts."""
        return KafkaProducer(
            self._bootstrap,
            self._client_id,
            transactional_id,
            timeout_ms,
            self._properties,
            # The producer waits for silent brokers as long as the brokers wait for a silent producer. To start again
            # sooner costs the connection to the server, and brings nothing back.
            timeout_s=timeout_ms / 1000,
            known_topic=known_topic,
        )

    def range_reader(
        self, topic: str, *, partition: int = 0, isolation: str = "read_committed", end: str = "log_end"
    ) -> RangeReader:
        """A reader of one partition; `isolation` may be "read_uncommitted", `end` "last_stable"."""
        return RangeReader(
            self._bootstrap, self._client_id, topic, self.admin, self._properties,
            partition=partition, undecided=isolation == "read_uncommitted", stable=end == "last_stable",
            there=topic in self._existing,
        )  # fmt: skip

    def parked_reader(self, topic: str) -> ParkedReader:
        """A reader of the parked topic."""
        return KafkaParkedReader(self.range_reader(topic))

    def transaction_timeout_ms(self) -> int:
        """How long a Kafka transaction may be open, milliseconds. Raises as admin, and SettingsError."""
        return transaction_timeout_ms(self.admin.transaction_timeout_max_ms(), self._properties)

    def validate(self, transactional_id: str | None, *specs: TopicSpec) -> None:
        """Raise what librdkafka and the brokers have against the settings. Fences nobody, and makes no topic.

        Raises KafkaUnavailable while Kafka does not answer.
        """
        self.producer(transactional_id, self.transaction_timeout_ms(), "").close()
        self.admin.validate(*specs)

    def close(self) -> None:
        """End the admin client."""
        self.admin.close()
