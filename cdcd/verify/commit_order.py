"""Puts the events of a topic's partitions into the order in which they were committed. Pure.

Before: `verify` reads the partitions, in any mixture. After: `row_store` replays the events.
Source: README, "The events": within a partition, events are in the order of (commit_lsn, seq).

A row's events need not be in one partition: not when its key changes, not when a key column gets another type or the
topic more partitions, for then the same key lies elsewhere.
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
    """What was read and may have to wait, by partition."""

    def __init__(self, partitions: Iterable[int]) -> None:
        """`partitions`: those that are going to be read."""
        self._waiting: dict[int, deque[tuple[Position, Item]]] = {partition: deque() for partition in partitions}
        self._last = dict.fromkeys(self._waiting, (-1, -1))
        self._heads: list[tuple[Position, int]] = []
        """A heap: the first that waits of each partition, where one does."""
        self._missing = set(self._waiting)
        """Partitions of which none waits, though one may still come: nothing can be handed on."""
        self.left = set(self._waiting)
        """Partitions that were not read to their end yet."""
        self.waiting = 0
        """Events that wait."""

    def put(self, partition: int, position: Position, item: Item) -> None:
        """The next event of a partition. Left out: one behind its end, or sent again (delivery = at_least_once)."""
        if partition not in self.left or position <= self._last[partition]:
            return
        self._last[partition] = position
        self._waiting[partition].append((position, item))
        self.waiting += 1
        if partition in self._missing:
            self._missing.remove(partition)
            heappush(self._heads, (position, partition))

    def end(self, partition: int) -> None:
        """A partition was read to its end."""
        self.left.discard(partition)
        self._missing.discard(partition)

    def take(self) -> Iterator[tuple[int, Position, Item]]:
        """The events before which none can come any more: partition, position, event."""
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
        """The partitions not to be read on for now, where `before` are those until now: others are behind.

        Above `waiting_max` all of which some wait; they are let go as soon as none does, or half as many in all.
        """
        ahead = {partition for partition, waiting in self._waiting.items() if waiting}
        if self.waiting > waiting_max:
            return ahead
        return before & ahead if self.waiting > waiting_max // 2 else set()
