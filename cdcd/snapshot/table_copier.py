"""Turns the rows of a snapshot into events, and says how far each table has come. No I/O.

Before: `reader` has messages of COPY.
After: the encoder's records go into a batch; `snapshot_records` goes with it, so that rows
and progress become durable together.

A row of the snapshot at the consistent point L is an event `r` with the commit LSN L - 1, where no commit record can
be: it sorts behind every transaction that the snapshot shows, and before every one that it does not (from L on). `seq`
counts on over all tables of one snapshot.
"""

from __future__ import annotations

from dataclasses import replace

from cdcd.progress.snapshot_records import DONE, TableSnapshot
from cdcd.snapshot import chunks
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.copy_format import CopyFormat, TableRows
from cdcd.source.heaps import Heap
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.relations import ResolvedRelation


class TableReading:
    """One table under one snapshot."""

    def __init__(self, copy: TableSnapshot, rows: TableRows, left: list[Chunk]) -> None:
        self.copy = copy
        self.rows = rows
        self.left = left
        """Units that nobody reads yet, the next one last."""
        self.reading = 0
        """Units that are being read."""


class TableCopier:
    """The copies that one snapshot serves."""

    def __init__(self, encoder: ChangeConsumer, lsn: int, taken_us: int, xmin: int, blocks: int) -> None:
        """`lsn`: the consistent point; `taken_us`: when, microseconds since 1970; `blocks`: of about one unit."""
        self._encoder = encoder
        self._lsn = lsn
        self._taken_us = taken_us
        self._xmin = xmin
        self._blocks = blocks
        self._tables: dict[str, TableReading] = {}
        self._changed: set[str] = set()

    def add(self, copy: TableSnapshot, relation: ResolvedRelation, heaps: list[Heap], kinds: bytes) -> None:
        """Take a table on."""
        begun = chunks.begin(copy, heaps, relation.has_key, self._lsn, self._xmin)
        left = chunks.units(begun, heaps, self._blocks)
        rows = TableRows(self._encoder.open_relation(relation), kinds)
        self._tables[copy.topic] = TableReading(begun, rows, left[::-1])
        self._changed.add(copy.topic)

    def start(self) -> None:
        """The stream has come to the consistent point: what follows are its rows."""
        self._encoder.begin_snapshot(self._lsn - 1, self._taken_us)
        for table in self._tables.values():
            if table.copy.again:
                table.rows.truncate(self._lsn - 1)
            if not table.left:
                table.copy = replace(table.copy, state=DONE, done=(), again=False)

    def next_unit(self) -> Chunk | None:
        """The next unit to be read, table after table; None if all are taken."""
        for table in self._tables.values():
            if table.left:
                table.reading += 1
                return table.left.pop()
        return None

    def begin(self, unit: Chunk) -> CopyFormat:
        """The COPY of a unit begins."""
        return self._tables[unit.topic].rows.copy()

    def take(self, unit: Chunk, how: CopyFormat, messages: list[bytes]) -> None:
        """Encode messages of a unit's COPY, in their order."""
        table = self._tables[unit.topic]
        count = table.rows.encode(messages, how, self._lsn - 1)
        if count:
            table.copy = replace(table.copy, rows=table.copy.rows + count)
            self._changed.add(unit.topic)

    def end(self, unit: Chunk) -> None:
        """All of a unit is encoded."""
        table = self._tables[unit.topic]
        table.reading -= 1
        copy = table.copy
        if unit.done is not None:
            copy = copy.with_blocks(unit.done)
        if not table.left and not table.reading:
            copy = replace(copy, state=DONE, done=(), again=False)
        table.copy = copy
        self._changed.add(unit.topic)

    def copies(self) -> list[TableSnapshot]:
        """The tables that have come further since the last call, as they stand with all that was encoded."""
        changed = [table.copy for topic, table in self._tables.items() if topic in self._changed]
        self._changed.clear()
        return changed

    @property
    def finished(self) -> bool:
        """Every table is done."""
        return all(table.copy.state == DONE for table in self._tables.values())

    @property
    def standing(self) -> list[TableSnapshot]:
        """How far each table is."""
        return [table.copy for table in self._tables.values()]

    @property
    def blocks_left(self) -> int:
        """How much of the heaps nobody has begun to read."""
        return sum(unit.end - unit.first for table in self._tables.values() for unit in table.left)
