"""Reads back from the progress topic what is durable: the one thing that is trusted at start.

Before: the producer has started, so that no earlier transaction of ours is open.
After: the pipeline goes on from the slot record it finds; `publisher` takes over what the table records say.

The problem: a week of progress is kept uncompacted, hundreds of millions of records on a busy server, of which the
newest of a few keys are wanted. So windows are read from the end, each larger than the one before, until all keys are
found.

Trap: without transactions nobody is fenced, and a zombie's last records may come after those of its heir. Then not the
last value counts, but the highest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer

from cdcd.sink.kafka.range_reader import RangeReader

_WINDOW: Final = 1_000
"""Offsets in the first window from the end: several seconds of a busy daemon, one fetch."""
_WINDOW_UNFENCED: Final = 20_000
"""As large where a zombie may have written last: more than it can still have had in its queues."""
_GROWTH: Final = 4


class KafkaProgressReader:
    """Plays `producer.ProgressReader`. For one thread; each call to `last` makes a consumer of its own."""

    def __init__(self, reading: RangeReader, rank: Callable[[bytes, bytes], int] | None = None) -> None:
        """`reading`: of the progress topic. `rank` says how high a value (of a key) stands, where the highest counts
        and not the last.
        """
        self._reading = reading
        self._rank = rank

    def last(self, keys: frozenset[bytes], stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        """The last committed value of each key; one that was never written, or was deleted, is missing.

        Returns what it has so far if `stopping` said so. Raises KafkaUnavailable if nothing came for `timeout_s`.
        """
        found: dict[bytes, bytes | None] = {}
        start, stop = self._reading.bounds() or (0, 0)
        size = _WINDOW if self._rank is None else _WINDOW_UNFENCED
        with self._reading.consumer() as consumer:
            while stop > start and keys - found.keys() and not stopping():
                low = max(start, stop - size)
                found = self._window(consumer, low, stop, keys, stopping) | found
                stop = low
                size *= _GROWTH
        return {key: value for key, value in found.items() if value is not None}

    def every(self, stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        """The last committed value of every key: for a topic that is small. Else as `last`."""
        start, stop = self._reading.bounds() or (0, 0)
        with self._reading.consumer() as consumer:
            found = self._window(consumer, start, stop, None, stopping)
        return {key: value for key, value in found.items() if value is not None}

    def _window(
        self, consumer: Consumer, low: int, stop: int, keys: frozenset[bytes] | None, stopping: Callable[[], bool]
    ) -> dict[bytes, bytes | None]:
        """The last value in [low, stop) of each of the keys (None: of every key); None stands for a tombstone."""
        found: dict[bytes, bytes | None] = {}
        for _, message in self._reading.read(consumer, low, stop, stopping):
            key = message.key()
            if keys is None or key in keys:
                assert key is not None
                self._note(found, key, message.value())
        return found

    def _note(self, found: dict[bytes, bytes | None], key: bytes, value: bytes | None) -> None:
        known = found.get(key)
        if self._rank is None or value is None or known is None or self._rank(key, value) >= self._rank(key, known):
            found[key] = value
