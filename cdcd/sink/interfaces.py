"""The sink's demands on Kafka, as protocols.

Before: `publisher`, `table_topics` and `worker` call these.
After: `kafka/` plays them with confluent-kafka, `tests/sim/fake_kafka.py` in memory. `tests/contract/test_producer.py`
holds both to the same promises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from cdcd.progress.records import TopicState
from cdcd.sink.batches import Message
from cdcd.sink.parking.wire_format import ParkedChunk
from cdcd.sink.topics import TopicSpec

Offsets: TypeAlias = "Mapping[tuple[str, int], int]"
"""By (topic, partition), the offset after its last record (end-exclusive)."""


class Producer(Protocol):
    """One producer: transactional (exactly once) or merely idempotent (at least once).

    Every method raises a RetriableError (KafkaUnavailable) if the broker could not do it now, and a FatalError (Fenced,
    RequestRejected) if the broker never will. After either the producer can only be closed.
    """

    @property
    def is_transactional(self) -> bool:
        """Readers see records when their transaction is committed; else as soon as they are written."""

    def start(self, stopping: Callable[[], bool]) -> bool:
        """Take over the transactional.id: fence a zombie and end its open transaction. False if `stopping` is true."""

    def begin(self) -> None:
        """Open a transaction."""

    def begin_next(self) -> None:
        """Do early what the next `begin` needs, as far as that is possible now: there is a moment to spare."""

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        """Hand over records of one partition, in order. The producer keeps the list.

        `has_headers`: some of them may have headers. The producer does not look for any else.
        """

    def flush(self) -> Offsets:
        """Wait until all records of the open transaction are written; returns where each partition touched ends."""

    def commit(self) -> None:
        """Make the open transaction visible, wholly.

        After a RetriableError it may or may not be visible: the progress tells.
        """

    def abort(self) -> None:
        """Give up the open transaction, if there is one."""

    def poll(self) -> None:
        """Let the client do its housekeeping while no batch comes, and raise the errors that it found."""

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call takes longer than this in all. May be called by another thread."""

    def close(self) -> None:
        """Leave the broker, soon; an open transaction is aborted. Never raises."""


class TopicAdmin(Protocol):
    """The topics on the broker. Raises as Producer does."""

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call takes longer than this in all. May be called by another thread."""

    def ensure(self, *specs: TopicSpec) -> list[int]:
        """Make the topics that are missing; returns how many partitions each really has."""

    def keeps_leader(self, topic: str) -> bool:
        """Whether the topic has a leader as long as any other has: it is replicated, or there is only one broker."""

    def end_offsets(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the high watermark of each partition, by topic; `partitions` says how many partitions each topic has.

        The high watermark is the next record's offset, even if transactions are open.
        """

    def states(self, topics: Collection[str]) -> dict[str, TopicState]:
        """Return the ids and the ends of those topics that exist; UNKNOWN_END for a partition without a leader."""

    def topic_configs(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of existing topics, as far as the user may see them."""


class Record(Protocol):
    """A record as a consumer gets it."""

    def key(self) -> bytes | None:
        """Return the key."""

    def value(self) -> bytes | None:
        """Return the value; None for a tombstone."""


class PartitionReader(Protocol):
    """Reads ranges of offsets of one partition. Raises as Producer does."""

    topic: str

    def bounds(self) -> tuple[int, int] | None:
        """Return the partition's first offset and its end; None if there is no such topic."""

    def consumer(self) -> AbstractContextManager[Any]:
        """Return a consumer for `read`."""

    def read(
        self, consumer: Any, start: int, stop: int, stopping: Callable[[], bool] = ...
    ) -> Iterator[tuple[int, Record]]:
        """Yield the records with offsets in [start, stop), each with its offset, until `stop` or until `stopping()`."""


class ProgressReader(Protocol):
    """Reads what committed Kafka transactions left on a topic of records by key. Raises as Producer does."""

    def last(self, keys: frozenset[bytes], stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        """Return the last committed value of each key; a key that was never written, or was deleted, is missing.

        Call it once the producer has started: the start ends the open transactions of earlier producers.
        If `stopping` turns true, the result is incomplete.
        """

    def every(self, stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        """Return the last committed value of every key, of a small topic. Otherwise like `last`."""


class ParkedReader(Protocol):
    """Reads parked events back. Raises as Producer does."""

    scanned_max: int
    """A chunk ends when this many offsets were read: other tables' events lie between. The stream waits meanwhile."""

    def read(self, key: bytes, offset: int) -> ParkedChunk:
        """Return the next committed events under `key` from `offset` on."""
