"""Deliberate bugs in the copies of tables; see `mutations`."""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sim.mutations import MUTATIONS, mutation
from sim.snapshots import SimSnapshotExport

import cdcd.snapshot.chunks
from cdcd.daemon.snapshot_coordinator import SnapshotCoordinator
from cdcd.progress.snapshot_records import DONE, TableSnapshot
from cdcd.sink.parking.state import ParkedTables
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.table_copier import TableCopier
from cdcd.transaction.assembler import Assembler

_BEFORE = set(MUTATIONS)

_begin = cdcd.snapshot.chunks.begin
_units = cdcd.snapshot.chunks.units


def _registered(name: str, owner: str, what: Any) -> None:
    MUTATIONS[name] = lambda: patch(owner, what)


_registered(
    "leave out what has moved into blocks that are done",
    "cdcd.snapshot.chunks.units",
    lambda *how: [unit for unit in _units(*how) if unit.changed_since is None],
)
_registered(
    "look for what has moved since the last snapshot, not since the first",
    "cdcd.snapshot.chunks.begin",
    lambda *how: replace(_begin(*how), xmin=how[-1]),
)
_registered(
    "take blocks of a file that is gone for done",
    "cdcd.snapshot.chunks.begin",
    lambda copy, heaps, *how: _begin(
        replace(copy, done=tuple(replace(done, file_node=heaps[0].file_node) for done in copy.done)), heaps, *how
    ),
)


# The simulation has found this one.
_registered(
    "begin the rest of a copy with a truncate",
    "cdcd.snapshot.chunks.begin",
    lambda copy, *how: replace(_begin(copy, *how), again=copy.again or _begin(copy, *how).again),
)

OF_BROKEN_COPIES = MUTATIONS.keys() - _BEFORE
"""These show only in a copy that goes on after it was broken off."""


@mutation(Assembler, "pause_before")
def let_the_stream_run_past_the_snapshot(self: Assembler, lsn: int) -> None:
    pass


@mutation(ParkedTables, "copied")
def publish_changes_before_the_copy_is_whole(self: ParkedTables, copies: Collection[TableSnapshot], lsn: int) -> None:
    pass


_copied = ParkedTables.copied


@mutation(ParkedTables, "copied")
def leave_aside_what_was_set_aside(self: ParkedTables, copies: Collection[TableSnapshot], lsn: int) -> None:
    _copied(self, [copy for copy in copies if copy.state != DONE], lsn)


_start = TableCopier.start


@mutation(TableCopier, "start")
def give_rows_the_lsn_of_what_the_snapshot_does_not_show(self: TableCopier) -> None:
    self._lsn += 1
    _start(self)


_copier_begin = TableCopier.begin


@mutation(TableCopier, "begin")
def take_blocks_for_done_that_are_being_read(self: TableCopier, unit: Chunk) -> Any:
    if unit.done is not None:
        table = self._tables[unit.topic]
        table.copy = table.copy.with_blocks(unit.done)
        self._changed.add(unit.topic)
    return _copier_begin(self, unit)


@mutation(SnapshotCoordinator, "want")
def forget_what_is_asked_for_during_a_copy(self: SnapshotCoordinator, schema: str, table: str) -> None:
    if self.ended:
        _want(self, schema, table)


_want = SnapshotCoordinator.want


@mutation(SimSnapshotExport, "_lock")
def wait_for_the_lock_of_somebody_who_waits_for_us(
    self: SimSnapshotExport, oids: set[int]
) -> Generator[None, None, bool]:
    """TRUNCATE holds it until its COMMIT returns, which it does when the standby has it: we, who wait."""
    while oids & self.world.database.exclusive():
        yield
    return True


NAMES = MUTATIONS.keys() - _BEFORE
