"""One Kafka cluster, as one daemon or one command sees it: makes its clients, and remembers which topics exist.

Before: plain arguments from the settings; `kafka.delivery` says which producers are wanted.
After: `kafka.progress_store` and `kafka.undecided_transactions` read with the clients; the take-over starts the
producers. The simulation hands in a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cdcd.errors import RequestRejected
from cdcd.sink.interfaces import ParkedReader, PartitionReader, Producer
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection, transaction_timeout_ms
from cdcd.sink.kafka.idempotent_producer import IdempotentProducer
from cdcd.sink.kafka.parked_reader import KafkaParkedReader
from cdcd.sink.kafka.producer import KafkaProducer
from cdcd.sink.kafka.range_reader import End, Isolation, RangeReader
from cdcd.sink.own_topics import faults
from cdcd.sink.producer_bounds import ProducerBounds
from cdcd.sink.topics import TopicNames, TopicSpec


class KafkaCluster:
    """`close` ends the admin client; the other clients belong to the caller."""

    def __init__(self, connection: KafkaConnection) -> None:
        """Connects to nothing yet."""
        self._connection = connection
        self._existing: frozenset[str] = frozenset()
        self.admin = KafkaAdmin(connection)

    @property
    def bounds(self) -> ProducerBounds:
        """The bounds of the next producer."""
        return self._connection.bounds

    def ensure(self, *specs: TopicSpec) -> None:
        """Make the topics that are missing. Readers made later assume that they exist. Raises as admin."""
        self.admin.ensure(*specs)
        self._existing |= {spec.name for spec in specs}

    def check_own_topics(self, names: TopicNames) -> None:
        """Raise RequestRejected, with the hint, if Kafka would lose what cdcd keeps on its own topics."""
        there = self.admin.partitions(list(names.own))
        for fault in faults(names, there, self.admin.topic_configs(there)):
            if fault.is_fatal:
                raise RequestRejected(fault.message, fault.hint, code="own-topic-misconfigured")

    def transactional_producer(self, transactional_id: str, timeout_ms: int, known_topic: str) -> Producer:
        """Return a producer that has not started; its transactions may be open for `timeout_ms`.

        `known_topic` exists when the producer starts.
        """
        # The producer waits for silent brokers as long as the brokers wait for a silent producer. To start again sooner
        # costs the connection to PostgreSQL, and brings no broker back.
        return KafkaProducer(self._connection, transactional_id, timeout_ms, timeout_ms / 1000, known_topic)

    def idempotent_producer(self, timeout_ms: int) -> Producer:
        """Return a producer without transactions that has not started; `timeout_ms` bounds each call."""
        return IdempotentProducer(self._connection, timeout_ms / 1000)

    def range_reader(
        self, topic: str, *, partition: int = 0, isolation: Isolation = "read_committed", end: End = "log_end"
    ) -> PartitionReader:
        """Return a reader of one partition; the arguments are those of RangeReader."""
        return RangeReader(
            self._connection, topic, self.admin,
            partition=partition, isolation=isolation, end=end, assume_exists=topic in self._existing,
        )  # fmt: skip

    def parked_reader(self, topic: str) -> ParkedReader:
        """Return a reader of the parked topic."""
        return KafkaParkedReader(self.range_reader(topic))

    def transaction_timeout_ms(self) -> int:
        """Return how long a Kafka transaction may be open, milliseconds. Raises as admin, and SettingsError."""
        return transaction_timeout_ms(self.admin.transaction_timeout_max_ms(), self._connection.properties)

    def validate(
        self, producers: Callable[[KafkaCluster, int, str], Iterator[Producer]], *specs: TopicSpec
    ) -> list[TopicSpec]:
        """Raise the error that librdkafka or the brokers have for the settings. Fences no producer, makes no topic.

        `producers` makes the producers of a delivery mode; only the first is made. Returns the topics that the cluster
        only allows without what they can do without. Raises KafkaUnavailable while Kafka does not answer.
        """
        next(producers(self, self.transaction_timeout_ms(), "")).close()
        return self.admin.validate(*specs)

    def close(self) -> None:
        """End the admin client."""
        self.admin.close()
