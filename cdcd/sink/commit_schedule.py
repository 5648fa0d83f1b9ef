"""Decides the sink's next action: group commit as a pure policy with the time as an argument.

Before: `batch_queue` says what waits, `publisher` which Kafka transaction is open.
After: `worker` executes the action, and asks again.

The problem: a commit costs milliseconds whatever it holds. So a backlog wants few and large Kafka transactions, but a
lone row wants to be seen at once. One rule serves both: commit as soon as no batch waits, and none is expected within
milliseconds. While a commit is under way the next batches gather. The bounds on rows, bytes and time hold only in a
backlog.

The other rules:

1. A Kafka transaction never ends inside a PostgreSQL transaction: its readers would see half of it.
2. Committed rows do not wait for the rows of a snapshot: there are always more of these.
3. From a transaction's first record on, librdkafka waits a millisecond before it asks the coordinator for the
   partitions. Rows that come meanwhile join at no cost (`gather_s`), and the sink prepares the commit.
4. A replay of parked events takes turns with the stream: one chunk, in a Kafka transaction of its own, whenever none is
   open. Rows of a snapshot wait until the replay is finished: they may be of the same table.
5. Complete transactions do not wait for the end of a large one after them. A prepared commit does not wait for it
   either.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, TypeAlias

from cdcd.errors import RequestRejected
from cdcd.lsn import format_lsn
from cdcd.sink.batch_queue import QueueHead
from cdcd.sink.batches import Batch
from cdcd.sink.kafka_transaction import KafkaTransaction

_COMMIT_SHARE: Final = 0.1
"""The share of the transaction timeout that is kept for flush and commit."""

GATHER_S: Final = 0.001
"""From a transaction's first record until librdkafka asks for its partitions (`rd_kafka_txn_add_partition`). Measured
at 1,000 and 3,000 single-row transactions a second: p50 6.5 and 7.7 ms without, 4.9 and 5.9 with; with 1.5 ms the same.
"""

FIRST_LINGER_MS: Final = 20
"""Shorter linger for the first Kafka transaction after a start: the backlog has already waited for the restart."""

FLOW_ENDS_AFTER_S: Final = 0.01
"""A flow has ended if no batch came for this long."""

HOUSEKEEPING_S: Final = 1.0
"""While no batch comes, the client gets a turn this often: it reports lost brokers and renews its tokens."""


class Step(Enum):
    """Something to do at once."""

    PUBLISH = "publish"
    """Put the queue's head into the open Kafka transaction; open one if none is."""
    COMMIT = "commit"
    """Commit the open Kafka transaction."""
    PREPARE = "prepare"
    """The commit comes in a moment: do the part of it that can be done early."""
    REPLAY = "replay"
    """Replay a chunk of parked events, in a Kafka transaction of its own."""
    STOP = "stop"
    """End; abort the open Kafka transaction, if there is one."""


@dataclass(frozen=True)
class Wait:
    """Wait for a batch."""

    seconds: float
    """For this long at most; the queue is empty."""


Action: TypeAlias = "Step | Wait"


class CommitSchedule:
    """The schedule of one run. It remembers its last action, and whether a commit is prepared."""

    def __init__(
        self,
        rows_max: int,
        bytes_max: int,
        linger_ms: int,
        timeout_ms: int | None,
        gather_s: float = 0.0,
        housekeeping_s: float = HOUSEKEEPING_S,
    ) -> None:
        """A backlog is committed at `rows_max` rows, `bytes_max` bytes, or when the transaction is `linger_ms` old.

        `timeout_ms` is how long the broker leaves a transaction open (`transaction.timeout.ms`); None: there are no
        transactions. Rows that come within `gather_s` seconds after the first row join its commit; 0: it is committed
        at once. While no batch comes, the client gets a turn every `housekeeping_s` seconds.
        """
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._linger_ms = linger_ms
        self._timeout_ms = timeout_ms
        self._gather_s = gather_s
        self._housekeeping_s = housekeeping_s
        self._last: Action = Step.STOP
        self._is_prepared = False
        """The open transaction is to be committed in a moment."""

    def next(self, now: float, queue: QueueHead, transaction: KafkaTransaction | None, has_replay: bool) -> Action:
        """Return what to do now.

        `now` is in seconds, on the clock of `transaction.opened_at`; `transaction` is the open one; with `has_replay`
        parked events are to be replayed. Raises RequestRejected if a PostgreSQL transaction has been open in Kafka for
        longer than the broker allows: a replay would take as long and end the same way, so a person must choose.
        """
        action = self._next(now, queue, transaction, has_replay)
        self._last = action
        return action

    def finish(self, queue: QueueHead, transaction: KafkaTransaction | None, has_replay: bool) -> Action:
        """Return what to do now, on the way to the end of the run.

        The open Kafka transaction is committed as soon as it holds complete PostgreSQL transactions. If the queue does
        not have their end, it is aborted. Then the replays are finished. The action is never Wait.
        """
        if transaction is None:
            return Step.REPLAY if has_replay else Step.STOP
        if not transaction.is_inside:
            return Step.COMMIT
        return Step.STOP if queue.batch is None else Step.PUBLISH

    def _next(self, now: float, queue: QueueHead, transaction: KafkaTransaction | None, has_replay: bool) -> Action:
        last, head = self._last, queue.batch
        is_inside = transaction is not None and transaction.is_inside
        is_snapshot = head is not None and head.snapshot_records is not None
        waits_for_replay = is_snapshot and has_replay and not is_inside
        has_come = isinstance(last, Wait) and head is not None and not waits_for_replay
        if not has_come:
            if transaction is not None and (last is Step.PUBLISH or isinstance(last, Wait)):
                action = self._commit_or_prepare(now, queue, transaction, flows=last is Step.PUBLISH)
                if action is not None:
                    return action
            if waits_for_replay and transaction is not None:
                return Step.COMMIT
            if has_replay and transaction is None:
                is_stream_next = last is Step.REPLAY and head is not None and not is_snapshot
                if not is_stream_next:
                    return Step.REPLAY
        if head is None:
            return Wait(self._wait_s(now, transaction))
        if transaction is not None and self._commits_before(head, queue, transaction):
            return Step.COMMIT
        return Step.PUBLISH

    def _commit_or_prepare(
        self, now: float, queue: QueueHead, transaction: KafkaTransaction, *, flows: bool
    ) -> Action | None:
        """Return COMMIT or PREPARE; None if more is to join the open transaction first.

        Call it once a batch was published (`flows`), or no batch came in time.
        """
        # Committed rows do not wait for a snapshot: only a batch of the stream is worth waiting for.
        waits = queue.has_stream_batch if transaction.end_lsn else queue.batch is not None
        more = waits or (flows and transaction.more_expected)
        snapshot_is_next = not more and not transaction.is_inside and queue.batch is not None
        if snapshot_is_next or self._must_commit(now, transaction, more):
            self._is_prepared = False
            return Step.COMMIT
        self._is_prepared = not (more or transaction.is_inside)
        return Step.PREPARE if self._is_prepared else None

    def _must_commit(self, now: float, transaction: KafkaTransaction, more: bool) -> bool:
        if transaction.is_inside:
            self._raise_if_too_old(now, transaction)
            return False
        linger_ms = min(FIRST_LINGER_MS, self._linger_ms) if transaction.is_first else self._linger_ms
        return (
            (not more and self._gathers_for_s(now, transaction) <= 0)
            or transaction.rows >= self._rows_max
            or transaction.bytes >= self._bytes_max
            or (now - transaction.opened_at) * 1000 >= linger_ms
        )

    def _commits_before(self, head: Batch, queue: QueueHead, transaction: KafkaTransaction) -> bool:
        """Whether to commit before `head` is published: it begins a PostgreSQL transaction without its end.

        The end may be distant. Or the Kafka commit is prepared: until it is done, the open transaction hides the
        progress of other slots from readers.
        """
        is_endless = head.commit_is_distant or (head.ends_inside_transaction and self._is_prepared)
        return is_endless and not transaction.is_inside and not queue.has_later_commit

    def _wait_s(self, now: float, transaction: KafkaTransaction | None) -> float:
        if transaction is None:
            return self._housekeeping_s
        if transaction.is_inside:
            return min(self._housekeeping_s, self._time_left_s(now, transaction))
        wait_s = self._gathers_for_s(now, transaction) if self._is_prepared else FLOW_ENDS_AFTER_S
        return min(self._housekeeping_s, wait_s)

    def _gathers_for_s(self, now: float, transaction: KafkaTransaction) -> float:
        """Return for how many seconds rows may still join at no cost; 0 without a row: librdkafka asks nothing yet."""
        return max(0.0, transaction.opened_at + self._gather_s - now) if transaction.rows else 0.0

    def _time_left_s(self, now: float, transaction: KafkaTransaction) -> float:
        """Return the seconds until an open PostgreSQL transaction can no longer be committed in time; not below 0."""
        if self._timeout_ms is None:
            return inf
        return max(0.0, transaction.opened_at + self._timeout_ms / 1000 * (1 - _COMMIT_SHARE) - now)

    def _raise_if_too_old(self, now: float, transaction: KafkaTransaction) -> None:
        if self._timeout_ms is not None and self._time_left_s(now, transaction) <= 0:
            after = f" after {format_lsn(transaction.end_lsn)}" if transaction.end_lsn else ""
            raise RequestRejected(
                f"a PostgreSQL transaction{after} was not published within {now - transaction.opened_at:.0f} s "
                f"({transaction.rows:,} rows, {transaction.bytes:,} bytes so far), and Kafka ends a transaction "
                f"after {self._timeout_ms / 1000:.0f} s (transaction.timeout.ms)",
                "Raise transaction.max.timeout.ms on the brokers: cdcd uses it by itself if it may see it and "
                "transaction.timeout.ms is not set under sink.librdkafka. Or make such transactions smaller. Or set "
                'sink.delivery="at_least_once", which needs no Kafka transaction.',
                code="transaction-too-long",
            )
