"""Reads the progress back: at start the daemon trusts nothing else.

Before: the producer has started, so that no earlier transaction of this slot is open.
After: the pipeline goes on from the slot record; the publisher continues from the snapshot records.

The problem: a week of progress is kept uncompacted, hundreds of millions of records on a busy server. Only the newest
records of a few keys are wanted. So the reader reads windows from the end, each larger than the one before, until it
has found all keys.

Trap: without transactions no producer is fenced. A zombie's last records may come after those of the daemon that
replaced it. Then the highest value counts, not the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from cdcd.sink.interfaces import PartitionReader

_WINDOW: Final = 1_000
"""Offsets in the first window from the end: several seconds of a busy daemon, one fetch."""
_WINDOW_UNFENCED: Final = 20_000
"""The first window if a zombie may have written last: more records than its queues can have held."""
_GROWTH: Final = 4


class KafkaProgressReader:
    """Plays `interfaces.ProgressReader`. For one thread; each call makes a consumer of its own."""

    def __init__(self, reader: PartitionReader, rank: Callable[[bytes, bytes], int] | None = None) -> None:
        """`reader` reads the topic. `rank` gives the height of a key's value; None: the last value counts."""
        self._reader = reader
        self._rank = rank

    def last(
        self, keys: frozenset[bytes], stopping: Callable[[], bool], bounds: tuple[int, int] | None = None
    ) -> dict[bytes, bytes]:
        """Return the last committed value of each key; a key that was never written, or was deleted, is missing.

        `bounds`: between which offsets to read, as the topic's reader says; None: it is asked now. If `stopping` turns
        true, the result is incomplete. Raises KafkaUnavailable if no record came for the reader's timeout.
        """
        found: dict[bytes, bytes | None] = {}
        start, stop = bounds or self._reader.bounds() or (0, 0)
        size = _WINDOW if self._rank is None else _WINDOW_UNFENCED
        with self._reader.consumer() as consumer:
            while stop > start and keys - found.keys() and not stopping():
                low = max(start, stop - size)
                found = self._window(consumer, low, stop, keys, stopping) | found
                stop = low
                size *= _GROWTH
        return {key: value for key, value in found.items() if value is not None}

    def every(self, stopping: Callable[[], bool]) -> dict[bytes, bytes]:
        """Return the last committed value of every key, of a small topic. Otherwise like `last`."""
        start, stop = self._reader.bounds() or (0, 0)
        with self._reader.consumer() as consumer:
            found = self._window(consumer, start, stop, None, stopping)
        return {key: value for key, value in found.items() if value is not None}

    def records(self, start: int, stop: int, stopping: Callable[[], bool]) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield offset, key and value of each committed record in [start, stop); tombstones are left out."""
        with self._reader.consumer() as consumer:
            for at, message in self._reader.read(consumer, start, stop, stopping):
                key, value = message.key(), message.value()
                if key is not None and value is not None:
                    yield at, key, value

    def _window(
        self, consumer: Any, low: int, stop: int, keys: frozenset[bytes] | None, stopping: Callable[[], bool]
    ) -> dict[bytes, bytes | None]:
        """Return the last value in [low, stop) of each of `keys` (None: of every key); a None value is a tombstone."""
        found: dict[bytes, bytes | None] = {}
        for _, message in self._reader.read(consumer, low, stop, stopping):
            key = message.key()
            if keys is None or key in keys:
                assert key is not None
                self._note(found, key, message.value())
        return found

    def _note(self, found: dict[bytes, bytes | None], key: bytes, value: bytes | None) -> None:
        known = found.get(key)
        if self._rank is None or value is None or known is None or self._rank(key, value) >= self._rank(key, known):
            found[key] = value
