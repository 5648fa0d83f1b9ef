"""The sink's next action: `now`, the queue's head and the open Kafka transaction in, an action out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cdcd.errors import RequestRejected
from cdcd.sink.batch_queue import QueueHead
from cdcd.sink.batches import Batch
from cdcd.sink.commit_schedule import FLOW_ENDS_AFTER_S, HOUSEKEEPING_S, Action, CommitSchedule, Step, Wait
from cdcd.sink.kafka_transaction import SNAPSHOT_BYTES, KafkaTransaction

NOW = 1000.0
PUBLISH, COMMIT, PREPARE, REPLAY, STOP = Step.PUBLISH, Step.COMMIT, Step.PREPARE, Step.REPLAY, Step.STOP


def schedule(gather_s: float = 0.0, timeout_ms: int | None = 60_000, linger_ms: int = 500) -> CommitSchedule:
    return CommitSchedule(100, 10_000, linger_ms, timeout_ms, gather_s)


def opened(
    *, rows: int = 1, size: int = 10, end_lsn: int = 0x100, is_inside: bool = False, is_first: bool = False,
    more_expected: bool = False,
) -> KafkaTransaction:  # fmt: skip
    """A Kafka transaction that was opened at NOW."""
    made = KafkaTransaction(NOW, is_first=is_first)
    made.rows, made.bytes, made.end_lsn = rows, size, end_lsn
    made.is_inside, made.more_expected = is_inside, more_expected
    return made


def stream(*, begins_only: bool = False, is_distant: bool = False) -> Batch:
    """Complete transactions; with `begins_only` the beginning of one whose commit is not in the batch."""
    batch = Batch()
    batch.ends_inside_transaction = begins_only or is_distant
    batch.commit_is_distant = is_distant
    batch.transactions = 0 if batch.ends_inside_transaction else 1
    return batch


def snapshot() -> Batch:
    batch = Batch()
    batch.snapshot_records = []
    return batch


EMPTY = QueueHead()
COMPLETE = QueueHead(stream(), has_stream_batch=True)
BEGINNING = QueueHead(stream(begins_only=True), has_stream_batch=True)
BEGINNING_AND_END = QueueHead(stream(begins_only=True), has_stream_batch=True, has_later_commit=True)
DISTANT = QueueHead(stream(is_distant=True), has_stream_batch=True)
DISTANT_AND_END = QueueHead(stream(is_distant=True), has_stream_batch=True, has_later_commit=True)
SNAPSHOT = QueueHead(snapshot())
SNAPSHOT_THEN_STREAM = QueueHead(snapshot(), has_stream_batch=True, has_later_commit=True)


def published(made: CommitSchedule) -> CommitSchedule:
    """The schedule once it has published a batch."""
    assert made.next(NOW, COMPLETE, None, False) is PUBLISH
    return made


def prepared(made: CommitSchedule) -> CommitSchedule:
    """The schedule once it has prepared the commit of what it published."""
    assert published(made).next(NOW, EMPTY, opened(), False) is PREPARE
    return made


def waited(made: CommitSchedule) -> CommitSchedule:
    """The schedule while it waits for a batch, nothing open."""
    assert isinstance(made.next(NOW, EMPTY, None, False), Wait)
    return made


# Without an open transaction


def test_nothing_to_do_is_a_wait_with_a_turn_for_the_client() -> None:
    assert schedule().next(NOW, EMPTY, None, False) == Wait(HOUSEKEEPING_S)
    assert CommitSchedule(1, 1, 1, None, housekeeping_s=0.5).next(NOW, EMPTY, None, False) == Wait(0.5)


@pytest.mark.parametrize("head", [COMPLETE, BEGINNING, DISTANT, SNAPSHOT])
def test_a_batch_that_waits_is_published(head: QueueHead) -> None:
    assert schedule().next(NOW, head, None, False) is PUBLISH
    assert waited(schedule()).next(NOW, head, None, False) is PUBLISH


# Once a batch was published


@dataclass
class Case:
    """Once a batch was published, this is open, that waits, and so much later the action is due."""

    claim: str
    action: Action
    head: QueueHead = EMPTY
    after_s: float = 0.0
    opened: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, Any] = field(default_factory=dict)


AFTER_PUBLISHING = [
    Case("a lone row is committed at once", COMMIT),
    Case("the bounds hold only in a backlog", COMMIT, opened={"rows": 1, "size": 1}),
    Case("more rows join", PUBLISH, COMPLETE),
    Case("the beginning of a transaction joins if its end may be near", PUBLISH, BEGINNING),
    Case("a bound on rows", PUBLISH, COMPLETE, opened={"rows": 99}),
    Case("a bound on rows is reached", COMMIT, COMPLETE, opened={"rows": 100}),
    Case("a bound on bytes", PUBLISH, COMPLETE, opened={"size": 9_999}),
    Case("a bound on bytes is reached", COMMIT, COMPLETE, opened={"size": 10_000}),
    Case("a bound on time", PUBLISH, COMPLETE, 0.499),
    Case("a bound on time is reached", COMMIT, COMPLETE, 0.5),
    Case("the first transaction after a start", PUBLISH, COMPLETE, 0.019, {"is_first": True}),
    Case("the first transaction after a start lingers less", COMMIT, COMPLETE, 0.03, {"is_first": True}),
    Case("unless the linger is shorter", COMMIT, COMPLETE, 0.01, {"is_first": True}, {"linger_ms": 5}),
    Case("a flow goes on for a moment", Wait(FLOW_ENDS_AFTER_S), opened={"more_expected": True}),
    Case("a bound ends a flow", COMMIT, opened={"more_expected": True, "rows": 100}),
    Case("a late commit is tried all the same", COMMIT, COMPLETE, 59.0),
    Case("rows of a snapshot are not waited for", COMMIT, SNAPSHOT),
    Case("rows of a snapshot join none that gathers", COMMIT, SNAPSHOT, schedule={"gather_s": 0.25}),
    Case("rows of a snapshot are joined by more of them", PUBLISH, SNAPSHOT, opened={"end_lsn": 0}),
    Case("the stream behind rows of a snapshot is waited for", PUBLISH, SNAPSHOT_THEN_STREAM),
    Case("half a PostgreSQL transaction waits for the rest", Wait(1.0), opened={"is_inside": True}),
    Case("its rest is published", PUBLISH, COMPLETE, opened={"is_inside": True}),
    Case("no bound ends it", Wait(1.0), opened={"is_inside": True, "rows": 10**7, "size": 10**9}),
    Case("it waits no longer than the broker does", Wait(0.5), after_s=53.5, opened={"is_inside": True}),
    Case("rows of a snapshot join a half transaction", PUBLISH, SNAPSHOT, opened={"is_inside": True}),
    Case(
        "without transactions the broker waits for ever",
        Wait(1.0),
        EMPTY,
        1e9,
        {"is_inside": True},
        {"timeout_ms": None},
    ),
    Case("without transactions time is a bound, too", COMMIT, COMPLETE, 1e9, {}, {"timeout_ms": None}),
    Case("rows that come while the client waits go along", PREPARE, schedule={"gather_s": 0.25}),
    Case("the client waits no longer", COMMIT, EMPTY, 0.25, {}, {"gather_s": 0.25}),
    Case("the bounds hold meanwhile", COMMIT, opened={"rows": 100}, schedule={"gather_s": 0.25}),
    Case("a position without rows gathers nothing", COMMIT, opened={"rows": 0}, schedule={"gather_s": 0.25}),
    Case("a backlog is not prepared", PUBLISH, COMPLETE, schedule={"gather_s": 0.25}),
    Case("complete transactions do not wait for a distant commit", COMMIT, DISTANT),
    Case("unless a commit is in the queue", PUBLISH, DISTANT_AND_END),
    Case("a distant commit is waited for inside its transaction", PUBLISH, DISTANT, opened={"is_inside": True}),
]


@pytest.mark.parametrize("case", AFTER_PUBLISHING, ids=lambda case: case.claim)
def test_once_a_batch_was_published(case: Case) -> None:
    made = published(schedule(**case.schedule))
    assert made.next(NOW + case.after_s, case.head, opened(**case.opened), False) == case.action


def test_a_transaction_that_outlasts_the_brokers_timeout_is_refused_with_its_figures_and_a_hint() -> None:
    made = published(schedule())
    assert made.next(NOW + 53.9, EMPTY, opened(is_inside=True), False) == Wait(pytest.approx(0.1))  # type: ignore[arg-type]
    with pytest.raises(RequestRejected) as caught:
        published(schedule()).next(
            NOW + 54.0, EMPTY, opened(rows=1_234_567, is_inside=True, end_lsn=0x16_0000_00AB), False
        )
    assert "after 16/AB was not published within 54 s (1,234,567 rows" in caught.value.message
    assert "transaction.max.timeout.ms" in caught.value.hint
    assert "at_least_once" in caught.value.hint


# Once no batch came


def test_a_flow_has_ended_when_no_batch_came() -> None:
    made, flow = published(schedule()), opened(more_expected=True)
    assert made.next(NOW, EMPTY, flow, False) == Wait(FLOW_ENDS_AFTER_S)
    assert made.next(NOW + FLOW_ENDS_AFTER_S, EMPTY, flow, False) is COMMIT


def test_a_batch_that_comes_in_time_belongs_to_the_flow() -> None:
    made, flow = published(schedule()), opened(more_expected=True)
    assert made.next(NOW, EMPTY, flow, False) == Wait(FLOW_ENDS_AFTER_S)
    assert made.next(NOW + 0.001, COMPLETE, flow, False) is PUBLISH


def test_half_a_transaction_is_waited_for_again_and_again() -> None:
    made = published(schedule())
    for second in range(3):
        assert made.next(NOW + second, EMPTY, opened(is_inside=True), False) == Wait(1.0)


# A commit that is prepared


def test_a_prepared_commit_waits_as_long_as_rows_join_at_no_cost() -> None:
    made = prepared(schedule(gather_s=0.25))
    assert made.next(NOW + 0.125, EMPTY, opened(), False) == Wait(0.125)
    assert made.next(NOW + 0.2, EMPTY, opened(), False) is PREPARE, "woken for nothing"
    assert made.next(NOW + 0.25, EMPTY, opened(), False) == Wait(0.0)
    assert made.next(NOW + 0.25, EMPTY, opened(), False) is COMMIT


def test_rows_that_come_in_time_go_along() -> None:
    made = prepared(schedule(gather_s=0.25))
    assert made.next(NOW, EMPTY, opened(), False) == Wait(0.25)
    assert made.next(NOW + 0.1, COMPLETE, opened(), False) is PUBLISH
    assert made.next(NOW + 0.1, EMPTY, opened(rows=2), False) is PREPARE
    assert made.next(NOW + 0.1, EMPTY, opened(rows=2), False) == Wait(pytest.approx(0.15))  # type: ignore[arg-type]


@pytest.mark.parametrize(("head", "action"), [(BEGINNING, COMMIT), (BEGINNING_AND_END, PUBLISH), (COMPLETE, PUBLISH)])
@pytest.mark.parametrize("has_waited", [True, False])
def test_a_prepared_commit_does_not_wait_for_an_end_that_is_not_here(
    head: QueueHead, action: Step, has_waited: bool
) -> None:
    # Others cannot read the progress as long as it is open in a transaction.
    made = prepared(schedule(gather_s=0.25))
    if has_waited:
        assert made.next(NOW, EMPTY, opened(), False) == Wait(0.25)
    assert made.next(NOW, head, opened(), False) is action


# Replays


def test_a_replay_goes_on_while_nothing_else_waits() -> None:
    made = schedule()
    assert [made.next(NOW, EMPTY, None, True) for _ in range(3)] == [REPLAY] * 3
    assert made.next(NOW, EMPTY, None, False) == Wait(HOUSEKEEPING_S)


def test_a_replay_takes_turns_with_the_stream() -> None:
    made = schedule()
    assert made.next(NOW, COMPLETE, None, True) is REPLAY
    assert made.next(NOW, COMPLETE, None, True) is PUBLISH
    assert made.next(NOW, COMPLETE, opened(rows=100), True) is COMMIT
    assert made.next(NOW, COMPLETE, None, True) is REPLAY
    assert made.next(NOW, COMPLETE, None, True) is PUBLISH


def test_rows_of_a_snapshot_wait_until_a_replay_is_finished() -> None:
    made = schedule()
    assert [made.next(NOW, SNAPSHOT, None, True) for _ in range(3)] == [REPLAY] * 3
    assert made.next(NOW, SNAPSHOT, None, False) is PUBLISH


def test_no_replay_begins_inside_a_kafka_transaction() -> None:
    made = published(schedule())
    assert made.next(NOW, COMPLETE, opened(), True) is PUBLISH
    assert made.next(NOW, EMPTY, opened(is_inside=True), True) == Wait(1.0)
    assert made.next(NOW, SNAPSHOT, opened(is_inside=True), True) is PUBLISH, (
        "it is inside a transaction, not behind it"
    )


def test_rows_of_a_snapshot_end_the_open_transaction_for_a_replay() -> None:
    made = published(schedule())
    assert made.next(NOW, SNAPSHOT_THEN_STREAM, opened(), True) is COMMIT
    assert made.next(NOW, SNAPSHOT_THEN_STREAM, None, True) is REPLAY


def test_rows_of_a_snapshot_that_come_while_a_flow_is_waited_for_wait_for_a_replay() -> None:
    made, flow = published(schedule()), opened(more_expected=True)
    assert made.next(NOW, EMPTY, flow, True) == Wait(FLOW_ENDS_AFTER_S)
    assert made.next(NOW, SNAPSHOT, flow, True) is COMMIT
    assert made.next(NOW, SNAPSHOT, None, True) is REPLAY


# The end


@pytest.mark.parametrize(
    ("head", "is_open", "is_inside", "has_replay", "action"),
    [
        (EMPTY, False, False, False, STOP),
        (COMPLETE, False, False, False, STOP),
        (COMPLETE, False, False, True, REPLAY),
        (COMPLETE, True, False, False, COMMIT),
        (COMPLETE, True, False, True, COMMIT),
        (COMPLETE, True, True, False, PUBLISH),
        (EMPTY, True, True, True, STOP),
    ],
)
def test_on_the_way_to_the_end(head: QueueHead, is_open: bool, is_inside: bool, has_replay: bool, action: Step) -> None:
    transaction = opened(is_inside=is_inside) if is_open else None
    assert schedule().finish(head, transaction, has_replay) is action


def test_committed_rows_do_not_wait_for_a_snapshot_whose_rows_come_after_them() -> None:
    rows, committed = Batch(), Batch()
    rows.snapshot_records, rows.more_expected = [], True
    committed.end_lsn, committed.transactions = 7, 1
    transaction = KafkaTransaction(0.0)
    transaction.add(rows)
    assert transaction.more_expected
    transaction.add(committed)
    transaction.add(rows)
    assert not transaction.more_expected
    rows.bytes = SNAPSHOT_BYTES
    alone = KafkaTransaction(0.0)
    alone.add(rows)
    assert not alone.more_expected, "rows of the stream may come, and wait until Kafka has these"
