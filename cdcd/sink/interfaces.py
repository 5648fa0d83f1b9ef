"""What the sink asks of Kafka: the parts that the `kafka_*` modules play, and a fake in the tests.

Before: `publisher` and `worker` call these.
After: the broker, or `tests/sim/fake_kafka.py`; `tests/contract/test_producer.py` holds both to the same promises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from cdcd.sink.batches import Message
from cdcd.sink.parking.wire_format import ParkedPiece
from cdcd.sink.topics import TopicSpec

Offsets: TypeAlias = "Mapping[tuple[str, int], int]"
"""Of a (topic, partition), the offset after its last record (end-exclusive)."""


class Producer(Protocol):
    """One producer: transactional (exactly once) or merely idempotent (at least once).

    Every method raises Restart (KafkaUnavailable) if the broker could not do it now, and Stop (Fenced, RequestRejected)
    if it never will. After either the producer can only be closed.
    """

    @property
    def transactional(self) -> bool:
        """It delivers exactly once."""

    def start(self, stopping: Callable[[], bool]) -> bool:
        """Take over the transactional.id: fence a zombie and end its open transaction. False if `stopping` said so."""

    def begin(self) -> None:
        """Open a transaction."""

    def prepare(self) -> None:
        """There is a moment to spare: do what the next `begin` can be spared, as far as that is possible now."""

    def produce(self, topic: str, partition: int, messages: list[Message]) -> None:
        """Hand over records of one partition, in order. The list is the producer's from now on."""

    def flush(self) -> Offsets:
        """Wait until all records of the open transaction are written; returns where each partition touched ends."""

    def commit(self) -> None:
        """Make the open transaction visible, wholly. After a Restart it may or may not be: the progress tells."""

    def abort(self) -> None:
        """Give up the open transaction, if there is one."""

    def serve(self) -> None:
        """Nothing to do for now: let the client do its housekeeping, and raise what it found."""

    def hurry(self, within_s: float) -> None:
        """From now on no call takes longer than this in all. May be called by another thread."""

    def close(self) -> None:
        """Leave the broker, soon; an open transaction is aborted. Never raises."""


class TopicAdmin(Protocol):
    """What there is on the broker. Raises as Producer does."""

    def hurry(self, within_s: float) -> None:
        """From now on no call takes longer than this in all. May be called by another thread."""

    def ensure(self, *specs: TopicSpec) -> list[int]:
        """Make the topics that are missing; returns how many partitions each has in truth."""

    def keeps_leader(self, topic: str) -> bool:
        """Whether the topic has a leader as long as any other has one: it is replicated, or there is but one broker."""

    def end_offsets(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        """By topic, given with how many partitions it has, the high watermark of each partition.

        It is where the next record would go, whoever's transactions are open.
        """


class ProgressReader(Protocol):
    """What committed Kafka transactions left on the progress topic. Raises as Producer does."""

    def last(self, keys: frozenset[bytes], stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        """The last committed value of each key; one that was never written, or was deleted, is missing.

        To be called once the producer has started, which ends the transactions of those before it.
        Returns what it has so far if `stopping` said so.
        """

    def every(self, stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        """The last committed value of every key, of a topic that is small; else as `last`."""


class ParkedReader(Protocol):
    """What is on the parked topic. Raises as Producer does."""

    scanned_max: int
    """After so many offsets a piece ends, whatever it holds."""

    def read(self, key: bytes, offset: int) -> ParkedPiece:
        """The next committed events under `key` from `offset` on."""
