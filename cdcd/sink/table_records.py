"""Where the newest table record of each topic lies on the progress topic, and which records to write again. Pure.

Before: `sink.kafka.topic_check` has read the table records, with their offsets.
After: `publisher` writes the records that `overdue` names into the next Kafka transaction, and `record`'s result into
the slot record.

The problem: a start compares every topic with its table record. The record of a topic that seldom changes would be far
back on a topic that keeps a week of every commit. So such a record is written again once it is `window` offsets back,
a few in each Kafka transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice, takewhile
from math import inf
from typing import Final

from cdcd.sink.kafka_transaction import Topic

_PER_TOPIC: Final = 10
"""The window is at least so many offsets for each topic: no more than a tenth of the records are written again."""
_AT_ONCE_MAX: Final = 20


class TableRecordPlaces:
    """The topics of one slot's table records. For one thread, `topics` excepted."""

    def __init__(self, placed: Iterable[tuple[Topic, int]] = (), end: int = 0, window: float = inf) -> None:
        """`placed`: each topic with the offset of its newest table record; `end`: where the progress topic ends.

        A start reads about `window` records of the progress topic.
        """
        self._places = {topic.name: (topic, offset) for topic, offset in sorted(placed, key=lambda each: each[1])}
        self._window = window
        self.end = end
        """The progress topic reaches so far, or farther, once it has what was sent: other slots write to it, too."""
        self.written = end
        """The progress topic reaches so far, or farther, now."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics, by name. For any thread."""
        return {name: topic for name, (topic, _) in self._places.copy().items()}

    def overdue(self) -> list[Topic]:
        """Return topics whose table records are to be written again."""
        before = self.end - max(self._window, _PER_TOPIC * len(self._places))
        oldest = takewhile(lambda each: each[1] < before, self._places.values())
        return [topic for topic, _ in islice(oldest, _AT_ONCE_MAX)]

    def record(self, topics: Iterable[Topic]) -> int:
        """Note that the table records of these topics are written next.

        Returns the offset at which, or after which, the newest record of every topic lies then.
        """
        for topic in topics:
            self._places.pop(topic.name, None)
            self._places[topic.name] = topic, self.end
        return next((offset for _, offset in self._places.values()), self.end)

    def sent(self, records: int) -> None:
        """Note that so many records are on their way to the progress topic."""
        self.end += records

    def reached(self, end: int) -> None:
        """Note that the progress topic reaches to `end`."""
        self.end = max(self.end, end)
        self.written = max(self.written, end)
