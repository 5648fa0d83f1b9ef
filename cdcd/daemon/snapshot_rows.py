"""Reads the rows of one exported snapshot into batches, over several connections at once.

Before: `snapshot_export` has the snapshot, its tables and connections.
After: the coordinator hands the batches on. `snapshot.encoder` makes the events and says how far each table is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import inf
from typing import Final

from cdcd.daemon.exported_tables import TableExport
from cdcd.daemon.snapshot_export import ExportedSnapshot
from cdcd.errors import RequestRejected
from cdcd.progress.repair_records import PendingRepair
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.snapshot.chunks import BLOCK_BYTES
from cdcd.snapshot.copy_format import CopyFormat
from cdcd.snapshot.copy_rate import CopyRate, TableRate, TableRates
from cdcd.snapshot.encoder import SnapshotEncoder
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.snapshot.repair_events import RepairOutcome, encode_repairs
from cdcd.snapshot.table_progress import TableProgress
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.relations import ResolvedRelation

LOOK_INTERVAL_S: Final = 1.0
"""While no table may be read, it is looked again so often: there may be many tables."""

GATHER_S: Final = 0.002
"""A connection that has given all its rows is read again after so long. COPY hands 8 KB to the socket at a time: a
reader that sleeps until there are some is woken, by the server, for every 60 rows."""

GATHER_BYTES: Final = 1 << 17
"""One that gives as much at once is read again at once: so its socket is not full while the rows gather."""

_UNLIMITED: Final = TableRate(CopyRate())
"""For rows that nobody wants any more."""


@dataclass(frozen=True)
class SnapshotLimits:
    """How much is read at once."""

    chunk_bytes: int
    """About how much one COPY reads."""
    rows_max: int = 1_000
    """Rows that one connection gives in one turn."""
    batch_bytes: int = 1 << 16
    """A batch is handed on when it is this large, or when the sink has nothing to do."""
    rates: TableRates = field(default_factory=TableRates)
    """How fast rows may be read."""


class SnapshotRows:
    """The rows of one snapshot. For the thread that owns the stream; what is left, and `progress`, for any."""

    def __init__(
        self, export: ExportedSnapshot, encoder: ChangeConsumer, batches: BatchBuilder, limits: SnapshotLimits
    ) -> None:
        """`encoder` writes to `batches`; both serve snapshots alone."""
        self._export = export
        self._rates = limits.rates
        self._rows_max = limits.rows_max
        self._held: dict[SnapshotConnection, TableRate] = {}
        """The connections of which the rate of their table let the last `read` read nothing."""
        self._gathering: set[SnapshotConnection] = set()
        """The connections that gave all their rows to the last `read`: more gather."""
        self._batches = batches
        self._changes = encoder
        self._encoder = SnapshotEncoder(
            encoder, export.lsn, export.taken_us, export.xmin, max(1, limits.chunk_bytes // BLOCK_BYTES)
        )
        self._tables: dict[str, TableExport] = {}
        """By topic."""
        for table in export.tables:
            self._encoder.add_table(table.record, table.relation, table.heaps, table.kinds, table.where)
            self._tables[table.record.topic] = table
        self._reading: dict[SnapshotConnection, CopyFormat] = {}
        self._started_s = self._looked_s = 0.0
        self._total_bytes = 0
        self.may_have_more = False
        """The last `read` left rows that no socket announces."""
        self.is_waiting = False
        """No chunk is read, and none of those that are left may be begun. For any thread."""

    @property
    def lsn(self) -> int:
        """The consistent point."""
        return self._export.lsn

    @property
    def relations(self) -> list[tuple[ResolvedRelation, bool]]:
        """The tables, as the catalog described them, each with whether it is copied as the root of partitions."""
        copied = [(table.relation, table.is_partitioned) for table in self._tables.values()]
        return copied + [(each.relation, False) for each in self._export.repairs if each.relation is not None]

    @property
    def has_repairs(self) -> bool:
        """Rows of repairs are read, and not encoded: call `repair` before `start`."""
        return bool(self._export.repairs)

    @property
    def leaves_repairs(self) -> bool:
        """More rows are to be repaired, for which the snapshot had no room."""
        return self._export.leaves_repairs

    def repair(self, is_wanted: Callable[[PendingRepair], bool]) -> tuple[Batch, list[RepairOutcome]]:
        """Return all rows and deletes of the repairs that are still wanted, as one batch.

        The stream is at the consistent point.
        """
        export = self._export
        wanted = [each for each in export.repairs if is_wanted(each.pending)]
        outcomes = encode_repairs(self._changes, wanted, export.lsn, export.taken_us)
        batch = self._batches.build()
        # The tables that are copied are not announced before their rows.
        repaired = {(each.relation.schema, each.relation.name) for each in wanted if each.relation is not None}
        batch.announced = [each for each in batch.announced if (each.schema, each.name) in repaired]
        for each in batch.announced:
            each.added = None  # the catalog may have forgotten what it told the stream
        export.repairs.clear()
        return batch, outcomes

    def start(self, now: float, anew: Collection[str] = ()) -> None:
        """The stream is at the consistent point: the rows come now. See `SnapshotEncoder.start`."""
        self._started_s = now
        self._total_bytes = self.bytes_left
        self._encoder.start(anew)

    def read(self, now: float, may_read: Callable[[str, str], bool] = lambda _, __: True) -> None:
        """Encode the rows that have come, as many as the limits allow, and give idle connections a chunk.

        `may_read`: whether a chunk of a table (schema and name) may be begun. If none may, all rows of the chunks that
        were begun come, and then no lock is held. Never waits. Raises what the connections raise: the snapshot cannot
        be read any more then.
        """
        self.may_have_more = False
        self._held.clear()
        self._gathering.clear()
        if self.is_waiting and now < self._looked_s + LOOK_INTERVAL_S and self._encoder.has_chunks_left:
            return
        self._looked_s = now
        connections = self._export.connections
        if self._rates.of_all.is_limited:
            connections.append(connections.pop(0))  # each one is the first to have the room
        for connection in connections:
            self._read(connection, now, may_read)
        self.is_waiting = not self._reading and self._encoder.has_chunks_left

    def _read(self, connection: SnapshotConnection, now: float, may_read: Callable[[str, str], bool]) -> None:
        chunk = connection.chunk
        if chunk is not None:
            relation = self._tables[chunk.topic].relation
            is_stopped = self._encoder.is_stopped(chunk)
            rate = _UNLIMITED if is_stopped else self._rates.of(relation.schema, relation.name)
            rows_room, bytes_room = rate.room(now)
            if not rows_room:
                self._held[connection] = rate
                return
            try:
                messages, ended = connection.read(min(self._rows_max, rows_room), bytes_room)
            except RequestRejected as error:
                table = self._tables[chunk.topic]
                if table.where:  # it may be the fault of the condition
                    self._export.refuse((table.relation.schema, table.relation.name), error)
                raise
            if rate.is_limited:
                rate.take(len(messages), sum(map(len, messages)))
            if messages and not is_stopped:
                self._encoder.encode(chunk, self._reading[connection], messages)
            if connection.has_more or connection.read_bytes >= GATHER_BYTES:
                self.may_have_more = True
            elif messages and not ended:
                self._gathering.add(connection)
            if not ended:
                return
            self._encoder.end_chunk(chunk)
            del self._reading[connection]
        following = self._encoder.next_chunk(may_read)
        if following is not None:
            table = self._tables[following.topic]
            numbers = table.column_numbers(following.heap)
            connection.start(following, table.columns(), table.condition, numbers)
            self._reading[connection] = self._encoder.begin_chunk(following)
        elif self._encoder.has_chunks_left:
            connection.leave()
        else:
            connection.close()  # no chunk will come: let the last heap go

    def stop(self, topic: str) -> None:
        """No more rows of a table are wanted: see `SnapshotEncoder.stop`."""
        self._encoder.stop(topic)
        if topic not in {each.topic for each in self._encoder.tables}:
            self._tables.pop(topic, None)

    def take_batch(self) -> Batch:
        """Return the rows that were read since the last call, and how far the tables have come with them."""
        batch = self._batches.build()
        batch.snapshot_records = self._encoder.take_changed()
        return batch

    def sockets(self) -> list[int]:
        """Return the sockets that rows come from, without those that a rate keeps back, or where rows gather."""
        waiting = self._held.keys() | self._gathering
        return [connection.fileno() for connection in self._reading if connection not in waiting]

    @property
    def wait_s(self) -> float:
        """After how many seconds more may be read, although no row has come; infinite if nothing keeps rows back."""
        waits = [rate.wait_s() for rate in self._held.values()] + [GATHER_S] * bool(self._gathering)
        return min(waits, default=LOOK_INTERVAL_S if self.is_waiting else inf)

    @property
    def has_more_soon(self) -> bool:
        """More rows are there, or gather."""
        return self.may_have_more or bool(self._gathering)

    @property
    def gathered_bytes(self) -> int:
        """The keys and values that `take_batch` would return."""
        return self._batches.gathered_bytes

    @property
    def is_finished(self) -> bool:
        """Every row that is wanted was read."""
        return self._encoder.is_finished

    @property
    def tables(self) -> list[TableSnapshot]:
        """How far each table is."""
        return self._encoder.tables

    @property
    def tables_left(self) -> int:
        """Tables whose rows still come."""
        return sum(not table.has_ended for table in self._encoder.tables)

    @property
    def bytes_left(self) -> int:
        """The part of the tables that was not read yet, as far as it can be estimated."""
        return self._encoder.blocks_left * BLOCK_BYTES

    @property
    def progress(self) -> tuple[TableProgress, ...]:
        """How far the reading of each table is."""
        return self._encoder.progress

    def seconds_left(self, now: float) -> int | None:
        """How long the rest takes at the rate so far; None if no block was read yet."""
        left = self.bytes_left
        read = self._total_bytes - left
        return round((now - self._started_s) * left / read) if read > 0 else None

    def left(self, now: float) -> dict[str, object]:
        """Return the amount left to read, and the seconds that it takes at the rate so far."""
        return {
            "tables_left": self.tables_left,
            "bytes_left": self.bytes_left,
            "seconds_left": self.seconds_left(now),
        }

    def close(self) -> None:
        """Close the connections, and with them the snapshot."""
        self._export.close()
