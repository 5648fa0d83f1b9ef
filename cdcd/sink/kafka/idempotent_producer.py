"""The producer of `sink.delivery = "at_least_once"`: idempotent, without transactions.

Before: `publisher` says what it writes, as to a transactional producer.
After: the broker; readers see each record as soon as it is written. `tests/contract/test_producer.py` holds this to its
promises.

Every record gets a delivery report: only a report shows that a record was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from cdcd.sink.batches import Message
from cdcd.sink.kafka.client_config import KafkaConnection, idempotent_producer_config
from cdcd.sink.kafka.producer_client import ProducerClient
from cdcd.sink.kafka.stuck_client import StuckClient


class IdempotentProducer(ProducerClient):
    """Plays `interfaces.Producer`. For one thread, `shorten_deadlines` excepted."""

    is_transactional = False

    def __init__(
        self, connection: KafkaConnection, timeout_s: float = 60.0, stuck_client: StuckClient | None = None
    ) -> None:
        """`timeout_s` bounds each call.

        Connects in the background; nothing is asked of the broker yet. Raises SettingsError for properties that
        librdkafka does not know or that belong to cdcd.
        """
        super().__init__(connection, idempotent_producer_config(connection), timeout_s, stuck_client)

    def start(self, stopping: Callable[[], bool]) -> bool:
        """Nothing to do: without a transactional.id there is nothing to take over."""
        return True

    def begin(self) -> None:
        """Forget the offsets of the records before."""
        self._offsets = {}
        self._stuck_client.topics.clear()

    def begin_next(self) -> None:
        """Nothing of the next transaction can be done early."""

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        """Hand over records of one partition, in order; waits while the queue is full. The producer keeps the list."""
        records = cast("list[dict[str, object]]", messages)
        self._produce(topic, partition, records, has_headers=has_headers, on_delivery=self._on_delivery)

    def commit(self) -> None:
        """Wait until all records are written."""
        self.flush()

    def abort(self) -> None:
        """Written records cannot be taken back."""
