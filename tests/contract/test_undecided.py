"""What Kafka left undecided in the progress itself is found out, without waiting for it: on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cdcd.progress.records import SlotRecord, TableRecord
from cdcd.progress.slot_beginnings import SlotBeginning
from cdcd.sink.hanging_transactions import committed
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.producer import KafkaProducer
from cdcd.sink.kafka.undecided_transactions import UndecidedTransactions
from cdcd.sink.topics import TopicNames, TopicSpec


def never() -> bool:
    return False


class Kafka:
    """The topics of a slot. A second producer's transaction stands for one of ours whose marker never came."""

    def __init__(self, broker: str, prefix: str) -> None:
        self.names = TopicNames(prefix, "{prefix}.{schema}.{table}")
        self.table = self.names.topic("public", "t")
        connection = KafkaConnection(broker, "contract")
        self.clients = KafkaCluster(connection)
        self.admin = self.clients.admin
        for topic in (self.names.progress, self.names.snapshots, self.table):
            self.admin.ensure(TopicSpec(topic, 1, 1))
        self.ours, self.marker_lost = (KafkaProducer(connection, f"{prefix}-{n}") for n in range(2))
        self.ours.start(never)
        self.marker_lost.start(never)

    def rows(self, producer: KafkaProducer, *, commit: bool) -> int:
        """Rows in the table's topic; where they end."""
        producer.begin()
        producer.produce(self.table, 0, [{"key": b"k", "value": b"v"} for _ in range(3)])
        end = producer.flush()[self.table, 0]
        producer.commit() if commit else producer.abort()
        return end

    def progress(self, producer: KafkaProducer, lsn: int, end: int) -> None:
        table = TableRecord("s", self.table, "public", "t", lsn - 8, (end,))
        slot = SlotRecord("s", lsn, lsn - 8, 1, "1", 1, 1, 1)
        producer.produce(self.names.progress, 0, [{"key": each.key(), "value": each.value()} for each in (table, slot)])
        producer.flush()

    def undecided(self) -> UndecidedTransactions:
        """As the daemon of the slot "s" sees them, which publishes one table."""
        return UndecidedTransactions(self.clients, self.names, "s", [self.table], time.sleep, never)

    def close(self) -> None:
        self.ours.close()
        self.marker_lost.close()
        self.clients.close()


@pytest.fixture
def undecided(broker: str, prefix: str) -> Iterator[Kafka]:
    made = Kafka(broker, prefix)
    yield made
    made.close()


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_undecided_progress_was_committed_if_its_rows_can_be_read(undecided: Kafka, commit: bool) -> None:
    kafka = undecided
    # Found by chaos: a broker that shut down had put the marker everywhere but here, and nobody could take over.
    first = kafka.rows(kafka.ours, commit=True)
    kafka.ours.begin()
    kafka.progress(kafka.ours, 0x100, first)
    kafka.ours.commit()
    second = kafka.rows(kafka.ours, commit=commit)
    kafka.marker_lost.begin()
    kafka.progress(kafka.marker_lost, 0x200, second)
    began = time.monotonic()
    while (hanging := kafka.admin.unstable(kafka.names.progress.__eq__)) == {} or kafka.admin.unstable(
        kafka.table.__eq__
    ):
        assert time.monotonic() - began < 10
    known = kafka.undecided().gather_evidence(0x100, hanging)
    assert time.monotonic() - began < 10
    assert known.visible is not None
    assert known.undecided is not None
    assert (known.visible.lsn, known.undecided.lsn) == (0x100, 0x200)
    assert committed(hanging, known) == (set(hanging) if commit else set())


@pytest.mark.parametrize("first", ["s", "other"])
def test_what_is_undecided_is_ours_where_its_first_record_or_the_table_is(
    undecided: Kafka, prefix: str, first: str
) -> None:
    kafka = undecided
    second = "other" if first == "s" else "s"
    strangers = kafka.names.topic("public", "strangers")
    kafka.admin.ensure(TopicSpec(strangers, 1, 1))
    beginning = SlotBeginning("other", "1", 1, 0x100)
    kafka.ours.begin()
    kafka.ours.produce(kafka.names.snapshots, 0, [{"key": beginning.key(), "value": beginning.value()}])
    kafka.ours.flush()
    kafka.ours.commit()
    for producer, slot in ((kafka.marker_lost, first), (kafka.ours, second)):
        producer.begin()
        producer.produce(kafka.names.progress, 0, [{"key": f"{slot}/x".encode(), "value": b"{}"}])
        producer.produce(kafka.table if slot == "s" else strangers, 0, [{"key": b"k", "value": b"v"}])
        producer.flush()
    found = kafka.undecided().unstable()
    assert found.keys() == {(kafka.table, 0), *([(kafka.names.progress, 0)] if first == "s" else [])}
