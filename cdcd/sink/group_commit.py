"""When an open Kafka transaction is committed: group commit, as a policy with time as an argument.

Before: `worker` has published what was waiting. After: `worker` lets `publisher` commit if this says so.

The problem: a commit costs milliseconds whatever it holds, so a backlog wants few and large ones; a lone row wants to
be seen at once. Both come of one rule: commit as soon as nothing more is waiting, or on its way in an unbroken flow.
While a commit is under way the next batches gather. The bounds on rows, bytes and time hold only in a backlog.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from cdcd.errors import RequestRejected
from cdcd.lsn import format_lsn

_COMMIT_SHARE = 0.1
"""Of the transaction timeout, kept for flush and commit."""

GATHER_S: Final = 0.001
"""From a transaction's first record until librdkafka asks for its partitions (`rd_kafka_txn_add_partition`). Measured
at 1,000 and 3,000 single-row transactions a second: p50 6.5 and 7.7 ms without, 4.9 and 5.9 with; with 1.5 ms the same.
"""

FIRST_LINGER_MS: Final = 20
"""Of the first transaction after a start: who waits for what lies in the slot has waited for the start already."""


@dataclass(frozen=True)
class KafkaTransactionStats:
    """The open Kafka transaction, as far as the policy needs it."""

    opened_at: float
    """Seconds, on the caller's monotonic clock."""
    rows: int
    bytes: int
    inside: bool
    """It ends, so far, in the middle of a PostgreSQL transaction."""
    end_lsn: int
    """Of the last whole PostgreSQL transaction inside; 0 if there is none."""
    first: bool = False
    """Nothing was committed before it since the start."""


@dataclass(frozen=True)
class GroupCommit:
    """The bounds."""

    rows_max: int
    bytes_max: int
    linger_ms: int
    timeout_ms: int | None
    """The broker's patience with an open transaction (`transaction.timeout.ms`); None: it knows of none."""
    gather_s: float = 0.0
    """What comes within so many seconds of the first row is in time for its commit; 0: it is committed at once."""

    def should_commit(self, now: float, open_: KafkaTransactionStats, waiting: bool) -> bool:
        """Whether to commit now; `waiting` tells that another batch can be published now or in a moment.

        If not, and nothing is waiting, then in `gathers_s`.
        Never inside a PostgreSQL transaction: then Kafka's would hold half of it. Raises RequestRejected (see `check`).
        """
        if open_.inside:
            self.check(now, open_)
            return False
        linger_ms = min(FIRST_LINGER_MS, self.linger_ms) if open_.first else self.linger_ms
        return (
            (not waiting and self.gathers_s(now, open_) <= 0)
            or open_.rows >= self.rows_max
            or open_.bytes >= self.bytes_max
            or (now - open_.opened_at) * 1000 >= linger_ms
        )

    def gathers_s(self, now: float, open_: KafkaTransactionStats) -> float:
        """For how many seconds rows may still join at no cost; 0 without a row: nothing is to be asked for yet."""
        return max(0.0, open_.opened_at + self.gather_s - now) if open_.rows else 0.0

    def patience_s(self, now: float, open_: KafkaTransactionStats) -> float:
        """Seconds until an open PostgreSQL transaction can no longer be committed in time; not below 0."""
        if self.timeout_ms is None:
            return inf
        return max(0.0, open_.opened_at + self.timeout_ms / 1000 * (1 - _COMMIT_SHARE) - now)

    def check(self, now: float, open_: KafkaTransactionStats) -> None:
        """Raise RequestRejected if a PostgreSQL transaction has been open in Kafka for longer than the broker allows.

        A replay would take as long and end the same way, so a person must choose.
        """
        if self.timeout_ms is not None and open_.inside and self.patience_s(now, open_) <= 0:
            after = f" after {format_lsn(open_.end_lsn)}" if open_.end_lsn else ""
            raise RequestRejected(
                f"a PostgreSQL transaction{after} was not published within {now - open_.opened_at:.0f} s "
                f"({open_.rows:,} rows, {open_.bytes:,} bytes so far), and Kafka ends a transaction "
                f"after {self.timeout_ms / 1000:.0f} s (transaction.timeout.ms)",
                "Raise transaction.max.timeout.ms on the brokers, which cdcd takes over by itself where it may see it "
                "and transaction.timeout.ms is not set under sink.librdkafka; or make such "
                'transactions smaller; or set sink.delivery="at_least_once", which needs no Kafka transaction.',
            )
