"""Finds the transactions that Kafka left undecided, picks this slot's, and reads the evidence of their outcome.

Before: the producer has started, so that the coordinator knows of no open transaction of this slot.
After: `hanging_transactions` commits or aborts them.
Source: KIP-98 (control records, the last stable offset).

Trap: other slots write to cdcd's own topics, too. An open transaction of another slot holds back the last stable offset
of these topics, so later commits of this slot are invisible. The daemon must not conclude that nothing was committed.
So:

- An undecided record belongs to this slot only if it is on the topic of one of its tables, whatever its prefix, or if
  its key starts with the slot's name. Schemas have no owner: there, every undecided record may be this slot's.
- A table may have had another name, or may have left the publication. So if no other slot has published under the
  prefix, every topic that a table may have is this slot's.
- If the undecided record on the progress topic belongs to another slot, the daemon waits until it is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from cdcd.clock import monotonic_s
from cdcd.errors import KafkaUnavailable
from cdcd.progress.records import (
    SlotRecord,
    TableRecord,
    by_kafka_topic,
    kafka_topic,
    parse_record,
    parse_slot_record,
    slot_key,
    table_key,
)
from cdcd.progress.slot_beginnings import parse_beginning
from cdcd.sink.hanging_transactions import Evidence, TopicPartition
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.topics import TopicNames

OTHERS_S: Final = 60.0
"""How long the daemon waits for another slot's transaction. After that it ends the stream, and starts again later."""
_OTHERS_POLL_S: Final = 0.1


class UndecidedTransactions:
    """The undecided transactions of one slot. For one thread; all methods raise as Kafka's readers do."""

    def __init__(
        self,
        kafka: KafkaCluster,
        names: TopicNames,
        slot: str,
        topics: Collection[str],
        pause: Callable[[float], None],
        stopping: Callable[[], bool],
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """`topics` are those that this slot alone writes to: its tables', as TopicNames has them, and others.

        `pause` waits for so many seconds, or less if `stopping` turns true. This ends all reading early, too.
        """
        self._kafka = kafka
        self._names = names
        self._slot = slot
        self._tables = frozenset(topics)
        self._topics = frozenset(kafka_topic(topic) for topic in topics)
        self._pause = pause
        self._stopping = stopping
        self._clock = clock
        self._is_alone: bool | None = None
        """No other slot has published under the prefix; None: not known yet."""
        self._shared = frozenset({names.progress, names.schemas, names.snapshots, names.parked})
        """The topics that other slots write to as well."""

    def wait_for_others(self) -> None:
        """Wait until all that this slot committed can be read, unless the undecided progress is this slot's own.

        Raises KafkaUnavailable if another slot's transaction stays open.
        """
        progress = self._names.progress
        log_end = self._kafka.range_reader(progress).bounds()
        stable = self._kafka.range_reader(progress, end="last_stable")
        deadline = self._clock() + OTHERS_S
        while log_end is not None and not self._stopping():
            bounds = stable.bounds()
            if bounds is None or bounds[1] >= log_end[1] or self._may_be_own((progress, 0), bounds[1]):
                return
            if self._clock() >= deadline:
                raise KafkaUnavailable(
                    f"another slot's Kafka transaction has been open on {progress} for {OTHERS_S:.0f} s, and hides "
                    "what was committed since",
                    "Start that slot's daemon again, which ends it. Else Kafka does, after its transaction.timeout.ms; "
                    "kafka-transactions.sh find-hanging names one that it has forgotten",
                    code="transaction-hanging",
                )
            self._pause(_OTHERS_POLL_S)

    def unstable(self) -> dict[TopicPartition, int]:
        """Plays `UnstableOffsets`: partitions whose undecided transaction may be this slot's, and where it begins."""
        if self._is_alone is None:
            self._is_alone = self._beginnings().keys() <= {slot_key(self._slot)}
        found = self._kafka.admin.unstable(self._may_have_own)
        return {place: begin for place, begin in found.items() if self._may_be_own(place, begin)}

    def gather_evidence(self, confirmed_lsn: int | None, hanging: Mapping[TopicPartition, int]) -> Evidence:
        """Return the evidence about the undecided transactions in `hanging`, where the progress itself may be.

        `hanging`: the offset where each one begins. `confirmed_lsn`: the position that the daemon has acknowledged to
        PostgreSQL, as the server knows it; None: that server cannot be asked.
        """
        names, slot = self._names, self._slot
        begin = hanging.get((names.progress, 0))
        progress = {} if begin is None else self._undecided_progress(begin)
        found = progress.pop(slot_key(slot), None)
        undecided = None if found is None else parse_slot_record(slot_key(slot), found)
        # What is visible there says nothing: it may be another slot's.
        counted = {topic: record for topic, record in _table_records(progress).items() if topic not in names.tableless}
        tables = {topic for topic, _ in hanging} - self._shared
        tables |= counted.keys()
        names_of_tables = {*self._tables, *(key.decode().partition("/")[2] for key in progress)}
        known_names = (topic for topic in names_of_tables if kafka_topic(topic) in tables)
        keys = frozenset(table_key(slot, topic) for topic in tables.union(known_names))
        stable = KafkaProgressReader(self._kafka.range_reader(names.progress, end="last_stable"), None)
        visible = stable.last(keys | {slot_key(slot)}, self._stopping)
        seen = visible.pop(slot_key(slot), None)
        known = _table_records(visible)
        last = None if seen is None else parse_slot_record(slot_key(slot), seen)
        return Evidence(
            None if confirmed_lsn is None else confirmed_lsn + (0 if last is None else last.lsn_base),
            last,
            undecided,
            any(self._rows_visible(record, known.get(topic), hanging) for topic, record in counted.items())
            or (undecided is not None and self._is_begun(undecided, last)),
            known,
            {topic: {"key": table_key(slot, ""), "value": None} for topic in self._shared},
            confirmed_lsn is None
            and undecided is not None
            and self._is_whole(undecided, last, progress, known, hanging),
        )

    def _is_own_key(self, key: bytes) -> bool:
        slot = slot_key(self._slot)
        return key == slot or key.startswith(slot + b"/")

    def _undecided_progress(self, begin: int) -> dict[bytes, bytes]:
        """The last value of each of this slot's keys in the progress from offset `begin` on, undecided as it is."""
        reader, found = (
            self._kafka.range_reader(self._names.progress, isolation="read_uncommitted"),
            dict[bytes, bytes](),
        )
        _, end = reader.bounds() or (0, 0)
        with reader.consumer() as consumer:
            for _, message in reader.read(consumer, begin, end, self._stopping):
                key, value = message.key(), message.value()
                if key and value and self._is_own_key(key):
                    found[key] = value
        return found

    def _may_have_own(self, topic: str) -> bool:
        """Whether this slot may have written to a topic."""
        if topic in self._shared or topic in self._names.tableless or topic in self._topics:
            return True
        return self._is_alone is True and self._names.may_be_table_topic(topic)

    def _may_be_own(self, place: TopicPartition, begin: int) -> bool:
        """Whether the undecided transaction that begins at `begin` can be this slot's."""
        topic, partition = place
        if topic not in self._shared:
            return self._may_have_own(topic)
        if topic == self._names.schemas:
            return True
        reader = self._kafka.range_reader(topic, partition=partition, isolation="read_uncommitted")
        with reader.consumer() as consumer:
            first = reader.read(consumer, begin, begin + 1, self._stopping)
            return any(self._is_own_key(message.key() or b"") for _, message in first)

    def _beginnings(self) -> dict[bytes, bytes]:
        """The beginnings of slots that can be read, by key: each was committed together with a slot record."""
        reader = self._kafka.range_reader(self._names.snapshots, end="last_stable")
        found = KafkaProgressReader(reader).every(self._stopping)
        return {key: value for key, value in found.items() if b"/" not in key}

    def _is_begun(self, undecided: SlotRecord, last: SlotRecord | None) -> bool:
        """Whether the beginning that was committed with an undecided slot record can be read."""
        beginning = self._beginnings().get(slot_key(self._slot))
        if beginning is None or last is None:
            return beginning is not None
        if (last.system_id, last.lsn) == (undecided.system_id, undecided.lsn):
            return False  # it came with a record before
        begun = parse_beginning(slot_key(self._slot), beginning)
        return (begun.system_id, begun.lsn) == (undecided.system_id, undecided.lsn)

    def _is_whole(
        self,
        undecided: SlotRecord,
        last: SlotRecord | None,
        progress: Mapping[bytes, bytes],
        known: Mapping[str, TableRecord],
        hanging: Mapping[TopicPartition, int],
    ) -> bool:
        """Whether a slot record is of the server that Kafka knows, and no record of its transaction was dropped."""
        if last is not None and (last.system_id, last.lsn_base) != (undecided.system_id, undecided.lsn_base):
            return False
        written, before = _ends(undecided, _table_records(progress)), _ends(last, known)
        return not any(
            self._is_dropped(topic, partition, end)
            for topic, ends in written.items()
            for partition, end in enumerate(ends)
            if (topic, partition) not in hanging
            and end > max(before.get(topic, ())[partition : partition + 1], default=0)
        )

    def _is_dropped(self, topic: str, partition: int, end: int) -> bool:
        """Whether this slot's last record before `end` was aborted."""
        written, seen = (
            self._kafka.range_reader(topic, partition=partition, isolation=isolation)
            for isolation in ("read_uncommitted", "read_committed")
        )
        if (seen.bounds() or (0, 0))[1] < end:
            return False  # the topic is another one now
        with written.consumer() as consumer:
            keys = [each.key() or b"" for _, each in written.read(consumer, end - 1, end, self._stopping)]
        is_shared = topic in self._shared and topic != self._names.schemas
        if not keys or (is_shared and not self._is_own_key(keys[0])):
            return False
        with seen.consumer() as consumer:
            return not any(True for _ in seen.read(consumer, end - 1, end, self._stopping))

    def _rows_visible(
        self, counted: TableRecord, before: TableRecord | None, hanging: Mapping[TopicPartition, int]
    ) -> bool:
        """Whether readers see a row that the record `counted` counts and the record `before` does not."""
        for partition, end in enumerate(counted.offsets):
            if (counted.topic, partition) in hanging:
                continue
            start = 0 if before is None or partition >= len(before.offsets) else before.offsets[partition]
            reader = self._kafka.range_reader(counted.topic, partition=partition)
            start = max(start, (reader.bounds() or (0, 0))[0])
            with reader.consumer() as consumer:
                if any(True for _ in reader.read(consumer, start, end, self._stopping)):
                    return True
        return False


def _table_records(found: Mapping[bytes, bytes]) -> dict[str, TableRecord]:
    """A table record for each topic among these, with where it ends: tables that share one have a record each."""
    records = [parse_record(key, value) for key, value in found.items()]
    tables = by_kafka_topic(record for record in records if isinstance(record, TableRecord))
    return {topic: replace(record, topic=topic) for topic, record in tables.items()}


def _ends(record: SlotRecord | None, tables: Mapping[str, TableRecord]) -> dict[str, tuple[int, ...]]:
    """Where the topics end that a slot record and its table records count."""
    own = {} if record is None else {topic: state.ends for topic, state in record.own_topics.items()}
    return own | {topic: table.offsets for topic, table in tables.items()}
