"""Replays the events of a topic in commit order, up to an LSN.

Before: `comparison` names the topic. After: `row_store` has the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.progress.records import kafka_topic
from cdcd.reading.consumer import BEGINNING, TopicReader
from cdcd.reading.decoder import is_key_of_row
from cdcd.reading.json_translator import JsonTranslator
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.commit_order import CommitOrder
from cdcd.verify.event_rows import EventReader, RowChange
from cdcd.verify.row_store import RowStore

WAITING_MAX: Final = 50_000
BATCH_ROWS_MAX: Final = 2_000
OFFSETS_MAX: Final = 1_000
"""More events are not looked up one by one: the topic is read whole instead."""

_NEAR_OFFSETS: Final = 2_000
"""The next event is read on from the one before, if it is not farther away."""
_FETCHED_AHEAD: Final = {"fetch.message.max.bytes": 65_536}
"""To look up an event, librdkafka has to fetch the batch that has it. Its own megabyte takes 20 times as long."""


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

    def replay(
        self,
        topic: str,
        before_lsn: int,
        columns: Sequence[str],
        store: RowStore,
        only: Callable[[bytes], bool] | None = None,
        translator: JsonTranslator | None = None,
        of_table: str = "",
    ) -> ReplayedTopic:
        """Apply every event that was committed before `before_lsn` to the store.

        `of_table`: only events of the table with this Avro namespace count, because others share the topic.

        `columns` are the table's columns, by PostgreSQL's names. `only` says whether the events with a
        key count; None: all do. `translator`: of a topic with JSON.
        """
        topic = kafka_topic(topic)
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
                        partition, value, key = int(message.partition() or 0), message.value(), message.key()
                        is_left_out = False
                        if value is not None and key is not None and is_key_of_row(bytes(key)):
                            key = bytes(key) if translator is None else translator.key(bytes(key))
                            is_left_out = only is not None and not only(key)
                        if value is not None and not is_left_out:
                            event = bytes(value) if translator is None else translator.event(bytes(value))
                            is_of_table = not of_table or self._events.is_of(event, of_table)
                            change = self._events.change(event, before_lsn, columns, store.key) if is_of_table else None
                            if change is not None:
                                order.put(partition, *change)
                                self._note_key(keys[partition], change[1].op, key)
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

    def replay_at(
        self,
        topic: str,
        before_lsn: int,
        columns: Sequence[str],
        store: RowStore,
        offsets: Mapping[int, list[int]],
        translator: JsonTranslator | None = None,
    ) -> bool:
        """Apply the events at these offsets (by partition, ascending) to the store, and no others.

        They are all events of some keys since the last truncate event. Else as `replay`. Returns False, and applies
        none, if one is not there any more: retention or compaction has removed it meanwhile.
        """
        topic = kafka_topic(topic)
        order: CommitOrder[RowChange] = CommitOrder(offsets)
        ends: dict[int, int] = {}

        try:
            with TopicReader({**self._config, **_FETCHED_AHEAD}, on_end=ends.__setitem__) as reader:
                for partition, wanted in offsets.items():
                    position, left = -_NEAR_OFFSETS, set(wanted)
                    for offset in wanted:
                        if offset - position >= _NEAR_OFFSETS:
                            reader.assign([(topic, partition, offset)])
                            position = offset
                            ends.pop(partition, None)
                        while position <= offset and ends.get(partition, 0) <= offset:
                            for message in reader.read(offset - position + 1):
                                at, value = int(message.offset() or 0), message.value()
                                position = at + 1
                                # Where offsets belong to no record, a read gets records beyond the one it is for.
                                if at in left and value is not None:
                                    left.discard(at)
                                    event = bytes(value) if translator is None else translator.event(bytes(value))
                                    change = self._events.change(event, before_lsn, columns, store.key)
                                    if change is not None:
                                        order.put(partition, *change)
                            self._bar.show(f"{topic}: looking up events")
                    if left:
                        return False
                    order.end(partition)
        finally:
            self._bar.clear()
        for partition, commit, row_change in order.take():
            row_change.apply(store, partition, commit)
        return True

    def _note_key(self, keys: set[tuple[str, ...]], op: str, key: bytes | None) -> None:
        if op == "t":
            keys.clear()
        else:
            keys.add(self._events.key_columns(key))

    def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset and the end of each partition, with open transactions; empty if there is no topic yet."""
        with TopicReader(self._config, with_uncommitted=True) as reader:
            return {partition: reader.bounds(topic, partition) for partition in reader.partitions(topic)}
