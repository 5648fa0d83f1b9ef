"""Reads the committed records of a partition between two offsets, and the last records of a partition.

Before: `consumer` reads without end. After: `cdcd tail` shows the last events, or ends where the topics end now.
Source: Kafka protocol guide, Fetch (isolation level); KIP-98: markers of transactions take offsets, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

from cdcd.reading.consumer import Message, TopicReader

_BATCH_ROWS_MAX: Final = 500


class RangeReader:
    """Reads one range after the other. For one thread. Raises as `TopicReader`."""

    def __init__(self, config: Mapping[str, object]) -> None:
        """`config`: the client's properties, as `client_config` makes them."""
        self._ends: dict[int, int] = {}
        self._reader = TopicReader(config, on_end=self._ends.__setitem__)

    def between(self, topic: str, partition: int, first: int, end: int) -> Iterator[Message]:
        """The records with offsets in [first, end). `end` is at most the last stable offset."""
        self._ends.clear()
        self._reader.assign([(topic, partition, first)])
        at = first
        while at < end:
            for message in self._reader.read(_BATCH_ROWS_MAX):
                offset = int(message.offset() or 0)
                at = offset + 1
                if offset >= end:
                    return
                yield message
            at = max(at, self._ends.get(partition, 0))

    def last(
        self, place: tuple[str, int], bounds: tuple[int, int], count: int, is_wanted: Callable[[Message], bool]
    ) -> list[Message]:
        """The last `count` wanted records of a partition (topic, partition) within `bounds`, the oldest first.

        It looks at twice as many offsets each time, because not every offset has a wanted record.
        """
        first, end = bounds
        width = 2 * count
        while True:
            start = max(first, end - width)
            found = [message for message in self.between(*place, start, end) if is_wanted(message)]
            if len(found) >= count or start == first:
                return found[-count:]
            width *= 2

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
