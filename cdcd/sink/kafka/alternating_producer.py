"""Two producers that take turns: Kafka ends the transaction of one while the other writes the next.

Before: `publisher` says what goes into a transaction. After: `kafka.producer`, twice.
Source: KIP-98; librdkafka, `rd_kafka_txn_handle_AddPartitionsToTxn`.

The problem: a commit is answered before its markers are written. A partition that the same producer takes into its next
transaction before that is refused (CONCURRENT_TRANSACTIONS), and librdkafka asks again 20 ms later, whatever happens. A
broker that is cold, or waits for replicas, refuses nearly every transaction that follows at once.

One transaction is open at a time, and whoever starts takes over both transactional ids before it reads the progress: so
what it reads is all that there will ever be of those before. Where two daemons start at once, each may get hold of one
id. So the first is taken over first, and commits first: who commits with the second has held both, and whoever takes
them over later finds that commit.
"""

from __future__ import annotations

from collections.abc import Callable

from cdcd.sink.batches import Message
from cdcd.sink.interfaces import Offsets, Producer


class AlternatingProducer:
    """Plays `producer.Producer`; both producers are its own, and transactional."""

    transactional = True

    def __init__(self, first: Producer, second: Producer) -> None:
        self._turn, self._other = first, second
        self._both = first, second

    def start(self, stopping: Callable[[], bool]) -> bool:
        """Take over both transactional.ids, the first one first. False if `stopping` said so."""
        first, second = self._both
        return first.start(stopping) and second.start(stopping)

    def begin(self) -> None:
        """Open a transaction: of the one whose turn it is."""
        self._turn.begin()

    def prepare(self) -> None:
        """Have the one that is next ready for its transaction."""
        self._other.prepare()

    def produce(self, topic: str, partition: int, messages: list[Message]) -> None:
        """Hand over records of one partition, in order. The list is ours from now on."""
        self._turn.produce(topic, partition, messages)

    def flush(self) -> Offsets:
        """Wait until all records of the open transaction are written; returns where each partition touched ends."""
        return self._turn.flush()

    def commit(self) -> None:
        """Make the open transaction visible, wholly; the next one is the other's."""
        self._turn.commit()
        self._turn, self._other = self._other, self._turn

    def abort(self) -> None:
        """Give up the open transaction, if there is one. The next one is the same producer's."""
        self._turn.abort()

    def serve(self) -> None:
        """Let both do their housekeeping; raises what either found fatal."""
        for producer in self._both:
            producer.serve()

    def hurry(self, within_s: float) -> None:
        """From now on no call lasts beyond `within_s` seconds from now. May be called by another thread."""
        for producer in self._both:
            producer.hurry(within_s)

    def close(self) -> None:
        """Leave the broker, soon. Never raises."""
        for producer in self._both:
            producer.close()
