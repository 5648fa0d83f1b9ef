"""Compares tables with their topics after a gap, one after the other, and has the rows that differ repaired. Pure.

Before: a start has declared a gap (`gap_declaration`), and `snapshot_requests` knows which tables are to be compared.
After: `table_comparison` compares a table. One batch for the sink records the result: the repairs of the rows that
differ, and that the table was compared. The snapshot coordinator then repairs these rows, as if a person had
asked for it, and records with the last one that the topic has all rows.

So a daemon may die at any moment: the next one finds a table that is to be compared, repairs that are left, or a table
that is complete. A table whose rows cannot be repaired one by one gets a new snapshot, unless the settings forbid that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from cdcd.daemon.recopies import Table
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.daemon.table_comparison import Compared, TableComparison
from cdcd.lsn import format_lsn
from cdcd.progress.daemon_requests import REPAIR, Request
from cdcd.progress.repair_records import RepairKeys
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.sink.batches import Batch, RepairBatch
from cdcd.source.table_selection import qualified_name

log = logging.getLogger(__name__)


class Repairer(Protocol):
    """The snapshot coordinator."""

    def request(self, schema: str, table: str) -> None:
        """Take a request for a new snapshot of a table."""

    def request_repair(self, schema: str, table: str, keys: RepairKeys) -> None:
        """Take a request for the repair of some rows of a table."""


class GapRepairs:
    """The comparisons of one stream. For the thread that owns the stream."""

    def __init__(
        self, requests: SnapshotRequests, repairer: Repairer, start: Callable[[Table], TableComparison] | None
    ) -> None:
        """`start` starts the comparison of a table; None: no table is compared in this stream."""
        self._requests = requests
        self._repairer = repairer
        self._start = start
        self._running: TableComparison | None = None
        self._table: Table = ("", "")

    @property
    def waits(self) -> bool:
        """A comparison waits until Kafka has everything before its LSN, also if nothing is published."""
        return self._running is not None and self._running.waits

    def turn(self) -> Batch | None:
        """Advance without waiting. Returns the batch that records what became of a table.

        Call it only if a batch can be handed on. Raises what a comparison raises.
        """
        if self._running is None:
            table = None if self._start is None else self._requests.to_compare()
            if self._start is not None and table is not None:
                self._table, self._running = table, self._start(table)
            return None
        found = self._running.found
        if found is None:
            return None
        self._running = None
        if not self._requests.is_to_compare(*self._table):
            return None  # a new snapshot was asked for meanwhile
        return self._copy(found.refused) if found.refused else self._repair(found)

    def _copy(self, why: str) -> Batch:
        request, name = self._requests.end_repair(*self._table), qualified_name(*self._table)
        if request.wants_snapshot:
            log.warning("%s gets a new snapshot after the gap: %s", name, why)
            self._repairer.request(*self._table)
        else:
            log.warning("the topic of %s lacks rows after the gap, and [[table]] forbids to copy it: %s", name, why)
        return _batch([], [request])

    def _repair(self, found: Compared) -> Batch:
        log.info(
            "compared a table after the gap",
            extra={
                "table": qualified_name(*self._table),
                "lsn": format_lsn(found.lsn),
                "rows": found.rows,
                "differences": found.differences,
            },
        )
        record = self._requests.compared(*self._table, found.lsn, differs=bool(found.repairs))
        for keys in found.repairs:
            self._repairer.request_repair(*self._table, keys)
        return _batch([record], [Request(REPAIR, self._table, repair=keys) for keys in found.repairs])

    def close(self) -> None:
        """Give the comparison up."""
        if self._running is not None:
            self._running.close()


def _batch(snapshots: list[TableSnapshot], requests: list[Request]) -> Batch:
    """A batch without rows and without a position."""
    batch = RepairBatch(Batch(), [], snapshots)
    batch.snapshot_records = []
    batch.requests = requests
    return batch
