"""Two producers that take turns: Kafka ends the transaction of one while the other writes the next.

Before: `publisher` says what goes into a transaction. After: `kafka.producer`, twice.
Source: KIP-98; librdkafka, `rd_kafka_txn_handle_AddPartitionsToTxn`.

The problem: the broker answers a commit before it has written the markers. If the same producer adds one of these
partitions to its next transaction before that, the broker refuses (CONCURRENT_TRANSACTIONS), and librdkafka asks again
20 ms later. A broker that is cold, or waits for replicas, refuses nearly every transaction that follows at once.

Only one transaction is open at a time. A daemon takes over both transactional ids before it reads the progress, so no
earlier daemon can write progress afterwards. If two daemons start at once, each may get one of the ids. So always
initialize and use the first id first. A daemon that commits with the second id has therefore owned both, and a later
daemon sees that commit.
"""

from __future__ import annotations

from collections.abc import Callable

from cdcd.sink.batches import Message
from cdcd.sink.interfaces import Offsets, Producer


class AlternatingProducer:
    """Plays `interfaces.Producer`; both producers are its own, and transactional."""

    is_transactional = True

    def __init__(self, first: Producer, second: Producer) -> None:
        self._turn, self._other = first, second
        self._both = first, second

    def start(self, stopping: Callable[[], bool]) -> bool:
        """Take over both transactional.ids, the first one first. False if `stopping` is true."""
        first, second = self._both
        return first.start(stopping) and second.start(stopping)

    def begin(self) -> None:
        """Open a transaction of the producer whose turn it is."""
        self._turn.begin()

    def begin_next(self) -> None:
        """Let the producer that is next open its transaction with librdkafka."""
        self._other.begin_next()

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        """Hand over records of one partition, in order. The producer keeps the list."""
        self._turn.produce(topic, partition, messages, has_headers=has_headers)

    def flush(self) -> Offsets:
        """Wait until all records of the open transaction are written; returns where each partition touched ends."""
        return self._turn.flush()

    def commit(self) -> None:
        """Make the open transaction visible, wholly; the next one is the other producer's."""
        self._turn.commit()
        self._turn, self._other = self._other, self._turn

    def abort(self) -> None:
        """Give up the open transaction, if there is one. The next one is the same producer's."""
        self._turn.abort()

    def poll(self) -> None:
        """Let both do their housekeeping; raises the errors that either found fatal."""
        for producer in self._both:
            producer.poll()

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call lasts beyond `within_s` seconds from now. May be called by another thread."""
        for producer in self._both:
            producer.shorten_deadlines(within_s)

    def close(self) -> None:
        """Leave the broker, soon. Never raises."""
        for producer in self._both:
            producer.close()
