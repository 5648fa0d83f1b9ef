"""How often an event can be on its topic: the two delivery modes, each in one place.

Before: the take-over chooses the mode of `sink.delivery`, once.
After: the mode says which producers are made, which slot record is the last one, and when the sink commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from cdcd.progress.records import parse_slot_record
from cdcd.sink.commit_schedule import GATHER_S, CommitSchedule
from cdcd.sink.interfaces import Producer
from cdcd.sink.kafka.alternating_producer import AlternatingProducer
from cdcd.sink.kafka.cluster import KafkaCluster

_LINGER_SHARE: Final = 4
"""A Kafka transaction in a backlog is committed after a fourth of its timeout at most."""


class Delivery(Protocol):
    """A delivery mode, for one slot."""

    leaves_hanging_transactions: bool
    """Kafka may leave a transaction of an earlier producer undecided."""

    @property
    def rank(self) -> Callable[[bytes, bytes], int] | None:
        """Gives the height of a slot record, by key and value: the highest is the last one. None: the order counts."""

    def producers(self, kafka: KafkaCluster, timeout_ms: int, known_topic: str) -> Iterator[Producer]:
        """Make the producers, one after the other. A Kafka transaction may be open for `timeout_ms`.

        `known_topic` exists when they start; "": none is known.
        """

    def combined(self, producers: Sequence[Producer]) -> Producer:
        """Return the producer that the publisher uses: it plays all of `producers`."""

    def schedule(self, rows_max: int, bytes_max: int, linger_ms: int, timeout_ms: int) -> CommitSchedule:
        """Return the schedule of one run of the sink; the arguments are those of CommitSchedule."""


class ExactlyOnce(Delivery):
    """Rows and progress commit in one Kafka transaction. Two transactional producers take turns."""

    leaves_hanging_transactions = True
    rank = None

    def __init__(self, prefix: str, slot: str) -> None:
        # No slot has a full stop in its name: so no other daemon uses these ids.
        self._transactional_ids = (f"{prefix}-{slot}", f"{prefix}-{slot}.2")

    def producers(self, kafka: KafkaCluster, timeout_ms: int, known_topic: str) -> Iterator[Producer]:
        for transactional_id in self._transactional_ids:
            yield kafka.transactional_producer(transactional_id, timeout_ms, known_topic)

    def combined(self, producers: Sequence[Producer]) -> Producer:
        return AlternatingProducer(*producers)

    def schedule(self, rows_max: int, bytes_max: int, linger_ms: int, timeout_ms: int) -> CommitSchedule:
        linger_ms = min(linger_ms, timeout_ms // _LINGER_SHARE)
        return CommitSchedule(rows_max, bytes_max, linger_ms, timeout_ms, GATHER_S)


class AtLeastOnce(Delivery):
    """An idempotent producer. Events between the last progress and a crash are published twice."""

    leaves_hanging_transactions = False

    @property
    def rank(self) -> Callable[[bytes, bytes], int]:
        return _lsn_of

    def producers(self, kafka: KafkaCluster, timeout_ms: int, known_topic: str) -> Iterator[Producer]:
        yield kafka.idempotent_producer(timeout_ms)

    def combined(self, producers: Sequence[Producer]) -> Producer:
        [producer] = producers
        return producer

    def schedule(self, rows_max: int, bytes_max: int, linger_ms: int, timeout_ms: int) -> CommitSchedule:
        linger_ms = min(linger_ms, timeout_ms // _LINGER_SHARE)
        return CommitSchedule(rows_max, bytes_max, linger_ms, timeout_ms=None)


def delivery_of(mode: str, prefix: str, slot: str) -> Delivery:
    """Return the delivery mode that `sink.delivery` names, for this prefix and slot."""
    return ExactlyOnce(prefix, slot) if mode == "exactly_once" else AtLeastOnce()


def _lsn_of(key: bytes, value: bytes) -> int:
    return parse_slot_record(key, value).lsn
