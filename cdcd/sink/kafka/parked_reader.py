"""Reads a table's parked events back, piece by piece, in their order.

Before: a person has asked to unpark the table. After: `publisher` puts each piece into a Kafka transaction of its own.
"""

from __future__ import annotations

from typing import Final

from cdcd.errors import GapError
from cdcd.sink.kafka.range_reader import RangeReader
from cdcd.sink.parking.wire_format import SCANNED_MAX, ParkedEvent, ParkedPiece, PartAssembler

PIECE_EVENTS: Final = 5_000
PIECE_BYTES: Final = 4 << 20
"""What one Kafka transaction of a replay holds, about: so long the stream waits."""


class KafkaParkedReader:
    """Plays `producer.ParkedReader`. For one thread."""

    def __init__(self, reading: RangeReader, events_max: int = PIECE_EVENTS, scanned_max: int = SCANNED_MAX) -> None:
        """`reading`: of the parked topic. Asks nothing yet.

        A piece holds at most `events_max` events, and ends when `scanned_max` offsets were read.
        """
        self._reading = reading
        self._events_max = events_max
        self.scanned_max = scanned_max

    def read(self, key: bytes, offset: int) -> ParkedPiece:
        """The next events under `key` from `offset` on.

        Raises GapError if records from there on were removed, KafkaUnavailable if nothing came for long.
        """
        topic = self._reading.topic
        bounds = self._reading.bounds()
        if bounds is None:
            raise GapError(f"the parked topic {topic} was removed, with the events that are to be replayed", "")
        start, stop = bounds
        if start > offset or stop < offset:
            raise GapError(
                f"the parked topic {topic} has offsets from {start} to {stop}, but events from {offset} on are to be "
                "replayed: they were removed",
                "Give the topic retention.ms=-1",
            )
        if offset == stop:
            return ParkedPiece([], stop, True)
        assembly, events, size = PartAssembler(), list[ParkedEvent](), 0
        with self._reading.consumer() as consumer:
            for at, message in self._reading.read(consumer, offset, stop):
                value = message.value()
                if message.key() != key or value is None:
                    if at - offset >= self.scanned_max and assembly.whole:
                        return ParkedPiece(events, at + 1, at + 1 >= stop)
                    continue
                event = assembly.add(at, value)
                size += len(value)
                if event is not None:
                    events.append(event)
                    if len(events) >= self._events_max or size >= PIECE_BYTES:
                        return ParkedPiece(events, at + 1, at + 1 >= stop)
        if not assembly.whole:
            raise GapError(
                f"the parked topic {topic} ends in the middle of an event",
                "Keep other producers off it",
            )
        return ParkedPiece(events, stop, True)
