"""Reads the ends of topics: the last change that a Debezium connector has published on each partition.

Before: `handover` holds the connector's slot.
After: `seam` leaves out what is published already.
Source: Debezium 3.7, the field `source` of its events.

Each partition has a beginning of what the connector had to publish there: its producer keeps the order of a partition.
Rows without a key go to any partition. So of a topic of such rows, all changes are read that the slot may send again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cdcd.errors import RequestRejected
from cdcd.sink.interfaces import PartitionReader
from cdcd.sink.kafka.cluster import KafkaCluster

_STREAMED: Final = ("c", "u", "d", "t")
_FIRST_WINDOW: Final = 16
_GROWTH: Final = 8
_WINDOW_MAX: Final = 20_000

Row: TypeAlias = "tuple[int, int, str, str]"
"""A change without a key: xid, LSN, op, and the row before and after it as JSON."""


@dataclass(frozen=True)
class Change:
    """A change, as its event tells."""

    xid: int
    lsn: int
    op: str
    last_commit: int
    """Where the transaction before ends; 0: it is not known."""
    row: str
    """Before and after, as JSON."""

    @property
    def identity(self) -> Row:
        """The change of a table without a key."""
        return self.xid, self.lsn, self.op, self.row


@dataclass(frozen=True)
class Tail:
    """A change that is published on a partition: the last one there, or one before it."""

    change: Change
    key: bytes | None
    has_tombstone: bool
    """Its tombstone follows it."""


@dataclass
class TopicTails:
    """What the topics of the connector's tables end in."""

    ends: dict[str, list[int]]
    """By topic, the end of each partition before its last record was read."""
    tails: dict[tuple[str, int], Tail] = field(default_factory=dict)
    """By topic and partition. One without a streamed change has none."""
    keyless: dict[str, Counter[Row]] = field(default_factory=dict)
    """By topic, the changes of tables without a key that the slot may send again, with how often they are there."""
    is_copied: bool = False
    """The connector's snapshot is finished: a change follows it, or its last row is there."""

    def note(self, topic: str, partition: int, changes: Iterable[Tail], confirmed_lsn: int) -> None:
        """Note what a partition ends in: its `changes`, the last one first, as far as they are needed."""
        earlier = -1
        for tail in changes:
            change = tail.change
            self.tails.setdefault((topic, partition), tail)
            if change.last_commit < confirmed_lsn:
                # The slot may still send the first of these transactions again.
                if earlier not in (-1, change.last_commit):
                    break
                earlier = change.last_commit
            if tail.key is not None:
                break
            if change.op != "t":
                self.keyless.setdefault(topic, Counter())[change.identity] += 1

    def has_grown(self, ends: Mapping[str, Sequence[int]], written: Mapping[tuple[str, int], int]) -> str:
        """The first topic that has other records by now than before and those `written`; empty if there is none.

        `ends`: as they are now. `written`: records by topic and partition.
        """
        for topic, before in self.ends.items():
            wanted = [end + written.get((topic, partition), 0) for partition, end in enumerate(before)]
            if list(ends.get(topic, ())) != wanted:
                return topic
        return ""

    @property
    def last_commit(self) -> int:
        """The highest end of a transaction that is published as a whole, as far as the changes tell."""
        return max((tail.change.last_commit for tail in self.tails.values()), default=0)


def read_tails(
    kafka: KafkaCluster, topics: Collection[str], confirmed_lsn: int, encoding: str, meanwhile: Callable[[], None]
) -> TopicTails:
    """Read the ends of those `topics` that exist. The slot sends again what commits from `confirmed_lsn` on.

    `encoding`: sink.encoding. `meanwhile` is called between two partitions. It does not wait for open
    transactions. Raises RequestRejected for an event that is not one of the connector, and as Kafka's readers do.
    """
    there = kafka.admin.partitions(list(topics))
    found = TopicTails(kafka.admin.end_offsets(there) if there else {})
    written = [(name, at) for name, ends in sorted(found.ends.items()) for at, end in enumerate(ends) if end]
    for topic, partition in written:
        meanwhile()
        reader = kafka.range_reader(topic, partition=partition, end="last_stable")
        found.note(topic, partition, _changes(reader, found, encoding), confirmed_lsn)
    return found


def parse_change(value: bytes, topic: str, encoding: str = "") -> tuple[Change | None, str]:
    """The change that an event tells, None for a row of a snapshot, and its `source.snapshot`.

    `encoding`: the one that it must have; empty: any. Raises RequestRejected if it is no event of the connector.
    """
    try:
        document: Any = json.loads(value)
        has_schema = document.keys() == {"schema", "payload"}
        if encoding and has_schema != (encoding == "json-schema"):
            raise ValueError(f"is not in the encoding {encoding}")
        event = document["payload"] if has_schema else document
        source = event["source"]
        snapshot = str(source.get("snapshot") or "false")
        if event["op"] not in _STREAMED or snapshot not in ("false", "incremental"):
            return None, snapshot
        before, _ = json.loads(source["sequence"])
        row = json.dumps([event["before"], event["after"]], sort_keys=True)
        return Change(int(source["txId"]), int(source["lsn"]), event["op"], int(before or 0), row), snapshot
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = str(error) if str(error).startswith("is not in") else "is not one that Debezium's connector writes so"
        raise RequestRejected(
            f"an event on {topic} {why}",
            "Compare sink.encoding, sink.prefix and the connector's converters and transforms",
            code="connector-differs",
        ) from None


def _changes(reader: PartitionReader, found: TopicTails, encoding: str) -> Iterator[Tail]:
    """Yield the changes of a partition, the last one first."""
    start, end = reader.bounds() or (0, 0)
    window, tombstones = _FIRST_WINDOW, set[bytes | None]()
    with reader.consumer() as consumer:
        while start < end:
            begin = max(start, end - window)
            records = [(each.key(), each.value()) for _, each in reader.read(consumer, begin, end)]
            for key, value in reversed(records):
                if value is None:
                    tombstones.add(key)
                    continue
                change, snapshot = parse_change(value, reader.topic, encoding)
                if change is not None:
                    found.is_copied = True
                    yield Tail(change, key, key in tombstones)
                    tombstones = set()
                found.is_copied |= snapshot == "last"
            end, window = begin, min(window * _GROWTH, _WINDOW_MAX)
