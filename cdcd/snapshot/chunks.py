"""Divides a table into chunks: ranges of blocks of one heap, each read by one COPY. Pure.

Before: `source.heaps` says where the rows lie, `progress.snapshot_records` what Kafka has of them.
After: `reader` reads a chunk.

A table is read once from its first block to its last. After a crash the rest is read under a later snapshot, and the
stream between the two snapshots has been published meanwhile. This is not enough for a row that an UPDATE moved from a
block that was not read yet to one that was: the stream shows the update, but not the TOAST values that it left
unchanged. So in the blocks that are done, the rows written since the first snapshot are read a second time. They are
published a second time, too, each time as of its own snapshot: a reader that goes by key takes the later one.

In a table without a key a reader cannot tell such rows apart. So its snapshot begins with a truncate event, which
removes what the stream showed of the table before, and after a crash it begins from the start. It does so, too, if the
key has changed since the first rows: these are under the old key. And so it does if the condition of its rows is
another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cdcd.progress.snapshot_records import DONE, RUNNING, WANTED, CompletedRange, TableSnapshot
from cdcd.source.heaps import Heap

XID_MASK: Final = 0xFFFFFFFF

BLOCK_BYTES: Final = 8_192


@dataclass(frozen=True)
class Chunk:
    """The part of a table that one COPY reads."""

    topic: str
    """The topic of the table."""
    heap: Heap
    first: int
    end: int
    """Block numbers, end-exclusive."""
    to_the_end: bool
    """Blocks after `end` are read, too: the heap may have grown since it was measured."""
    changed_since: int | None
    """Only rows that this transaction (64 bits) or a later one wrote; None: all rows."""

    @property
    def completes(self) -> CompletedRange | None:
        """The range that Kafka holds once the chunk is published; None if Kafka held it before."""
        if self.changed_since is not None:
            return None
        return CompletedRange(self.heap.oid, self.heap.file_node, self.first, self.end)


def begin(
    table: TableSnapshot, heaps: list[Heap], key: tuple[str, ...], lsn: int, xmin: int, where: str = ""
) -> TableSnapshot:
    """Return how far a table is when the first rows of a snapshot come.

    `key` are the columns of its key, `lsn` is the consistent point of that snapshot, `xmin` its oldest transaction
    (64 bits). `where`: the condition of the rows.
    """
    assert table.state != DONE
    is_same = table.key_columns in (None, key) and table.where == where
    if table.state == RUNNING and key and is_same:
        current = {(heap.oid, heap.file_node) for heap in heaps}
        kept = tuple(done for done in table.done if (done.heap, done.file_node) in current)
        if kept:
            # A truncate event that the snapshot began with stands before these rows. It must not come a second time.
            return replace(table, lsn=lsn, done=kept, starts_with_truncate=False, key_columns=key)
    truncate = table.starts_with_truncate or not key or (table.state == RUNNING and not is_same)
    return replace(
        table,
        state=RUNNING,
        lsn=lsn,
        xmin=xmin,
        done=(),
        starts_with_truncate=truncate,
        rows=0 if truncate else table.rows,
        key_columns=key,
        where=where,
    )


def divide(table: TableSnapshot, heaps: list[Heap], blocks: int) -> list[Chunk]:
    """Return what is left to read of a table, in chunks of about `blocks` blocks. At least one if it has a heap."""
    assert table.state not in (WANTED, DONE)
    found: list[Chunk] = []
    for heap in heaps:
        if not heap.in_blocks:
            found.append(Chunk(table.topic, heap, 0, 0, True, None))
            continue
        at = 0
        for done in (*[d for d in table.done if d.heap == heap.oid], None):
            stop = heap.blocks if done is None else done.first
            while at < stop or (done is None and at == stop == 0):
                end = min(stop, at + blocks) if stop else 0
                found.append(Chunk(table.topic, heap, at, end, done is None and end == stop, None))
                at = end
                if stop == 0:
                    break
            if done is not None:
                found.append(Chunk(table.topic, heap, done.first, done.end, False, table.xmin))
                at = done.end
    return found
