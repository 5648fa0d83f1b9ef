"""Commits or aborts what Kafka left undecided in some partitions, although the transaction has ended.

Before: the producers have started, so that the coordinator knows of no open transaction of this slot.
After: the take-over reads the progress; the publisher writes to the topics.
Source: KIP-98 (control records), KIP-890; `TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue`.

The problem: when a transaction ends, its coordinator writes a marker into each of its partitions. If a partition has no
leader at that moment, the coordinator takes the partition for deleted, and calls the transaction complete (Kafka 4.3.1,
while a broker with unreplicated partitions shuts down). The records of that partition "hang": no reader sees them. The
next marker of the same producer id in that partition decides them, too, whatever became of their own transaction. If
that was aborted, the server sends its rows again, and a commit marker publishes the hanging ones a second time. If it
was committed, PostgreSQL was acknowledged, and an abort marker loses the hanging rows.

The progress tells what became of the transaction:

1. The daemon has acknowledged more to PostgreSQL than the visible progress holds, and an undecided slot record holds
   that much. The transaction of this record was committed, and with it everything undecided.
2. The progress itself is undecided, and rows that its undecided table records count are visible in a partition that
   got its marker; or it is the slot's first, and the record of the slot's beginning is visible. The transaction was
   committed, and with it everything undecided.
3. The undecided records of a partition begin below its end in the visible progress: in the table record of its topic,
   or for schemas and snapshots in the slot record. They were committed.
4. Otherwise the daemon has not acknowledged the rows, and PostgreSQL sends them again. The transaction was aborted.

An adoption cannot ask the server from which the records come: it may be gone. Then the transaction of an undecided slot
record is committed if it is whole: that record is its last one, and no partition has dropped a record of it. Either it
was committed, or nobody has seen it, and it may as well be committed now: if its server sends it again, the progress
covers it. If such a record is of another server than the progress, then an adoption was killed. It is aborted, and this
one takes its place.

For each such partition every producer of the slot writes a transaction of one record, because nothing tells which
producer wrote the hanging records. That record means nothing. In cdcd's own topics it is the tombstone of a key that
never existed. In a table's topic that is to be committed it is a tombstone without a key. In a table's topic that is to
be aborted, no reader ever sees the record.

Three cases are beyond repair. If a later transaction of this slot has rows in the same partition, and dies before it
commits, the coordinator may abort both. A take-over that dies amid its own marker is such a case. Or two transactions
of this slot hang in one partition, one committed and one aborted. Or no daemon started before Kafka forgot the
transactional.id (after a week): its heir has another producer id, so a person must end what hangs. Replicated topics
do not get there, because their partitions keep a leader.
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
"""Between two looks. An open transaction of another producer usually ends in this time."""


class UnstableOffsets(Protocol):
    """Knows which partitions hold undecided transactions: `kafka.undecided_transactions`."""

    def unstable(self) -> Mapping[TopicPartition, int]:
        """Partitions that hold an undecided transaction of this slot, and the offset where it begins."""


@dataclass(frozen=True)
class Evidence:
    """The facts in the progress about the undecided transactions."""

    confirmed_lsn: int | None
    """The slot's `confirmed_flush_lsn`: the daemon has acknowledged everything before it. None: nobody can be asked."""
    visible: SlotRecord | None
    """The last slot record that can be read."""
    undecided: SlotRecord | None
    """The last slot record that is undecided itself, if there is one."""
    rows_visible: bool
    """Rows that undecided table records count can be read, or the beginning that the slot record comes with."""
    tables: Mapping[str, TableRecord]
    """The visible table records, by topic, of the topics in question."""
    fillers: Mapping[str, Message]
    """For each of cdcd's own topics: a record that says only which slot wrote it. It may stay undecided, too."""
    is_whole: bool = False
    """No record of the undecided slot record's transaction was dropped. Known only if nobody can be asked."""


def committed(hanging: Mapping[TopicPartition, int], evidence: Evidence) -> set[TopicPartition]:
    """Which of the partitions hold records of a transaction that was committed.

    `hanging` gives the offset at which the undecided records of each partition begin.
    """
    if evidence.rows_visible or _was_acknowledged(evidence):
        return set(hanging)
    ends = {topic: record.offsets for topic, record in evidence.tables.items()}
    if evidence.visible is not None:
        ends |= {topic: state.ends for topic, state in evidence.visible.own_topics.items()}
    return {
        (topic, partition)
        for (topic, partition), begin in hanging.items()
        if begin < max(ends.get(topic, ())[partition : partition + 1], default=0)
    }


def _was_acknowledged(evidence: Evidence) -> bool:
    """Whether the acknowledged LSN includes the undecided slot record, or may as well include it."""
    if evidence.undecided is None:
        return False
    if evidence.confirmed_lsn is None:
        return evidence.is_whole
    if evidence.visible is None:  # before the first acknowledgement the slot is confirmed to where it began
        return evidence.confirmed_lsn == evidence.undecided.lsn
    return evidence.visible.lsn < evidence.confirmed_lsn <= evidence.undecided.lsn


def decide_hanging(
    admin: UnstableOffsets,
    producers: Sequence[Producer],
    gather_evidence: Callable[[Mapping[TopicPartition, int]], Evidence],
    sleep: Callable[[float], None],
    stopping: Callable[[], bool],
) -> int:
    """Commit or abort what stays undecided; returns in how many partitions. Raises what admin and producers raise.

    `gather_evidence` gets the partitions in question, each with the offset at which its undecided records begin.

    An open transaction of another slot looks the same for a moment. The markers of these producers do not decide it. So
    a transaction counts as this slot's only if it stays undecided at the same offset in LOOKS looks.
    """
    decided = 0
    hanging: Mapping[TopicPartition, int] = {}
    for _ in range(ROUNDS):
        hanging = _still_unstable(admin, sleep, stopping)
        if not hanging:
            return decided
        evidence = gather_evidence(hanging)
        if stopping():
            return decided  # the evidence may be incomplete
        to_commit = committed(hanging, evidence)
        log.warning(
            "deciding transactions that Kafka left undecided",
            extra={"committed": len(to_commit), "aborted": len(hanging) - len(to_commit)},
        )
        for producer in producers:
            _write_marker(producer, hanging.keys() - to_commit, evidence.fillers, commit=False)
            _write_marker(producer, to_commit, evidence.fillers, commit=True)
        decided += len(hanging)
    places = ", ".join(
        f"{topic} partition {number} offset {begin}" for (topic, number), begin in sorted(hanging.items())
    )
    log.warning(
        "transactions stay undecided, and hide from readers what follows them: %s. If kafka-transactions.sh "
        "find-hanging lists them, Kafka has forgotten their producers: end each with kafka-transactions.sh abort. Then "
        "run cdcd snapshot for its table: its rows may have been committed [transaction-hanging]",
        places,
        extra={"code": "transaction-hanging"},
    )
    return decided


def _write_marker(
    producer: Producer, places: AbstractSet[TopicPartition], fillers: Mapping[str, Message], *, commit: bool
) -> None:
    if not places:
        return
    other: Message = {"value": None} if commit else {"key": b"-", "value": b""}
    producer.begin()
    for topic, partition in sorted(places):
        producer.produce(topic, partition, [fillers.get(topic, other).copy()])
    producer.flush()
    if commit:
        producer.commit()
    else:
        producer.abort()


def _still_unstable(
    admin: UnstableOffsets, sleep: Callable[[float], None], stopping: Callable[[], bool]
) -> dict[TopicPartition, int]:
    found = dict(admin.unstable())
    for _ in range(LOOKS - 1):
        if not found or stopping():
            return {}
        sleep(PAUSE_S)
        now = admin.unstable()
        found = {place: offset for place, offset in found.items() if now.get(place) == offset}
    return found
