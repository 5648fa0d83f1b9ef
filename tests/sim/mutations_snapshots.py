"""Deliberate bugs in the snapshots of tables; see `mutations`."""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sim.mutations import MUTATIONS, mutation
from sim.snapshots import SimSnapshotExport

import cdcd.snapshot.chunks
from cdcd.daemon.snapshot_coordinator import Action, SnapshotCoordinator, SnapshotState
from cdcd.progress.snapshot_records import DONE, TableSnapshot
from cdcd.sink.parking.state import ParkedTables
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.encoder import SnapshotEncoder
from cdcd.transaction.assembler import Assembler

_BEFORE = set(MUTATIONS)

_begin = cdcd.snapshot.chunks.begin
_divide = cdcd.snapshot.chunks.divide


def _registered(name: str, owner: str, what: Any) -> None:
    MUTATIONS[name] = lambda: patch(owner, what)


_registered(
    "leave out what has moved into blocks that are done",
    "cdcd.snapshot.chunks.divide",
    lambda *how: [chunk for chunk in _divide(*how) if chunk.changed_since is None],
)
_registered(
    "look for what has moved since the last snapshot, not since the first",
    "cdcd.snapshot.chunks.begin",
    lambda *how: replace(_begin(*how), xmin=how[-1]),
)
_registered(
    "take blocks of a file that is gone for done",
    "cdcd.snapshot.chunks.begin",
    lambda table, heaps, *how: _begin(
        replace(table, done=tuple(replace(done, file_node=heaps[0].file_node) for done in table.done)), heaps, *how
    ),
)


# The simulation has found this one.
_registered(
    "begin the rest of a snapshot with a truncate",
    "cdcd.snapshot.chunks.begin",
    lambda table, *how: replace(
        _begin(table, *how),
        starts_with_truncate=table.starts_with_truncate or _begin(table, *how).starts_with_truncate,
    ),
)

OF_BROKEN_SNAPSHOTS = MUTATIONS.keys() - _BEFORE
"""These show only in a snapshot that goes on after it was broken off."""


@mutation(Assembler, "pause_before")
def let_the_stream_run_past_the_snapshot(self: Assembler, lsn: int) -> None:
    pass


@mutation(ParkedTables, "on_snapshots")
def publish_changes_before_the_snapshot_is_complete(
    self: ParkedTables, copies: Collection[TableSnapshot], lsn: int
) -> None:
    pass


_copied = ParkedTables.on_snapshots


@mutation(ParkedTables, "on_snapshots")
def leave_deferred_what_was_deferred(self: ParkedTables, copies: Collection[TableSnapshot], lsn: int) -> None:
    _copied(self, [copy for copy in copies if copy.state != DONE], lsn)


_start = SnapshotEncoder.start


@mutation(SnapshotEncoder, "start")
def give_rows_the_lsn_of_what_the_snapshot_does_not_show(self: SnapshotEncoder) -> None:
    self._lsn += 1
    _start(self)


_begin_chunk = SnapshotEncoder.begin_chunk


@mutation(SnapshotEncoder, "begin_chunk")
def take_blocks_for_done_that_are_being_read(self: SnapshotEncoder, chunk: Chunk) -> Any:
    if chunk.completes is not None:
        table = self._tables[chunk.topic]
        table.record = table.record.with_range(chunk.completes)
        self._changed.add(chunk.topic)
    return _begin_chunk(self, chunk)


@mutation(SnapshotCoordinator, "request")
def forget_what_is_asked_for_during_a_snapshot(self: SnapshotCoordinator, schema: str, table: str) -> None:
    if self.state is SnapshotState.IDLE:
        _request(self, schema, table)


_request = SnapshotCoordinator.request


@mutation(SimSnapshotExport, "_lock")
def wait_for_the_lock_of_somebody_who_waits_for_us(
    self: SimSnapshotExport, oids: set[int]
) -> Generator[None, None, bool]:
    """TRUNCATE holds it until its COMMIT returns, which it does when its standby has it: this daemon, which waits."""
    while oids & self.world.database.exclusive():
        yield
    return True


_read_rows = SnapshotCoordinator._read_rows


@mutation(SnapshotCoordinator, "_read_rows")
def resume_the_stream_without_the_first_batch(self: SnapshotCoordinator, *how: Any, consistent_lsn: int = 0) -> Action:
    """The tables are deferred only from the batch on that says so: what the stream has before it is published."""
    action = _read_rows(self, *how, consistent_lsn=consistent_lsn)
    return replace(action, batch=None) if consistent_lsn else action


NAMES = MUTATIONS.keys() - _BEFORE
