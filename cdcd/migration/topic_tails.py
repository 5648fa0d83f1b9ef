"""Reads the ends of topics: the last change that a Debezium connector has published on each partition.

Before: `handover` holds the connector's slot.
After: `seam` leaves out what is published already.
Source: Debezium 3.7, the field `source` of its events.

Each partition has a beginning of what the connector had to publish there: its producer keeps the order of a partition.
Rows without a key go to any partition, and so do truncates. So of a topic that has such events, all changes are read
that the slot may send again. So they are, too, if a partition was never written to: it may have been added since. And
so they are of a topic that several tables share, because some of these may have a key, and others none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from cdcd.migration.published_change import Change, ChangeReader, Row
from cdcd.sink.interfaces import PartitionReader
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.partitioner import partition_for

Keyed: TypeAlias = "tuple[int, int, str, bytes | None]"
"""A change: xid, LSN, op and key. The rows of one COPY have one LSN, so those that share a key are the same here."""

_FIRST_WINDOW: Final = 16
_GROWTH: Final = 8
_WINDOW_MAX: Final = 20_000


@dataclass(frozen=True)
class Tail:
    """A change that is published on a partition: the last one there, or one before it."""

    change: Change
    key: bytes | None
    has_tombstone: bool
    """Its tombstone follows it."""
    times: int = 1
    """How many rows of one COPY are there that share its key, this one included. A row that is there twice, because the
    connector has doubled it, counts once."""

    @property
    def identity(self) -> Keyed:
        """What tells it from others."""
        return identity(self.change, self.key)


def identity(change: Change, key: bytes | None) -> Keyed:
    """What tells a change with this key from others."""
    return change.xid, change.lsn, change.op, key


@dataclass
class TopicTails:
    """What the topics of the connector's tables end in."""

    ends: dict[str, list[int]]
    """By topic, the end of each partition before its last record was read."""
    tails: dict[tuple[str, int], Tail] = field(default_factory=dict)
    """By topic and partition: the last change there that has a key, or is a truncate. A partition may have none."""
    keyless: dict[str, Counter[Row]] = field(default_factory=dict)
    """By topic, the changes of tables without a key that the slot may send again, with how often they are there."""
    rows: dict[tuple[str, Row], Change] = field(default_factory=dict)
    """The same changes, by topic and identity."""
    has_truncates: bool = False
    """The connector publishes truncates."""
    shared: Collection[str] = ()
    """The topics that several tables share."""
    truncates: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """By topic, xid and LSN of the truncates that the slot may send again."""
    misplaced: dict[str, set[Keyed]] = field(default_factory=dict)
    """By topic, changes with a key that would go to another partition now."""
    is_copied: bool = False
    """The connector's snapshot is finished: a change follows it, or its last row is there."""

    def note(self, topic: str, partition: int, changes: Iterable[Tail], confirmed_lsn: int) -> None:
        """Note what a partition ends in: its `changes`, the last one first, as far as they are needed."""
        ends, place, earlier = self.ends[topic], (topic, partition), -1
        needs_all = self.has_truncates or 0 in ends or topic in self.shared
        rows: set[str] = set()
        for tail in changes:
            change = tail.change
            if change.last_commit < confirmed_lsn:
                # The slot may still send the first of these transactions again.
                if earlier not in (-1, change.last_commit):
                    break
                earlier = change.last_commit
            if tail.key is None and change.op != "t":
                self.keyless.setdefault(topic, Counter())[change.identity] += 1
                self.rows[topic, change.identity] = change
                continue
            last = self.tails.setdefault(place, tail)
            if tail.identity == last.identity:
                rows.add(change.row)
                self.tails[place] = replace(last, times=len(rows))
            if tail.key is None:
                self.truncates.setdefault(topic, set()).add((change.xid, change.lsn))
                continue
            if not needs_all and (change.xid, change.lsn) != (last.change.xid, last.change.lsn):
                break
            if partition_for(tail.key, len(ends)) != partition:
                self.misplaced.setdefault(topic, set()).add(tail.identity)

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
        changes = [*(tail.change for tail in self.tails.values()), *self.rows.values()]
        return max((change.last_commit for change in changes), default=0)


def read_tails(
    kafka: KafkaCluster,
    topics: Collection[str],
    confirmed_lsn: int,
    changes: ChangeReader,
    meanwhile: Callable[[], None],
    *,
    has_truncates: bool,
    shared: Collection[str] = (),
) -> TopicTails:
    """Read the ends of those `topics` that exist. The slot sends again what commits from `confirmed_lsn` on.

    `meanwhile` is called between two reads. It waits for open transactions, which hide what was written behind their
    first record. `has_truncates` and `shared`: as the attributes. Raises as ChangeReader and as Kafka's readers do.
    """
    there = kafka.admin.partitions(list(topics))
    found = TopicTails(kafka.admin.end_offsets(there) if there else {}, has_truncates=has_truncates, shared=shared)
    written = [(name, at) for name, ends in sorted(found.ends.items()) for at, end in enumerate(ends) if end]
    for topic, partition in written:
        reader = kafka.range_reader(topic, partition=partition)
        found.note(topic, partition, _changes(reader, found, changes, meanwhile), confirmed_lsn)
    return found


def _changes(
    reader: PartitionReader, found: TopicTails, changes: ChangeReader, meanwhile: Callable[[], None]
) -> Iterator[Tail]:
    """Yield the changes of a partition, the last one first."""
    start, end = reader.bounds() or (0, 0)
    window, tombstones = _FIRST_WINDOW, set[bytes | None]()
    with reader.consumer() as consumer:
        while start < end:
            meanwhile()
            begin = max(start, end - window)
            records = [(each.key(), each.value()) for _, each in reader.read(consumer, begin, end)]
            for key, value in reversed(records):
                if value is None:
                    tombstones.add(key)
                    continue
                change, snapshot = changes.read(value, reader.topic)
                if change is not None:
                    found.is_copied = True
                    yield Tail(change, key, key in tombstones)
                    tombstones = set()
                found.is_copied |= snapshot == "last"
            end, window = begin, min(window * _GROWTH, _WINDOW_MAX)
