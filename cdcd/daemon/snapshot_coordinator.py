"""Stitches the copies of tables into the stream: it runs up to the snapshot's LSN, the copy is published, it goes on.

Before: `stream_startup` knows how far each table's copy is.
After: `pipeline` hands on the batches, in the order of the LSNs.

1. A thread is to take a snapshot (`snapshot_export`). When it is ready, the stream stops where it is: the assembler has
a
   barrier. So the snapshot is of a later LSN. While the server lets it wait for transactions to end, the barrier moves
   on behind them.
2. The stream runs up to the snapshot's consistent point, and stops there.
3. The barrier is lifted: the stream goes on with the first transaction that the snapshot does not show. What it has
   for the tables that are being copied is set aside (`sink.parked_tables`), the others do not wait.
4. The rows are read by several connections and published beside it, `table_copier` says as of which LSN. When a table
is
   whole, what was set aside follows.

So every topic is in commit order. Whatever dies in between, the progress says how far the stream has come, and how far
the copy of each table. The next attempt takes a new snapshot, at a later LSN, and begins with 1; the stream up to there
is published as always. What is copied twice is copied as of a later LSN the second time, and stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.exported_tables import TableExport
from cdcd.daemon.snapshot_export import ExportedSnapshot, NewTableScan, SnapshotExport
from cdcd.lsn import format_lsn
from cdcd.progress.snapshot_records import DONE, WANTED, TableSnapshot, wanted_again
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.sink.topics import TopicNames
from cdcd.snapshot.copy_format import CopyFormat
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.snapshot.table_copier import TableCopier
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.change_consumer import ChangeConsumer

MESSAGES_MAX: Final = 1_000
"""Rows that one connection gives in one turn."""

BATCH_BYTES: Final = 1 << 16

BLOCK_BYTES: Final = 8_192

LOOK_S: Final = 10.0

FIRST_LSN: Final = 1
"""Every transaction commits there or later."""


class SnapshotCoordinator:
    """What is to be copied in one attempt. Owned by the thread that owns the stream."""

    def __init__(
        self,
        settings: Settings,
        copies: Mapping[str, TableSnapshot],
        names: TopicNames,
        encoder: ChangeConsumer,
        batches: BatchBuilder,
        wake: Callable[[], None],
        parked: Callable[[], Container[tuple[str, str]]] = frozenset,
    ) -> None:
        """`copies`: how far each table is, by topic. `encoder` writes to `batches`; both are for the copies alone.

        `parked`, called by any thread, tells which tables wait: behind what is set aside their rows would win.
        """
        self._settings = settings
        self._copies = dict(copies)
        self._asked: set[str] = set()
        """Topics of tables that were asked for since the snapshot was begun."""
        self._names = names
        self._encoder = encoder
        self._batches = batches
        self._wake = wake
        self._parked = parked
        self._looking: NewTableScan | None = None
        self._look_s = 0.0
        self._exporting: SnapshotExport | None = None
        self._safe_stream_lsn = 0
        self._export: ExportedSnapshot | None = None
        self._copier: TableCopier | None = None
        self._begun = False
        self._begun_s = 0.0
        self._whole_bytes = 0
        self._rows: dict[SnapshotConnection, CopyFormat] = {}
        self._selected: dict[str, TableExport] = {}
        """By topic."""
        self.whole: dict[str, object] | None = None
        """Of a snapshot whose last rows the last step gave: how much it was, for people. Whoever tells it clears it."""
        self.flowing = False
        """Rows came in the last step: there may be more of which no socket tells."""
        self.ended = settings.snapshot.mode == "never" and all(copy.state == DONE for copy in copies.values())
        """Nothing is left to be copied."""

    def want(self, schema: str, table: str) -> None:
        """Copy a table afresh: somebody asks for it."""
        topic = self._names.topic(schema, table)
        self._copies[topic] = wanted_again(self._settings.source.slot, topic, schema, table)
        self._asked.add(topic)
        if self.ended:
            self._begin_again()

    def look(self, now: float) -> None:
        """Notice, every LOOK_S seconds, tables that are published only now: call it once a turn."""
        if not self.ended:
            return
        if self._looking is None:
            if now >= self._look_s and self._may_find():
                self._looking = NewTableScan(self._settings, self._choose, self._wake)
        elif self._looking.found is not None:
            if self._looking.found:
                self._begin_again()
            self._looking = None
            self._look_s = now + LOOK_S

    def _may_find(self) -> bool:
        # One that was asked for may have been parked.
        return self._settings.snapshot.mode != "never" or any(copy.state != DONE for copy in self._copies.values())

    def _begin_again(self) -> None:
        self._exporting = self._export = self._copier = None
        self._begun = self.ended = False

    def advance(self, assembler: Assembler) -> None:
        """Go on as far as nothing must be waited for: call it once a turn. Raises what taking the snapshot raised."""
        if self.ended or self._copier is not None:
            return
        if self._exporting is None:
            self._exporting = SnapshotExport(self._settings, self._choose, self._wake)
        elif self._exporting.needs_pause:
            self._safe_stream_lsn = FIRST_LSN
            assembler.pause_before(FIRST_LSN)
            self._exporting.confirm_stream_paused()
        elif self._exporting.done:
            self._export = self._exporting.result()
            if self._export is None:
                self.ended = True
                assembler.resume()
                return
            self._take_on(self._export)
            assembler.pause_before(self._export.lsn)
        elif self._exporting.safe_stream_lsn > self._safe_stream_lsn:
            self._safe_stream_lsn = self._exporting.safe_stream_lsn
            assembler.pause_before(self._safe_stream_lsn)

    @property
    def lsn(self) -> int:
        """The consistent point; 0 while there is no snapshot."""
        return 0 if self._export is None else self._export.lsn

    @property
    def begun(self) -> bool:
        """Rows are on their way."""
        return self._begun and not self.ended

    def readable(self) -> list[int]:
        """The sockets that rows come from."""
        return [connection.fileno() for connection in self._rows]

    def step(self, assembler: Assembler, now: float, *, hungry: bool) -> Batch | None:
        """Take what rows have come. The first time at the barrier: to be handed on before anything behind that is read.

        It is lifted then, unless nothing but copies is wanted. Small batches are for those who are `hungry`.
        """
        export, copier = self._export, self._copier
        self.flowing = False
        begins = not self._begun
        assert export is not None
        assert copier is not None
        if begins:
            self._begun = True
            self._begun_s = now
            self._whole_bytes = self.bytes_left
            copier.start()
            if self._settings.snapshot.mode != "only":
                assembler.resume()
        for connection in export.connections:
            self._read(connection, copier)
        if copier.finished:
            self._finish()
        elif not (begins or hungry or self._batches.gathered_bytes >= BATCH_BYTES):
            return None
        batch = self._batches.take()
        batch.copies = copier.copies()
        # Who asked for a table while it was being copied asked for another copy: whoever starts next is to know that.
        batch.copies += [self._copies[c.topic] for c in batch.copies if c.topic in self._asked]
        return batch if batch.rows or batch.copies else None

    @property
    def tables_left(self) -> int:
        """Tables of this snapshot that are not whole yet."""
        return 0 if self._copier is None else sum(copy.state != DONE for copy in self._copier.standing)

    @property
    def bytes_left(self) -> int:
        """Of these, what nobody has begun to read."""
        return 0 if self._copier is None else self._copier.blocks_left * BLOCK_BYTES

    def left(self, now: float) -> dict[str, object]:
        """What is left, for people: with the seconds that it will take at the rate so far."""
        left = self.bytes_left
        read = self._whole_bytes - left
        eta_s = (now - self._begun_s) * left / read if read > 0 else None
        return {"tables_left": self.tables_left, "bytes_left": left, "seconds_left": eta_s and round(eta_s)}

    def close(self) -> None:
        """Let the snapshot go."""
        if self._exporting is not None:
            self._exporting.close()

    def _choose(self, schema: str, table: str) -> TableSnapshot | None:
        if (schema, table) in self._parked():
            return None
        topic = self._names.topic(schema, table)
        known = self._copies.get(topic)
        if known is None and self._settings.snapshot.mode != "never":
            known = TableSnapshot(self._settings.source.slot, topic, schema, table, WANTED, 0)
        return None if known is None or known.state == DONE else known

    def _take_on(self, export: ExportedSnapshot) -> None:
        taken = [table.copy for table in export.tables]
        # What was asked for since its copy was chosen is asked for still.
        self._asked.difference_update(copy.topic for copy in taken if self._copies.get(copy.topic) is copy)
        blocks = max(1, self._settings.snapshot.chunk_bytes // BLOCK_BYTES)
        copier = self._copier = TableCopier(self._encoder, export.lsn, export.taken_us, export.xmin, blocks)
        for table in export.tables:
            copier.add(table.copy, table.relation, table.heaps, table.kinds)
            self._selected[table.copy.topic] = table

    def _read(self, connection: SnapshotConnection, copier: TableCopier) -> None:
        unit = connection.unit
        if unit is not None:
            messages, ended = connection.read(MESSAGES_MAX)
            if messages:
                self.flowing = True
                copier.take(unit, self._rows[connection], messages)
            if not ended:
                return
            copier.end(unit)
            del self._rows[connection]
        following = copier.next_unit()
        if following is not None:
            table = self._selected[following.topic]
            connection.start(following, table.columns(), table.row_filter)
            self._rows[connection] = copier.begin(following)

    def _finish(self) -> None:
        assert self._export is not None
        self.ended = True
        copies = [] if self._copier is None else self._copier.standing
        self._copies |= {copy.topic: copy for copy in copies if copy.topic not in self._asked}
        rows = sum(copy.rows for copy in copies)
        self.whole = {"lsn": format_lsn(self._export.lsn), "tables": len(copies), "rows": rows}
        self._export.close()
        if self._asked:
            self._begin_again()
