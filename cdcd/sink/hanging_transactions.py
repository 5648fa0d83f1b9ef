"""Decides what an earlier producer of ours left undecided in some partitions, although its transaction has ended.

Before: the producer has started, so that the coordinator knows of no open transaction of ours. After: the progress is
read, and the topics are published to.
Source: KIP-98 (control records), KIP-890; `TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue`.

The problem: a coordinator that has to write the marker of a transaction into a partition without a leader takes the
partition for deleted, and calls the transaction complete (Kafka 4.3.1, while a broker with unreplicated partitions
shuts down). The records "hang": nobody sees them, and the next marker of our producer id in that partition decides
*them*, too, whatever their own transaction came to. Rows that were given up, and sent again, would be published twice;
rows that were committed, and acknowledged, would be lost with the next abort.

What they came to, the progress tells:

1. PostgreSQL was acknowledged more than the visible progress holds, and an undecided slot record has it: that
   transaction was committed. So all that is undecided is.
2. The progress itself is undecided, and rows that its undecided table records count are visible in a partition that
   had its marker: that transaction was committed. So all that is undecided is.
3. A partition's records begin below the end offset that the visible table record of the topic gives: committed.
4. Anything else was not acknowledged, and comes again: aborted.

A marker is put there by a transaction of one record for each such partition, of each of our producers: nobody tells
whose records they are. The record says nothing: in cdcd's own topics it is the tombstone of a key that nobody has, in a
table's topic, if it commits, one without a key. (What stands there behind an undecided record may have been given up.)

What this cannot mend: a later transaction of ours that has rows in the same partition, and dies before it commits, lets
the coordinator abort both; and two of ours that are undecided in one partition, and came to different ends. Replicated
topics do not get there: their partitions are not without a leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from cdcd.progress.records import SlotRecord, TableRecord
from cdcd.sink.batches import Message
from cdcd.sink.interfaces import Producer

log = logging.getLogger(__name__)

TopicPartition: TypeAlias = "tuple[str, int]"
"""Topic and partition."""

ROUNDS: Final = 3
LOOKS: Final = 4
PAUSE_S: Final = 0.25
"""Between two looks: an open transaction of somebody else's usually ends meanwhile."""


class UnstableOffsets(Protocol):
    """Who can say which partitions hold undecided transactions: `kafka.admin`."""

    def unstable(self, prefix: str) -> Mapping[TopicPartition, int]:
        """Partitions of topics with this prefix that hold an undecided transaction, with the offset it begins at."""


@dataclass(frozen=True)
class Evidence:
    """What the progress tells of them."""

    confirmed_lsn: int
    """What PostgreSQL was acknowledged."""
    visible: SlotRecord | None
    undecided: SlotRecord | None
    """The slot record that is undecided itself, if one is."""
    rows_visible: bool
    """Rows that undecided table records count can be read."""
    tables: Mapping[str, TableRecord]
    """The visible table records of the topics concerned."""
    fillers: Mapping[str, Message]
    """For each of cdcd's own topics, a record that says nothing but whose it is: it may stay undecided, too."""


def committed(hanging: Mapping[TopicPartition, int], known: Evidence) -> set[TopicPartition]:
    """Which of the partitions hold records of a transaction that was committed."""
    if known.rows_visible or _was_told(known):
        return set(hanging)
    return {
        (topic, partition)
        for (topic, partition), begin in hanging.items()
        if (record := known.tables.get(topic)) is not None
        and partition < len(record.offsets)
        and begin < record.offsets[partition]
    }


def _was_told(known: Evidence) -> bool:
    """Whether PostgreSQL was acknowledged what is undecided."""
    if known.undecided is None:
        return False
    if known.visible is None:  # before the first acknowledgement the slot is confirmed to where it began
        return known.confirmed_lsn == known.undecided.lsn
    return known.visible.lsn < known.confirmed_lsn <= known.undecided.lsn


def decide_hanging(
    admin: UnstableOffsets,
    producers: Sequence[Producer],
    prefix: str,
    know: Callable[[Mapping[TopicPartition, int]], Evidence],
    sleep: Callable[[float], None],
    stopping: Callable[[], bool],
) -> int:
    """Commit or abort what stays undecided; returns in how many partitions. Raises what admin and producer raise.

    `know` is asked with the partitions concerned, and where their undecided records begin. Another producer's open
    transaction looks the same for a moment, and is not touched by what we write: so only what stays where it is, is
    taken for ours.
    """
    decided = 0
    for _ in range(ROUNDS):
        hanging = _staying(admin, prefix, sleep, stopping)
        if not hanging:
            return decided
        known = know(hanging)
        if stopping():
            return decided  # what is known may be a part of it
        to_commit = committed(hanging, known)
        log.warning(
            "deciding transactions that Kafka left undecided",
            extra={"committed": len(to_commit), "aborted": len(hanging) - len(to_commit)},
        )
        for producer in producers:
            _mark(producer, hanging.keys() - to_commit, known.fillers, commit=False)
            _mark(producer, to_commit, known.fillers, commit=True)
        decided += len(hanging)
    log.warning("transactions that are not ours stay undecided", extra={"prefix": prefix})
    return decided


def _mark(
    producer: Producer, places: AbstractSet[TopicPartition], fillers: Mapping[str, Message], *, commit: bool
) -> None:
    if not places:
        return
    other: Message = {"value": None} if commit else {"key": b"-", "value": b""}
    producer.begin()
    for topic, partition in sorted(places):
        producer.produce(topic, partition, [dict(fillers.get(topic, other))])
    producer.flush()
    if commit:
        producer.commit()
    else:
        producer.abort()


def _staying(
    admin: UnstableOffsets, prefix: str, sleep: Callable[[float], None], stopping: Callable[[], bool]
) -> dict[TopicPartition, int]:
    staying = dict(admin.unstable(prefix))
    for _ in range(LOOKS - 1):
        if not staying or stopping():
            return {}
        sleep(PAUSE_S)
        now = admin.unstable(prefix)
        staying = {place: offset for place, offset in staying.items() if now.get(place) == offset}
    return staying
