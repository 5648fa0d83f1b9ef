"""Kafka in memory: as much of it as the sink relies on, and as strict.

Before: `cdcd.sink.publisher` plays against it as against a broker.
After: a test reads what `read_committed` consumers would see; `tests/contract` holds it to what the real broker does.

It keeps what matters for exactly once: a log per partition in which aborted rows and control markers take offsets, the
last stable offset that an open transaction holds back, and one owner per transactional.id, who fences the one before.
Faults: `on_call` is called with the name of every step before it takes effect, `on_done` afterwards; either may raise.
What the broker itself may do meanwhile: end a transaction that took too long (`expire`), commit one whose producer
has not heard of it (`commit_late`), and forget a transactional.id that was idle for too long (`forget`). The
coordinator may move once it has written that a transaction commits: its heir writes the markers later (`carry_out`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka import KafkaError

from cdcd.errors import Fenced, KafkaUnavailable, RequestRejected, Unpublishable
from cdcd.progress.records import TopicState
from cdcd.sink.batches import Message
from cdcd.sink.interfaces import Offsets
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.errors import to_cdcd_error
from cdcd.sink.topics import TopicSpec
from cdcd.transaction.record_consumer import Headers


@dataclass(frozen=True)
class Placed:
    """A record, and where it lies."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(eq=False)
class Transaction:
    """One producer's transaction; `state` is open, committed or aborted."""

    producer: str | None
    """The transactional.id."""
    producer_id: int = 0
    """Of the producer; another one once Kafka has forgotten the transactional.id."""
    state: str = "open"
    touched: dict[tuple[str, int], None] = field(default_factory=dict)
    records: list[Placed] = field(default_factory=list)
    """In the order in which they were produced."""
    expired: bool = False
    undecided: set[tuple[str, int]] = field(default_factory=set)
    """Partitions where its marker never came, although its coordinator has ended it."""

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    def state_in(self, place: tuple[str, int]) -> str:
        """As one of its partitions knows it."""
        return "open" if place in self.undecided else self.state


@dataclass(frozen=True)
class Entry:
    """What takes an offset: a record, or the marker that ends a transaction."""

    key: bytes | None
    value: bytes | None
    transaction: Transaction | None
    place: tuple[str, int]
    is_marker: bool = False

    @property
    def state(self) -> str:
        return "committed" if self.transaction is None else self.transaction.state_in(self.place)

    @property
    def is_readable(self) -> bool:
        """It is a record, and was not aborted."""
        return not self.is_marker and self.state != "aborted"


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
        self.ids: dict[str, str] = {}
        """Of the topics; empty as with old brokers."""
        self.numbers = count()
        self.cluster_id = "sim"
        self.owners: dict[str, FakeProducer] = {}
        self.producer_ids: dict[str, int] = {}
        self.committed: list[Transaction] = []
        """In the order of their commits."""
        self.hanging: list[Transaction] = []
        self.loses_markers: Callable[[Transaction], set[tuple[str, int]]] = lambda _: set()
        """Where the transaction that is being ended stays undecided."""
        self.moves_coordinator: Callable[[Transaction], bool] = lambda _: False
        """Whether the coordinator moves between its decision to commit and the markers."""
        self.pending: dict[str, Transaction] = {}
        """By transactional.id: the transactions whose markers the coordinator's heir has yet to write."""
        self.may_still_commit = False
        """A transaction that was aborted, and is whole and undecided everywhere, may be committed after all."""
        self.refused = ""
        """Kafka refuses the topics whose names start so; empty: it refuses none."""
        self.keeps_leaders = True
        self.on_call: Callable[[str], None] = nothing
        self.on_done: Callable[[str], None] = nothing

    def create(self, spec: TopicSpec) -> None:
        self.specs[spec.name] = spec
        self.topics[spec.name] = [[] for _ in range(spec.partitions)]
        self.ids[spec.name] = f"id{next(self.numbers)}"

    def delete(self, topic: str) -> TopicSpec:
        """Lose a topic. Returns how to make it again."""
        del self.topics[topic], self.ids[topic]
        for transaction in self.hanging:
            transaction.undecided = {place for place in transaction.undecided if place[0] != topic}
        return self.specs.pop(topic)

    def cut(self, topic: str, partition: int, end: int) -> None:
        """Lose the records of a partition from `end` on, as a disk does that was not flushed."""
        del self.log(topic, partition)[end:]

    def log(self, topic: str, partition: int) -> list[Entry]:
        if topic not in self.topics:
            raise KafkaUnavailable(f"no such topic: {topic}", code="kafka-unavailable")
        if partition >= len(self.topics[topic]):
            raise RequestRejected(f"no such partition: {topic} {partition}", code="statement-refused")
        return self.topics[topic][partition]

    def visible(self, topic: str) -> list[list[Seen]]:
        """What a `read_committed` consumer sees of each partition."""
        return [list(self._committed(log)) for log in self.topics[topic]]

    @staticmethod
    def stable_end(log: list[Entry]) -> int:
        """The last stable offset: where the first open transaction starts."""
        for offset, entry in enumerate(log):
            if not entry.is_marker and entry.state == "open":
                return offset
        return len(log)

    def end(self, transaction: Transaction, state: str) -> None:
        """Commit or abort: a marker in each partition, but in those that lose it."""
        self.decide(transaction, state)
        self.write_markers(transaction, transaction.undecided - self.loses_markers(transaction))

    def decide(self, transaction: Transaction, state: str) -> None:
        """Write into the coordinator's log how a transaction ends: whoever is the coordinator next carries it out."""
        transaction.state = state
        if state == "committed":
            self.committed.append(transaction)
        transaction.undecided = set(transaction.touched)

    def write_markers(self, transaction: Transaction, places: Collection[tuple[str, int]]) -> None:
        """Write its markers into these partitions: they decide what hangs there of the same producer, too."""
        self.hanging = [each for each in self.hanging if each is not transaction]
        for place in [each for each in transaction.touched if each in places]:
            transaction.undecided.discard(place)
            if place[0] not in self.topics:
                continue
            self.log(*place).append(Entry(None, None, transaction, place, is_marker=True))
            for other in self.hanging:
                if place in other.undecided and other.producer_id == transaction.producer_id:
                    if self._commits_after_all(other, transaction, places):
                        self.committed.append(other)
                        other.state = transaction.state
                    other.undecided.discard(place)
                    # Its coordinator has decided otherwise, and half of it may be seen by now.
                    assert other.state == transaction.state, (
                        f"a marker in {place} decides what was {other.state}: {transaction.state}"
                    )
        self.hanging = [each for each in [*self.hanging, transaction] if each.undecided]

    def _commits_after_all(
        self, other: Transaction, transaction: Transaction, places: Collection[tuple[str, int]]
    ) -> bool:
        is_whole = other.undecided == set(other.touched) <= set(places)
        return self.may_still_commit and (other.state, transaction.state) == ("aborted", "committed") and is_whole

    def carry_out(self, transactional_id: str) -> None:
        """The coordinator's heir has read what was decided, and writes the markers; some may be lost."""
        transaction = self.pending.pop(transactional_id, None)
        if transaction is not None:
            self.write_markers(transaction, transaction.undecided - self.loses_markers(transaction))

    def open_transactions(self) -> list[Transaction]:
        """Those of the present owners; who was fenced has none."""
        found = [owner._transaction for owner in self.owners.values()]
        return [transaction for transaction in found if transaction is not None and transaction.is_open]

    def expire(self, transaction: Transaction) -> None:
        """`transaction.timeout.ms` is over: its producer will be told."""
        if transaction.is_open:
            transaction.expired = True
            self.end(transaction, "aborted")

    def commit_late(self, transaction: Transaction) -> None:
        """A request to commit arrives after its producer has given up waiting."""
        if transaction.is_open:
            self.end(transaction, "committed")

    def forget(self, transactional_id: str) -> None:
        """`transactional.id.expiration.ms` is over: its producer will be told; the next one to start is a new owner.

        Its producer id is a new one, too, so its markers decide nothing that the one before has left undecided.
        """
        self.owners.pop(transactional_id).is_forgotten = True
        del self.producer_ids[transactional_id]

    def _committed(self, log: list[Entry]) -> Iterator[Seen]:
        for offset, entry in enumerate(log[: self.stable_end(log)]):
            if entry.is_readable:
                yield Seen(offset, entry.key, entry.value)


class FakeProducer:
    """Plays `cdcd.sink.interfaces.Producer`."""

    def __init__(self, broker: FakeBroker, transactional_id: str | None) -> None:
        self._broker = broker
        self._id = transactional_id
        self._producer_id = 0
        self._transaction: Transaction | None = None
        self._offsets: dict[tuple[str, int], int] = {}
        self.is_forgotten = False

    @property
    def is_transactional(self) -> bool:
        return self._id is not None

    def start(self, stopping: Callable[[], bool]) -> bool:
        if stopping():
            return False
        self._broker.on_call("start")
        if self._id is not None:
            before = self._broker.owners.get(self._id)
            self._broker.owners[self._id] = self
            self._producer_id = self._broker.producer_ids.setdefault(self._id, next(self._broker.numbers))
            self._broker.carry_out(self._id)
            if before is not None and before._transaction is not None and before._transaction.is_open:
                self._broker.end(before._transaction, "aborted")
        self._broker.on_done("start")
        return True

    def begin(self) -> None:
        assert self._transaction is None, "a transaction is open"
        self._broker.on_call("begin")
        if self._id is not None and self._id in self._broker.pending:  # it must end before the next one begins
            pending = self._broker.pending.pop(self._id)
            self._broker.write_markers(pending, set(pending.undecided))
        self._offsets = {}
        self._transaction = Transaction(self._id, self._producer_id)
        self._broker.on_done("begin")

    def begin_next(self) -> None:
        self._broker.on_call("begin_next")

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        self._step("produce")
        assert has_headers or not any("headers" in message for message in messages), "the real one drops them"
        assert messages, "the real one needs a last record to report"
        assert self._transaction is not None, "no transaction is open"
        log = self._broker.log(topic, partition)
        transaction = self._transaction if self._id is not None else None
        for message in messages:
            key, value = message.get("key"), message["value"]
            headers = message.get("headers", [])
            self._transaction.records.append(Placed(topic, partition, len(log), key, value, headers))
            log.append(Entry(key, value, transaction, (topic, partition)))
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
        if self._id is not None and self._broker.moves_coordinator(self._transaction):
            self._broker.decide(self._transaction, "committed")
            self._broker.write_markers(self._transaction, ())
            self._broker.pending[self._id] = self._transaction
            self._broker.on_call("coordinator")
        elif self._id is not None:
            self._broker.end(self._transaction, "committed")
        self._transaction = None
        self._broker.on_done("commit")

    def abort(self) -> None:
        if self._transaction is None:
            return
        self._step("abort")
        if self._id is not None and self._transaction.is_open:
            self._broker.end(self._transaction, "aborted")
        self._transaction = None
        self._broker.on_done("abort")

    def poll(self) -> None:
        self._broker.on_call("poll")

    def shorten_deadlines(self, within_s: float) -> None:
        pass

    def close(self) -> None:
        if self._transaction is not None and self._owns():
            self.abort()

    def _owns(self) -> bool:
        return self._id is None or self._broker.owners.get(self._id) is self

    def _step(self, step: str) -> None:
        self._broker.on_call(step)
        if self.is_forgotten:
            raise to_cdcd_error(KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING), f"{step} of {self._id}", "fake")
        if not self._owns():
            raise Fenced(f"another producer has taken over {self._id}", code="daemon-fenced")
        if self._transaction is not None and self._transaction.expired:
            raise KafkaUnavailable("Kafka ended our transaction: it took too long", code="kafka-unavailable")


class FakeAdmin:
    """Plays `cdcd.sink.interfaces.TopicAdmin`."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def ensure(self, *specs: TopicSpec) -> list[int]:
        for spec in specs:  # a fault may leave some of them made
            self._broker.on_call("ensure")
            if spec.name not in self._broker.topics:
                self._refuse_collision(spec.name)
                self._broker.create(spec)
        return [len(self._broker.topics[spec.name]) for spec in specs]

    def _refuse_collision(self, name: str) -> None:
        """Kafka's metrics take "." and "_" for one character, so it takes no two names that differ in these alone."""
        if self._broker.refused and name.startswith(self._broker.refused):
            raise Unpublishable(f"Kafka refused creating the topic {name}", "", topic=name, code="row-too-large")
        for other in self._broker.topics:
            if other.replace(".", "_") == name.replace(".", "_"):
                raise Unpublishable(
                    f"Kafka refused creating the topic {name}: it collides with {other}",
                    "",
                    topic=name,
                    code="row-too-large",
                )

    def shorten_deadlines(self, within_s: float) -> None:
        pass

    def close(self) -> None:
        pass

    def partitions_of_all(self, wanted: Callable[[str], bool]) -> dict[str, int]:
        self._broker.on_call("list")
        return {topic: len(logs) for topic, logs in self._broker.topics.items() if wanted(topic)}

    def unstable(self, looked_at: Callable[[str], bool]) -> dict[tuple[str, int], int]:
        self._broker.on_call("unstable")
        found = {}
        for topic, logs in self._broker.topics.items():
            for partition, log in enumerate(logs):
                if looked_at(topic) and self._broker.stable_end(log) < len(log):
                    found[topic, partition] = self._broker.stable_end(log)
        return found

    def keeps_leader(self, topic: str) -> bool:
        return topic in self._broker.topics and self._broker.keeps_leaders

    def transaction_timeout_max_ms(self) -> int:
        return 900_000

    def cluster_id(self) -> str:
        return self._broker.cluster_id

    def states(self, topics: Collection[str]) -> dict[str, TopicState]:
        self._broker.on_call("states")
        return {
            topic: TopicState(self._broker.ids[topic], tuple(len(log) for log in self._broker.topics[topic]))
            for topic in topics
            if topic in self._broker.topics
        }

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        return {topic: len(self._broker.topics[topic]) for topic in topics if topic in self._broker.topics}

    def topic_configs(self, topics: Collection[str]) -> dict[str, Mapping[str, str]]:
        self._broker.on_call("configs")
        return {topic: self._broker.specs[topic].config for topic in topics if topic in self._broker.specs}

    def end_offsets(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        self._broker.on_call("end_offsets")
        return {
            topic: [len(self._broker.log(topic, partition)) for partition in range(count)]
            for topic, count in partitions.items()
        }


class FakeReading:
    """Plays `cdcd.sink.kafka.range_reader.RangeReader`."""

    def __init__(
        self,
        broker: FakeBroker,
        topic: str,
        partition: int = 0,
        isolation: str = "read_committed",
        end: str = "log_end",
        assume_exists: bool = False,
    ) -> None:
        assert topic in broker.topics or not assume_exists
        self.topic = topic
        self._broker = broker
        self._partition = partition
        self._uncommitted = isolation == "read_uncommitted"
        self._stable = end == "last_stable"

    def bounds(self) -> tuple[int, int] | None:
        self._broker.on_call("read")
        if self.topic not in self._broker.topics:
            return None
        log = self._broker.log(self.topic, self._partition)
        return 0, self._broker.stable_end(log) if self._stable else len(log)

    @contextmanager
    def consumer(self) -> Iterator[None]:
        yield None

    def read(
        self, consumer: Any, start: int, stop: int, stopping: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, Read]]:
        if start >= stop:
            return
        log = self._broker.log(self.topic, self._partition)
        entries = enumerate(log[start:stop], start)
        if self._uncommitted:
            seen = [Seen(at, each.key, each.value) for at, each in entries if not each.is_marker]
        else:
            end = self._broker.stable_end(log)
            seen = [Seen(at, each.key, each.value) for at, each in entries if at < end and each.is_readable]
        for record in seen:
            if not stopping():
                yield record.offset, Read(record)
        if not self._uncommitted and self._broker.stable_end(log) < stop and not stopping():
            raise KafkaUnavailable(
                f"some producer has left a transaction open in {self.topic}", code="kafka-unavailable"
            )


class FakeKafkaCluster(KafkaCluster):
    """Plays `cdcd.sink.kafka.cluster.KafkaCluster` over a broker in memory."""

    def __init__(self, broker: FakeBroker) -> None:
        # Without the real one, which starts threads.
        self._existing, self._connection = frozenset(), KafkaConnection("fake", "fake")
        self.admin: Any = FakeAdmin(broker)
        self.broker = broker

    def transactional_producer(self, transactional_id: str, timeout_ms: int, known_topic: str) -> FakeProducer:
        return FakeProducer(self.broker, transactional_id)

    def idempotent_producer(self, timeout_ms: int) -> FakeProducer:
        return FakeProducer(self.broker, None)

    def range_reader(
        self, topic: str, *, partition: int = 0, isolation: str = "read_committed", end: str = "log_end"
    ) -> Any:
        return FakeReading(self.broker, topic, partition, isolation, end, assume_exists=topic in self._existing)


class Read:
    """As much of confluent_kafka's Message as is asked for."""

    def __init__(self, record: Seen) -> None:
        self._record = record

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value
