"""What is to be read of a table: units of work, each a range of blocks of one heap. Pure.

Before: `source.heaps` says where the rows lie, `progress.copies` what Kafka has of them.
After: `reader` reads a unit.

A table is read once from its first block to its last. After a crash the rest is read under a later snapshot, and the
stream between the two snapshots has been published meanwhile. That does not make a row whole that had moved, by an
UPDATE, from a block that was not read yet to one that was: the stream shows the update, but not the TOAST values that
it left alone. So of the blocks that are done, the rows written since the first snapshot are read again. A row that is
read twice is published twice, each time as of its own snapshot: readers that go by key take the later one.

Readers cannot do so in a table without a key, where rows have no name: its copy always begins with a truncate event,
for what the stream showed of it before, and after a crash it begins again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cdcd.progress.snapshot_records import COPYING, DONE, WANTED, CompletedRange, TableSnapshot
from cdcd.source.heaps import Heap

XID_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class Chunk:
    """One COPY."""

    topic: str
    """Of the table it belongs to."""
    heap: Heap
    first: int
    end: int
    """Blocks, end-exclusive."""
    last: bool
    """Also all blocks behind `end`: the heap may have grown since it was measured."""
    changed_since: int | None
    """Only rows written by this transaction (64 bits) or a later one."""

    @property
    def done(self) -> CompletedRange | None:
        """What Kafka holds once it is published; None if it did before."""
        return (
            None
            if self.changed_since is not None
            else CompletedRange(self.heap.oid, self.heap.file_node, self.first, self.end)
        )


def begin(copy: TableSnapshot, heaps: list[Heap], keyed: bool, lsn: int, xmin: int) -> TableSnapshot:
    """The copy as it stands when rows of the snapshot at `lsn`, whose oldest transaction is `xmin`, begin to come."""
    assert copy.state != DONE
    if copy.state == COPYING and keyed:
        current = {(heap.oid, heap.file_node) for heap in heaps}
        kept = tuple(done for done in copy.done if (done.heap, done.file_node) in current)
        if kept:
            # The truncate event that an asked-for copy begins with stands before these rows, and must not come again.
            return replace(copy, lsn=lsn, done=kept, again=False)
    again = copy.again or not keyed
    return replace(copy, state=COPYING, lsn=lsn, xmin=xmin, done=(), again=again, rows=0 if again else copy.rows)


def units(copy: TableSnapshot, heaps: list[Heap], blocks: int) -> list[Chunk]:
    """What is left to read of a table, in units of about so many blocks. At least one, if the table has a heap."""
    assert copy.state not in (WANTED, DONE)
    found: list[Chunk] = []
    for heap in heaps:
        if not heap.in_blocks:
            found.append(Chunk(copy.topic, heap, 0, 0, True, None))
            continue
        at = 0
        for done in (*[d for d in copy.done if d.heap == heap.oid], None):
            stop = heap.blocks if done is None else done.first
            while at < stop or (done is None and at == stop == 0):
                end = min(stop, at + blocks) if stop else 0
                found.append(Chunk(copy.topic, heap, at, end, done is None and end == stop, None))
                at = end
                if stop == 0:
                    break
            if done is not None:
                found.append(Chunk(copy.topic, heap, done.first, done.end, False, copy.xmin))
                at = done.end
    return found
