"""Puts the events of a topic's partitions into commit order. Pure.

Before: `topic_replay` reads the partitions, one after the other or mixed. After: `row_store` gets the events.
Source: the manual, "The events": within a partition, events are in the order of (commit_lsn, seq).

The events of one row may lie in several partitions: after its key changes, after a key column gets another type, or
after the topic gets more partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeAlias, TypeVar

Item = TypeVar("Item")
Position: TypeAlias = "tuple[int, int]"
"""commit_lsn and seq."""


class CommitOrder(Generic[Item]):
    """Holds back each event until no earlier event can come from another partition."""

    def __init__(self, partitions: Iterable[int]) -> None:
        """`partitions`: all that the caller will read."""
        self._waiting: dict[int, deque[tuple[Position, Item]]] = {partition: deque() for partition in partitions}
        self._last = dict.fromkeys(self._waiting, (-1, -1))
        self._heads: list[tuple[Position, int]] = []
        """A heap with the first waiting event of each partition."""
        self._awaited = set(self._waiting)
        """Partitions that are not at their end and have no waiting event: their next event may be the earliest."""
        self.unfinished = set(self._waiting)
        """Partitions that are not at their end."""
        self.waiting = 0
        """The number of waiting events."""

    def put(self, partition: int, position: Position, item: Item) -> None:
        """Add the next event of a partition. Ignore it if the partition has ended, or if it came already."""
        if partition not in self.unfinished or position <= self._last[partition]:
            return
        self._last[partition] = position
        self._waiting[partition].append((position, item))
        self.waiting += 1
        if partition in self._awaited:
            self._awaited.remove(partition)
            heappush(self._heads, (position, partition))

    def end(self, partition: int) -> None:
        """A partition is at its end."""
        self.unfinished.discard(partition)
        self._awaited.discard(partition)

    def take(self) -> Iterator[tuple[int, Position, Item]]:
        """The events that no other event can precede any more, in order: partition, position, event."""
        while self._heads and not self._awaited:
            position, partition = heappop(self._heads)
            waiting = self._waiting[partition]
            _, item = waiting.popleft()
            self.waiting -= 1
            if waiting:
                heappush(self._heads, (waiting[0][0], partition))
            elif partition in self.unfinished:
                self._awaited.add(partition)
            yield partition, position, item

    def to_pause(self, paused: set[int], waiting_max: int) -> set[int]:
        """The partitions to pause, so that the others catch up. `paused`: the partitions that are paused now.

        If more than `waiting_max` events wait, pause every partition with a waiting event. Resume a partition when it
        has no waiting event, or when only half of `waiting_max` events wait in all.
        """
        ahead = {partition for partition, waiting in self._waiting.items() if waiting}
        if self.waiting > waiting_max:
            return ahead
        return paused & ahead if self.waiting > waiting_max // 2 else set()
