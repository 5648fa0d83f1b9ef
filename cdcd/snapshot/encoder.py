"""Turns the rows of a snapshot into events, and tracks how far each table is. No I/O.

Before: `reader` has messages of COPY.
After: the consumer's events go into a batch. The `progress.snapshot_records` of the tables go with it, so that rows and
progress become durable together.

A row of the snapshot at the consistent point L is an event `r` with the commit LSN L - 1, where no commit record can
be: it sorts after every transaction that the snapshot shows, and before every one that it does not show (from L on).
`seq` counts on over all tables of one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from cdcd.progress.snapshot_records import DONE, STOPPED, TableSnapshot
from cdcd.snapshot import chunks
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.copy_format import CopyFormat, TableRows
from cdcd.snapshot.table_progress import ReadingProgress, TableProgress
from cdcd.source.heaps import Heap
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.masked_changes import open_relation
from cdcd.transaction.relations import ResolvedRelation


class TableReading:
    """One table of the snapshot."""

    def __init__(self, record: TableSnapshot, rows: TableRows, chunks_left: list[Chunk]) -> None:
        self.record = record
        """How far the table is."""
        self.rows = rows
        self.chunks_left = chunks_left
        """Chunks that no connection reads yet, the next one last."""
        self.chunks_reading = 0
        """Chunks that connections are reading."""
        self.progress = ReadingProgress(chunks_left)


class SnapshotEncoder:
    """The tables of one snapshot."""

    def __init__(self, encoder: ChangeConsumer, lsn: int, taken_us: int, xmin: int, chunk_blocks: int) -> None:
        """`lsn`: the consistent point; `taken_us`: when it was taken, microseconds since 1970 UTC; `xmin`: its oldest
        transaction (64 bits); `chunk_blocks`: about how many blocks one chunk has.
        """
        self._encoder = encoder
        self._lsn = lsn
        self._taken_us = taken_us
        self._xmin = xmin
        self._chunk_blocks = chunk_blocks
        self._tables: dict[str, TableReading] = {}
        self._changed: set[str] = set()
        self._has_started = False

    def add_table(
        self, record: TableSnapshot, relation: ResolvedRelation, heaps: list[Heap], kinds: bytes, where: str = ""
    ) -> None:
        """Add a table, before `start`. `kinds`: for each column BINARY, or TEXT where COPY gives its text.

        `where`: the condition of its rows.
        """
        begun = chunks.begin(record, heaps, relation.key, self._lsn, self._xmin, where)
        left = chunks.divide(begun, heaps, self._chunk_blocks)
        rows = TableRows(open_relation(self._encoder, relation), kinds)
        self._tables[record.topic] = TableReading(begun, rows, left[::-1])
        self._changed.add(record.topic)

    def start(self, anew: Collection[str] = ()) -> None:
        """The stream is at the consistent point: the rows come now.

        `anew`: topics whose rows begin with a truncate event, besides those whose records say so.
        """
        self._has_started = True
        self._encoder.begin_snapshot(self._lsn - 1, self._taken_us)
        for topic, table in self._tables.items():
            if topic in anew:
                table.record = replace(table.record, starts_with_truncate=True, rows=0)
            if table.record.starts_with_truncate:
                table.rows.truncate(self._lsn - 1)
            if not table.chunks_left:
                table.record = _completed(table.record)

    def stop(self, topic: str) -> None:
        """No more rows of this table come, also of the chunks that are being read. Before `start` it is left out."""
        if not self._has_started:
            self._tables.pop(topic, None)
            self._changed.discard(topic)
            return
        table = self._tables.get(topic)
        if table is not None and not table.record.has_ended:
            table.chunks_left.clear()
            table.record = table.record.stopped()
            self._changed.add(topic)

    def is_stopped(self, chunk: Chunk) -> bool:
        """Whether the rows of a chunk that is being read are not wanted any more."""
        return self._tables[chunk.topic].record.state == STOPPED

    def next_chunk(self, may_read: Callable[[str, str], bool] = lambda _, __: True) -> Chunk | None:
        """Return the next chunk to read, table after table; None if connections have taken all.

        `may_read`: whether a chunk of a table (schema and name) may be begun.
        """
        for table in self._tables.values():
            if table.chunks_left and may_read(table.record.schema, table.record.table):
                table.chunks_reading += 1
                chunk = table.chunks_left.pop()
                table.progress.begin(chunk)
                return chunk
        return None

    @property
    def has_chunks_left(self) -> bool:
        """No connection has taken all chunks yet."""
        return any(table.chunks_left for table in self._tables.values())

    def begin_chunk(self, chunk: Chunk) -> CopyFormat:
        """The COPY of a chunk begins. Returns the state of its format, for `encode`."""
        return self._tables[chunk.topic].rows.begin_copy()

    def encode(self, chunk: Chunk, copy: CopyFormat, messages: list[bytes]) -> None:
        """Encode messages of a chunk's COPY, in the order in which they came.

        Raises DecodeError (the server's fault) if one is no row of the table.
        """
        table = self._tables[chunk.topic]
        count = table.rows.encode(messages, copy, self._lsn - 1)
        if count:
            table.record = replace(table.record, rows=table.record.rows + count)
            table.progress.add(chunk, count)
            self._changed.add(chunk.topic)

    def end_chunk(self, chunk: Chunk) -> None:
        """Every row of a chunk is encoded."""
        table = self._tables[chunk.topic]
        table.chunks_reading -= 1
        table.progress.end(chunk)
        if table.record.state == STOPPED:
            return
        completed = chunk.completes
        if completed is not None:
            table.record = table.record.with_range(completed)
        if not table.chunks_left and not table.chunks_reading:
            table.record = _completed(table.record)
        self._changed.add(chunk.topic)

    def take_changed(self) -> list[TableSnapshot]:
        """Return the tables that have come further since the last call, as they are with all that was encoded."""
        changed = [table.record for topic, table in self._tables.items() if topic in self._changed]
        self._changed.clear()
        return changed

    @property
    def is_finished(self) -> bool:
        """Every table is complete, or was stopped."""
        return all(table.record.has_ended for table in self._tables.values())

    @property
    def tables(self) -> list[TableSnapshot]:
        """How far each table is."""
        return [table.record for table in self._tables.values()]

    @property
    def progress(self) -> tuple[TableProgress, ...]:
        """How far the reading of each table is. For any thread."""
        return tuple(
            TableProgress(
                table.record.schema,
                table.record.table,
                table.record.rows,
                table.progress.blocks,
                table.progress.blocks_left,
                table.record.has_ended,
            )
            for table in self._tables.values()
        )

    @property
    def blocks_left(self) -> int:
        """Blocks that were not read yet, as far as it can be estimated. For any thread."""
        return sum(table.progress.blocks_left for table in self._tables.values() if not table.record.has_ended)


def _completed(record: TableSnapshot) -> TableSnapshot:
    return replace(record, state=DONE, done=(), starts_with_truncate=False)
