"""Kafka in memory: as much of it as the sink relies on, and as strict.

Before: `cdcd.sink.publisher` plays against it as against a broker.
After: a test reads what `read_committed` consumers would see; `tests/contract` holds it to what the real broker does.

It keeps what matters for exactly once: a log per partition in which aborted rows and control markers take offsets, the
last stable offset that an open transaction holds back, and one owner per transactional.id, who fences the one before.
Faults: `on_call` is called with the name of every step before it takes effect, `on_done` afterwards; either may raise.
What the broker itself may do meanwhile: end a transaction that took too long (`expire`), and commit one whose producer
has not heard of it (`commit_late`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cdcd.errors import BrokerLost, Fenced, Refused
from cdcd.sink.batches import Message
from cdcd.sink.producer import Offsets
from cdcd.sink.topics import TopicSpec


@dataclass(frozen=True)
class Placed:
    """A record, and where it lies."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(eq=False)
class Transaction:
    """One producer's transaction; `state` is open, committed or aborted."""

    state: str = "open"
    touched: dict[tuple[str, int], None] = field(default_factory=dict)
    records: list[Placed] = field(default_factory=list)
    """In the order in which they were produced."""
    expired: bool = False


@dataclass(frozen=True)
class Entry:
    """What takes an offset: a record, or the marker that ends a transaction."""

    key: bytes | None
    value: bytes | None
    transaction: Transaction | None
    is_marker: bool = False


@dataclass(frozen=True)
class Seen:
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None


def nothing(step: str) -> None:
    """Let every step succeed."""


class FakeBroker:
    """The cluster: topics, and who owns which transactional.id."""

    def __init__(self) -> None:
        self.topics: dict[str, list[list[Entry]]] = {}
        self.specs: dict[str, TopicSpec] = {}
        self.owners: dict[str, FakeProducer] = {}
        self.committed: list[Transaction] = []
        """In the order of their commits."""
        self.on_call: Callable[[str], None] = nothing
        self.on_done: Callable[[str], None] = nothing

    def create(self, spec: TopicSpec) -> None:
        self.specs[spec.name] = spec
        self.topics[spec.name] = [[] for _ in range(spec.partitions)]

    def log(self, topic: str, partition: int) -> list[Entry]:
        if topic not in self.topics or partition >= len(self.topics[topic]):
            raise Refused(f"no such topic or partition: {topic} {partition}")
        return self.topics[topic][partition]

    def visible(self, topic: str) -> list[list[Seen]]:
        """What a `read_committed` consumer sees of each partition."""
        return [list(self._committed(log)) for log in self.topics[topic]]

    @staticmethod
    def stable_end(log: list[Entry]) -> int:
        """The last stable offset: where the first open transaction starts."""
        for offset, entry in enumerate(log):
            if entry.transaction is not None and entry.transaction.state == "open":
                return offset
        return len(log)

    def end(self, transaction: Transaction, state: str) -> None:
        """Commit or abort: all partitions at once, each with a marker."""
        transaction.state = state
        if state == "committed":
            self.committed.append(transaction)
        for topic, partition in transaction.touched:
            self.log(topic, partition).append(Entry(None, None, transaction, is_marker=True))

    def open_transactions(self) -> list[Transaction]:
        """Those of the present owners; who was fenced has none."""
        found = [owner._transaction for owner in self.owners.values()]
        return [transaction for transaction in found if transaction is not None and transaction.state == "open"]

    def expire(self, transaction: Transaction) -> None:
        """`transaction.timeout.ms` is over: its producer will be told."""
        if transaction.state == "open":
            transaction.expired = True
            self.end(transaction, "aborted")

    def commit_late(self, transaction: Transaction) -> None:
        """A request to commit arrives after its producer has given up waiting."""
        if transaction.state == "open":
            self.end(transaction, "committed")

    def _committed(self, log: list[Entry]) -> Iterator[Seen]:
        for offset, entry in enumerate(log[: self.stable_end(log)]):
            aborted = entry.transaction is not None and entry.transaction.state == "aborted"
            if not entry.is_marker and not aborted:
                yield Seen(offset, entry.key, entry.value)


class FakeProducer:
    """Plays `cdcd.sink.producer.Producer`."""

    def __init__(self, broker: FakeBroker, transactional_id: str | None) -> None:
        self._broker = broker
        self._id = transactional_id
        self._transaction: Transaction | None = None
        self._offsets: dict[tuple[str, int], int] = {}

    def start(self, stopping: Callable[[], bool]) -> bool:
        if stopping():
            return False
        self._broker.on_call("start")
        if self._id is not None:
            before = self._broker.owners.get(self._id)
            self._broker.owners[self._id] = self
            if before is not None and before._transaction is not None and before._transaction.state == "open":
                self._broker.end(before._transaction, "aborted")
        self._broker.on_done("start")
        return True

    def begin(self) -> None:
        assert self._transaction is None, "a transaction is open"
        self._broker.on_call("begin")
        self._offsets = {}
        self._transaction = Transaction()
        self._broker.on_done("begin")

    def produce(self, topic: str, partition: int, messages: list[Message]) -> None:
        self._step("produce")
        assert messages, "the real one needs a last record to report"
        assert self._transaction is not None, "no transaction is open"
        log = self._broker.log(topic, partition)
        transaction = self._transaction if self._id is not None else None
        for message in messages:
            key, value = message.get("key"), message["value"]
            self._transaction.records.append(Placed(topic, partition, len(log), key, value))
            log.append(Entry(key, value, transaction))
        self._transaction.touched[topic, partition] = None
        self._offsets[topic, partition] = len(log)
        self._broker.on_done("produce")

    def flush(self) -> Offsets:
        self._step("flush")
        self._broker.on_done("flush")
        return self._offsets

    def commit(self) -> None:
        self._step("commit")
        assert self._transaction is not None, "no transaction is open"
        if self._id is not None:
            self._broker.end(self._transaction, "committed")
        self._transaction = None
        self._broker.on_done("commit")

    def abort(self) -> None:
        if self._transaction is None:
            return
        self._step("abort")
        if self._id is not None and self._transaction.state == "open":
            self._broker.end(self._transaction, "aborted")
        self._transaction = None
        self._broker.on_done("abort")

    def serve(self) -> None:
        self._broker.on_call("serve")

    def hurry(self, within_s: float) -> None:
        pass

    def close(self) -> None:
        if self._transaction is not None and self._owns():
            self.abort()

    def _owns(self) -> bool:
        return self._id is None or self._broker.owners.get(self._id) is self

    def _step(self, step: str) -> None:
        self._broker.on_call(step)
        if not self._owns():
            raise Fenced(f"another producer has taken over {self._id}")
        if self._transaction is not None and self._transaction.expired:
            raise BrokerLost("Kafka ended our transaction: it took too long")


class FakeAdmin:
    """Plays `cdcd.sink.producer.TopicAdmin`."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def ensure(self, spec: TopicSpec) -> int:
        self._broker.on_call("ensure")
        if spec.name not in self._broker.topics:
            self._broker.create(spec)
        return len(self._broker.topics[spec.name])

    def hurry(self, within_s: float) -> None:
        pass

    def close(self) -> None:
        pass

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        self._broker.on_call("end_offsets")
        return [len(self._broker.log(topic, partition)) for partition in range(partitions)]


class FakeProgressReader:
    """Plays `cdcd.sink.producer.ProgressReader`."""

    def __init__(self, broker: FakeBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic

    def last(self, keys: frozenset[bytes], stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        self._broker.on_call("read")
        found: dict[bytes, bytes] = {}
        if stopping() or self._topic not in self._broker.topics:
            return found
        for record in self._broker.visible(self._topic)[0]:
            if record.key in keys:
                assert record.key is not None
                found.pop(record.key, None)
                if record.value is not None:
                    found[record.key] = record.value
        return found
