"""Replays the events of a topic in commit order, up to an LSN.

Before: `comparison` names the topic. After: `row_store` has the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.reading.consumer import BEGINNING, TopicReader
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.commit_order import CommitOrder
from cdcd.verify.event_rows import EventReader, RowChange
from cdcd.verify.row_store import RowStore

WAITING_MAX: Final = 50_000
BATCH_ROWS_MAX: Final = 2_000


@dataclass(frozen=True)
class ReplayedTopic:
    """The result of one replay."""

    events: int = 0
    oldest_events_gone: bool = False
    """Retention has removed the first events, so rows may be missing."""
    keys: frozenset[tuple[str, ...]] = frozenset()
    """The columns of every key that events have since the last truncate event; empty columns: no key."""


class TopicReplay:
    """Replays topics, one after the other."""

    def __init__(
        self,
        config: Mapping[str, object],
        events: EventReader,
        bar: ProgressBar,
        waiting_max: int = WAITING_MAX,
        batch_rows_max: int = BATCH_ROWS_MAX,
    ) -> None:
        """`config`: properties of the Kafka client. `waiting_max`: how many events may wait for a slower partition.

        `batch_rows_max`: how many events one read may return.
        """
        self._config = config
        self._events = events
        self._bar = bar
        self._waiting_max = waiting_max
        self._batch_rows_max = batch_rows_max

    def replay(self, topic: str, before_lsn: int, columns: Sequence[str], store: RowStore) -> ReplayedTopic:
        """Apply every event that was committed before `before_lsn` to the store.

        `columns` are the table's columns, by PostgreSQL's names.
        """
        # Read to the present end, with open transactions, which end soon: all commits before the LSN are there.
        bounds = self._bounds(topic)
        ends = {partition: end for partition, (_, end) in bounds.items()}
        total = sum(end - first for first, end in bounds.values())
        order: CommitOrder[RowChange] = CommitOrder(p for p, (first, end) in bounds.items() if end > first)

        def on_end(partition: int, offset: int) -> None:
            if offset >= ends[partition]:
                order.end(partition)

        events = 0
        keys: dict[int, set[tuple[str, ...]]] = {partition: set() for partition in bounds}
        paused: set[int] = set()
        try:
            with TopicReader(self._config, on_end=on_end) as reader:
                reader.assign((topic, partition, BEGINNING) for partition in order.unfinished)
                while order.unfinished:
                    for message in reader.read(self._batch_rows_max):
                        events += 1
                        partition, value = int(message.partition() or 0), message.value()
                        if value is not None:
                            change = self._events.change(bytes(value), before_lsn, columns, has_key=store.has_key)
                            if change is not None:
                                order.put(partition, *change)
                                self._note_key(keys[partition], change[1].op, message.key())
                        if int(message.offset() or 0) + 1 >= ends[partition]:
                            order.end(partition)
                    for partition, position, row_change in order.take():
                        row_change.apply(store, partition, position)
                    before, paused = paused, order.to_pause(paused, self._waiting_max)
                    reader.pause(topic, paused - before)
                    reader.resume(topic, before - paused)
                    self._bar.show(f"{topic}: {events:,} events read, {100 * events // max(1, total)} %")
        finally:
            self._bar.clear()
        return ReplayedTopic(events, any(first for first, _ in bounds.values()), frozenset().union(*keys.values()))

    def _note_key(self, keys: set[tuple[str, ...]], op: str, key: bytes | None) -> None:
        if op == "t":
            keys.clear()
        else:
            keys.add(self._events.key_columns(key))

    def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset and the end of each partition, with open transactions; empty if there is no topic yet."""
        with TopicReader(self._config, with_uncommitted=True) as reader:
            return {partition: reader.bounds(topic, partition) for partition in reader.partitions(topic)}
