"""Knows the transactions that Kafka has, and checks that the server sends the same ones again after a restart.

Before: `assembler` and `spooled_transactions` ask for every transaction whether Kafka has it.
After: GapError ends the stream before a row of another history is published.
Source: PostgreSQL, "Logical Decoding Concepts" (a slot may send changes again); `SnapBuildXactNeedsSkip`.

The problem: a server may be put back to an earlier state (a restored volume, a copied data directory) without a new
timeline. If it has written on since, beyond the position up to which Kafka holds everything, then neither its system id
nor its WAL position shows that. The daemon would drop the rows of the new history as if Kafka had them.

The slot shows it. A slot that is confirmed beyond the last published transaction has lived through it. Otherwise the
server sends again everything from the confirmed LSN on. So:

1. The last published transaction must come again: the same commit LSN, the same commit time. It had rows: PostgreSQL
   15 and later leaves out a transaction without rows, but not if it streamed it while it was in progress.
2. After it, up to the position of the last slot record, no transaction has rows, truncates or messages: the record says
   that there was nothing to publish. Changes that need not be events do not count, such as those of the table of
   requests, or a delete of an outbox.

A logical message outside of transactions has no commit time: its position is not aligned, and its time is not compared.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, final

from mypy_extensions import i64

from cdcd.errors import GapError
from cdcd.lsn import format_lsn

_ALIGNMENT: Final[i64] = 8
"""PostgreSQL's WAL records begin at multiples of it (MAXALIGN)."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

HINT: Final = (
    "If a setting of what is published was changed, in source, outbox, row or debezium, put it back until the daemon "
    "has caught up once. Otherwise the server was restored to an earlier state: some published rows are not in the "
    "database any more; run: cdcd adopt"
)


@final
class SentAgain:
    """Knows, for one stream, the transactions that Kafka has."""

    def __init__(
        self, durable_lsn: i64 = 0, commit_lsn: i64 = 0, commit_ts: i64 = 0, confirmed_lsn: i64 = 0, since_lsn: i64 = -1
    ) -> None:
        """`durable_lsn`: Kafka has every transaction that commits below it.

        `commit_lsn` and `commit_ts` (microseconds since 1970 UTC) are those of the last published transaction; 0: there
        is none. The server sends every transaction that commits at `confirmed_lsn` or later. Below `since_lsn` Kafka
        need not have what the server sends: it has snapshots instead; -1: it need not have any of it.
        """
        self._durable_lsn: i64 = durable_lsn
        self._commit_lsn: i64 = commit_lsn
        self._commit_ts: i64 = commit_ts
        self._since_lsn: i64 = durable_lsn if since_lsn == -1 else since_lsn
        self.awaits_last_published = commit_lsn != 0 and max(confirmed_lsn, self._since_lsn) <= commit_lsn
        """The last published transaction must come again, and has not."""
        self._skipped_lsn: i64 = 0
        """Commit LSN of the last transaction that Kafka has."""

    def has(self, commit_lsn: i64, commit_ts: i64) -> bool:
        """Whether Kafka has the transaction that commits there and then.

        Raises GapError if the last published transaction does not come again, or not as it was.
        """
        if self.awaits_last_published:
            self._await(commit_lsn, commit_ts)
        if commit_lsn < self._durable_lsn:
            self._skipped_lsn = commit_lsn
            return True
        return False

    @property
    def expects_no_rows(self) -> bool:
        """Whether the progress says that the transaction that Kafka has, the last one of `has`, has no rows."""
        return self._commit_lsn < self._skipped_lsn and self._since_lsn <= self._skipped_lsn

    def check_rows(self) -> None:
        """That transaction has rows. Raises GapError if it cannot have any."""
        if self.expects_no_rows:
            raise GapError(
                f"the server has a transaction with events that commits at {format_lsn(self._skipped_lsn)}, but the "
                f"progress in Kafka, up to {format_lsn(self._durable_lsn)}, says that there is none",
                HINT,
                code="server-behind-kafka",
            )

    def on_position(self, lsn: i64) -> None:
        """The server has sent everything that commits before `lsn`. Raises GapError as `has`."""
        if self.awaits_last_published and lsn > self._commit_lsn:
            raise self._missing(f"the server's stream is at {format_lsn(lsn)}")

    def _await(self, commit_lsn: i64, commit_ts: i64) -> None:
        if commit_lsn > self._commit_lsn:
            raise self._missing(f"the next one that the server has commits at {format_lsn(commit_lsn)}")
        if commit_lsn == self._commit_lsn:
            if commit_lsn % _ALIGNMENT == 0 and commit_ts != self._commit_ts:
                raise self._missing(f"the one that the server has there committed at {_time(commit_ts)}")
            self.awaits_last_published = False

    def _missing(self, found: str) -> GapError:
        return GapError(
            f"the last transaction in Kafka committed at {format_lsn(self._commit_lsn)} ({_time(self._commit_ts)}), "
            f"and the server does not have it: {found}",
            HINT,
            code="server-behind-kafka",
        )


def _time(microseconds: i64) -> str:
    return (_EPOCH + timedelta(microseconds=int(microseconds))).isoformat(sep=" ", timespec="microseconds")
