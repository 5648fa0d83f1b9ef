"""Reads a table's parked events back in their order, one chunk at a time.

Before: a person has asked to unpark the table, or the snapshot of a deferred table is finished.
After: `publisher` puts each chunk into a Kafka transaction of its own.
"""

from __future__ import annotations

from typing import Final

from cdcd.errors import GapError
from cdcd.sink.batches import DELETE, TOMBSTONE
from cdcd.sink.interfaces import PartitionReader
from cdcd.sink.parking.wire_format import ParkedChunk, ParkedEvent, PartAssembler

SCANNED_MAX: Final = 100_000
CHUNK_EVENTS_MAX: Final = 5_000
CHUNK_BYTES_MAX: Final = 4 << 20
"""One Kafka transaction of a replay holds about this much. The stream waits meanwhile."""


class KafkaParkedReader:
    """Plays `interfaces.ParkedReader`. For one thread."""

    def __init__(
        self, reader: PartitionReader, events_max: int = CHUNK_EVENTS_MAX, scanned_max: int = SCANNED_MAX
    ) -> None:
        """`reader` reads the parked topic. A chunk holds at most `events_max` events. Asks nothing yet."""
        self._reader = reader
        self._events_max = events_max
        self.scanned_max = scanned_max

    def read(self, key: bytes, offset: int) -> ParkedChunk:
        """Return the next events under `key` from `offset` on. A delete and its tombstone are in one chunk.

        Raises GapError if records from there on were removed, KafkaUnavailable if nothing came for long.
        """
        topic = self._reader.topic
        bounds = self._reader.bounds()
        if bounds is None:
            raise GapError(
                f"the parked topic {topic} was removed, with the events that are to be replayed",
                "",
                code="parked-events-gone",
            )
        start, stop = bounds
        if start > offset or stop < offset:
            raise GapError(
                f"the parked topic {topic} has offsets from {start} to {stop}, but events from {offset} on are to be "
                "replayed: they were removed",
                "Give the topic retention.ms=-1",
                code="parked-events-gone",
            )
        if offset == stop:
            return ParkedChunk([], stop, is_last=True)
        assembler, events, size = PartAssembler(), list[ParkedEvent](), 0
        full = 0  # where the chunk ends, unless its last event, a delete, has a tombstone
        with self._reader.consumer() as consumer:
            for at, message in self._reader.read(consumer, offset, stop):
                value = message.value()
                if message.key() != key or value is None:
                    if at - offset >= self.scanned_max and assembler.is_between_events:
                        return ParkedChunk(events, at + 1, is_last=at + 1 >= stop)
                    continue
                event = assembler.add(at, value)
                size += len(value)
                if event is None:
                    continue
                if full and event.op != TOMBSTONE:
                    return ParkedChunk(events, full, is_last=False)
                events.append(event)
                if len(events) >= self._events_max or size >= CHUNK_BYTES_MAX:
                    if full or event.op != DELETE:
                        return ParkedChunk(events, at + 1, is_last=at + 1 >= stop)
                    full = at + 1
        if not assembler.is_between_events:
            raise GapError(
                f"the parked topic {topic} ends in the middle of an event",
                "Keep other producers off it",
                code="parked-events-gone",
            )
        return ParkedChunk(events, stop, is_last=True)
