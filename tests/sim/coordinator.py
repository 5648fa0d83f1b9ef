"""The coordinator of Kafka's transactions moves amid commits: its heir carries out late, or in part, what was decided.

Before: `fake_kafka` asks at each commit. After: the take-over decides what stays undecided.
Source: KIP-98 (the coordinator's log); `TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue` (markers are lost);
librdkafka `rd_kafka_txn_handle_EndTxn`.

librdkafka asks the heir by itself: its user hears nothing of NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS and
CONCURRENT_TRANSACTIONS. The call takes longer, or nobody answers it in time.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from sim.fake_kafka import Transaction
from sim.replica import SimProducer

from cdcd.errors import KafkaUnavailable
from cdcd.progress.records import parse_slot_record

if TYPE_CHECKING:
    from sim.world import World

SHARE = 0.3
"""Of the worlds: in these the coordinator moves."""

_PROGRESS = ("p.progress", 0)
_PARKED = ("p.parked", 0)


class Coordinator:
    """One world's. Its dice are its own, so that worlds in which it does not move stay as they are."""

    def __init__(self, world: World, seed: int, *, moves: bool) -> None:
        self._world = world
        self._broker = world.broker
        self._rng = Random(f"coordinator {seed}")
        self.moves = self._rng.randint(1, 4) if moves and self._rng.random() < SHARE else 0
        """How often it is yet to move."""
        self.chance = 0.2
        """That it moves amid a commit."""

    def move(self, transaction: Transaction) -> bool:
        """Decide whether it moves once it has written that this transaction commits."""
        rng, world = self._rng, self._world
        if not self.moves or not _is_own(transaction) or rng.random() > self.chance:
            return False
        self.moves -= 1
        world.note("the coordinator moves amid a commit")
        loads_s = rng.random() * rng.choice([0.1, 3])
        world.at(world.now + loads_s * rng.random(), partial(self._write_some, transaction))
        world.at(world.now + loads_s, partial(self._carry_out, transaction))
        return True

    def answer(self) -> None:
        """Answer the commit, before the markers are written; or do not."""
        if self._rng.random() < 0.5:
            raise KafkaUnavailable("the coordinator has moved, and nobody answers", code="kafka-unavailable")

    def is_decided_now(self, step: str) -> bool:
        """Whether a take-over decides a commit that hangs. If it died amid this, Kafka would abort what hangs, too."""
        hanging = self._broker.hanging
        is_left = any(each.state == "committed" and not self._is_pending(each) for each in hanging)
        return is_left and step in {"begin", "produce", "flush", "commit"}

    def rest(self) -> None:
        """Write all markers that are left, and move no more."""
        self.moves = 0
        for transaction in self._broker.pending.values():
            self._broker.write_markers(transaction, set(transaction.undecided))
        self._broker.pending.clear()

    def lost_markers(self, transaction: Transaction) -> set[tuple[str, int]]:
        """Where the marker of a commit never comes.

        What the progress counts, what readers see or what PostgreSQL was told must tell that it was a commit: nobody
        misses what nobody knows of.
        """
        rng, left = self._rng, transaction.undecided
        if self._broker.hanging != [transaction] or rng.random() < 0.2:
            return set()
        ways: list[set[tuple[str, int]]] = []
        counted = sorted(left - {_PROGRESS})
        if counted:
            ways.append(set(rng.sample(counted, rng.randint(1, len(counted)))))
        rows = sorted(place for place in transaction.touched if place[0].count(".") == 2)
        if _PROGRESS in left and rows:
            ways.append({_PROGRESS, *(each for each in sorted(left) if rng.random() < 0.7)} - {rng.choice(rows)})
        if _PROGRESS in left and self._was_told(transaction):
            self._world.server.checkpoint()  # no crash makes PostgreSQL forget it
            ways.append(set(left))
        lost = rng.choice(ways) if ways else set()
        if lost:
            self._world.note(f"markers are lost: {sorted(lost)}")
        return lost

    def _was_told(self, transaction: Transaction) -> bool:
        """Whether PostgreSQL was told of this commit, and of more than of the one before."""
        committed = [each for each in self._broker.committed if _is_own(each)]
        lsn, slot = _lsn(transaction), self._world.server.slot
        before = [_lsn(each) for each in committed[: committed.index(transaction)]]
        return slot is not None and bool(before) and before[-1] < lsn <= slot.confirmed

    def _write_some(self, transaction: Transaction) -> None:
        if self._is_pending(transaction):
            share = self._rng.random()
            some = {each for each in transaction.touched if self._rng.random() < share}
            self._broker.write_markers(transaction, some & transaction.undecided)

    def _carry_out(self, transaction: Transaction) -> None:
        """Write the markers. If some are lost, the daemon dies: it would write there again."""
        if not self._is_pending(transaction):
            return
        assert transaction.producer is not None
        self._broker.carry_out(transaction.producer)
        owner = self._broker.owners.get(transaction.producer)
        if transaction.undecided and isinstance(owner, SimProducer):
            self._world.kill(owner.life_name, quick=self._rng.random() < 0.7)

    def _is_pending(self, transaction: Transaction) -> bool:
        return any(each is transaction for each in self._broker.pending.values())


def _is_own(transaction: Transaction) -> bool:
    return any(each.topic == _PROGRESS[0] and each.key == b"s" for each in transaction.records)


def _lsn(transaction: Transaction) -> int:
    """Up to where the slot is in Kafka with it."""
    values = [each.value for each in transaction.records if each.topic == _PROGRESS[0] and each.key == b"s"]
    return parse_slot_record(b"s", values[-1] or b"").lsn
