"""Puts the events of a topic's partitions into the order in which they were committed. Pure.

Before: `topic_replay` reads the partitions, in any mixture. After: `row_store` gets the events.
Source: README, "The events": within a partition, events are in the order of (commit_lsn, seq).

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
    """Events that were read and may have to wait, by partition."""

    def __init__(self, partitions: Iterable[int]) -> None:
        """`partitions` are the ones that the caller is going to read."""
        self._waiting: dict[int, deque[tuple[Position, Item]]] = {partition: deque() for partition in partitions}
        self._last = dict.fromkeys(self._waiting, (-1, -1))
        self._heads: list[tuple[Position, int]] = []
        """A heap of the first waiting event of each partition that has one."""
        self._missing = set(self._waiting)
        """Partitions without a waiting event that are not at their end: until they have one, no event can go on."""
        self.left = set(self._waiting)
        """Partitions that are not at their end."""
        self.waiting = 0
        """The number of waiting events."""

    def put(self, partition: int, position: Position, item: Item) -> None:
        """Add the next event of a partition. Left out: one after the end, and one that came before (at_least_once)."""
        if partition not in self.left or position <= self._last[partition]:
            return
        self._last[partition] = position
        self._waiting[partition].append((position, item))
        self.waiting += 1
        if partition in self._missing:
            self._missing.remove(partition)
            heappush(self._heads, (position, partition))

    def end(self, partition: int) -> None:
        """Note that a partition is at its end."""
        self.left.discard(partition)
        self._missing.discard(partition)

    def take(self) -> Iterator[tuple[int, Position, Item]]:
        """The events that no other event can precede any more: partition, position, event."""
        while self._heads and not self._missing:
            position, partition = heappop(self._heads)
            waiting = self._waiting[partition]
            _, item = waiting.popleft()
            self.waiting -= 1
            if waiting:
                heappush(self._heads, (waiting[0][0], partition))
            elif partition in self.left:
                self._missing.add(partition)
            yield partition, position, item

    def held(self, before: set[int], waiting_max: int) -> set[int]:
        """The partitions to pause, because others are behind. `before` are the ones that are paused now.

        If more than `waiting_max` events wait, every partition that has some is paused. It resumes when none of its
        events wait, or when half of `waiting_max` wait in all.
        """
        ahead = {partition for partition, waiting in self._waiting.items() if waiting}
        if self.waiting > waiting_max:
            return ahead
        return before & ahead if self.waiting > waiting_max // 2 else set()
