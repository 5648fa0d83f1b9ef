"""How far the reading of tables is, in blocks: for people, who want to see a copy move. Pure.

Before: `encoder` says which chunks begin and end, and how many rows came.
After: `monitoring` shows the progress. What Kafka has is in `progress.snapshot_records`.

The blocks of a chunk that is being read are estimated by its rows: COPY does not tell them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdcd.snapshot.chunks import Chunk

SHARE_MAX: Final = 0.95
"""Of a chunk, as long as it is being read: an estimate must not call it read."""


@dataclass(frozen=True)
class TableProgress:
    """One table of a snapshot at one moment."""

    schema: str
    table: str
    rows: int
    """Rows read, those of earlier starts included."""
    blocks: int
    """All blocks that are to be read."""
    blocks_left: int
    is_done: bool


@dataclass(frozen=True)
class SnapshotProgress:
    """A snapshot that is under way."""

    is_read: bool
    """Its rows are being read. If not, PostgreSQL prepares it, or the stream comes to its LSN."""
    lsn: int = 0
    """The consistent point; 0 before the snapshot is taken."""
    tables: tuple[TableProgress, ...] = ()
    seconds_left: int | None = None
    """At the rate so far; None if that is not known yet."""
    waiting: int = 0
    """Nothing is under way, and so many tables wait for the hours of snapshots."""


class ReadingProgress:
    """The progress of one table. One thread writes, any thread reads."""

    def __init__(self, chunks: list[Chunk]) -> None:
        """`chunks`: all that is left to read."""
        self.blocks = sum(map(blocks_of, chunks))
        self._blocks_read = 0
        self._rows_read = 0
        """Of the chunks that were read to their end."""
        self._reading: dict[Chunk, int] = {}
        """The rows so far of the chunks that are being read. The whole dict is replaced: other threads iterate it."""

    def begin(self, chunk: Chunk) -> None:
        """A chunk is being read."""
        self._reading = {**self._reading, chunk: 0}

    def add(self, chunk: Chunk, rows: int) -> None:
        """Rows of a chunk were read."""
        self._reading[chunk] += rows

    def end(self, chunk: Chunk) -> None:
        """A chunk was read to its end."""
        self._rows_read += self._reading[chunk]
        self._blocks_read += blocks_of(chunk)
        self._reading = {each: rows for each, rows in self._reading.items() if each != chunk}

    @property
    def blocks_left(self) -> int:
        """The blocks that are left to read, as far as it can be estimated."""
        reading = sum(self._estimate(chunk, rows) for chunk, rows in self._reading.items())
        return max(0, self.blocks - self._blocks_read - int(reading))

    def _estimate(self, chunk: Chunk, rows: int) -> float:
        """How many blocks of a chunk `rows` rows have filled."""
        heap, blocks = chunk.heap, blocks_of(chunk)
        rows_a_block = self._rows_read / self._blocks_read if self._rows_read and self._blocks_read else 0.0
        if not rows_a_block and heap.blocks:
            rows_a_block = heap.rows / heap.blocks  # the planner's estimate: 0 for a table that was never analyzed
        return min(rows / rows_a_block, SHARE_MAX * blocks) if rows_a_block else 0.0


def blocks_of(chunk: Chunk) -> int:
    """How many blocks a chunk has. A heap that cannot be read by block is one chunk."""
    return chunk.end - chunk.first if chunk.heap.in_blocks else chunk.heap.blocks
