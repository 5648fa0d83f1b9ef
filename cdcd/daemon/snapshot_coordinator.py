"""Brings the snapshots of tables into the stream: a state machine that advances in each turn of the loop.

Before: `snapshot_requests` says which tables want a snapshot.
After: `snapshot_pump` does what `turn` returns: it pauses the stream, resumes it, or hands a batch of rows on.

1. EXPORTING: a thread exports a snapshot (`snapshot_export`). When everything is ready, the stream pauses where it is,
   so that the snapshot's consistent point is a later LSN. The server may make the export wait for transactions to end.
   Meanwhile the pause moves to later LSNs, so that the stream publishes them.
2. CATCHING_UP: the stream runs up to the consistent point, and pauses there.
3. READING: the stream goes on with the first transaction that the snapshot does not show. Changes of the tables that
   are being read are deferred (`sink.parking`). Other tables do not wait. Several connections read the rows, and
   `snapshot.encoder` gives each row its LSN. When a table is complete, its deferred changes follow.

So every topic is in commit order. If the daemon dies, the progress says how far the stream and each table's snapshot
have come. The next attempt starts at 1, with a snapshot at a later LSN. Before its rows, the attempt publishes the
stream up to that LSN. A row that is read twice has a later LSN the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from cdcd.daemon.exported_tables import Choose
from cdcd.daemon.snapshot_export import NewTableScan, SnapshotExport
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.daemon.snapshot_rows import SnapshotRows
from cdcd.lsn import format_lsn
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.source.server_errors import SnapshotGone
from cdcd.transaction.change_consumer import ChangeConsumer

SCAN_INTERVAL_S: Final = 10.0
"""Between two scans for newly published tables."""

KEEPALIVE_INTERVAL_S: Final = 0.05
"""Between two requests for a keepalive. A keepalive says how far the server is, and an idle server sends few
unasked."""

FIRST_LSN: Final = 1
"""Every transaction commits at this LSN or later."""


class SnapshotState(Enum):
    """Where the coordinator is."""

    IDLE = auto()
    """No table wants a snapshot, as far as the coordinator knows."""
    REQUESTED = auto()
    """A table wants a snapshot: the next turn starts the export."""
    EXPORTING = auto()
    CATCHING_UP = auto()
    READING = auto()


class Room(Protocol):
    """The steps that the stream and the queue allow in this turn."""

    @property
    def is_stream_paused(self) -> bool:
        """The stream has reached the LSN where it was to pause."""

    @property
    def accepts_batch(self) -> bool:
        """A batch can be handed on."""

    @property
    def wants_rows(self) -> bool:
        """A batch can be handed on, and the sink's queue is short, so that the stream's rows do not wait long."""

    @property
    def is_sink_idle(self) -> bool:
        """The sink has nothing to do: even a small batch is welcome."""

    def name_in_stream(self, relation_oid: int) -> tuple[str, str] | None:
        """The schema and name under which the stream sends a relation; None if it has not announced it."""


@dataclass(frozen=True)
class Finished:
    """The summary of a snapshot whose last rows were read."""

    lsn: int
    tables: int
    rows: int

    def as_log(self) -> dict[str, object]:
        """Return the fields of the log line."""
        return {"lsn": format_lsn(self.lsn), "tables": self.tables, "rows": self.rows}


@dataclass(frozen=True)
class Action:
    """The steps that the caller takes before it reads the stream: those that are set, in this order."""

    pause_before_lsn: int = 0
    """Pause the stream before the first transaction that commits here or later."""
    consistent_lsn: int = 0
    """The paused stream is at this consistent point: nothing before it is missing."""
    resumes: bool = False
    """Let the stream go on."""
    requests_keepalive: bool = False
    """Ask the server for a keepalive, which says how far it is."""
    batch: Batch | None = None
    """Hand this batch on."""
    left: Mapping[str, object] | None = None
    """The amount left to read after the batch, for the log and the progress bar."""
    finished: Finished | None = None
    """The batch was the last one of a snapshot."""


NOTHING: Final = Action()


@dataclass(frozen=True)
class SnapshotLimits:
    """How much is read at once."""

    chunk_bytes: int
    """About how much one COPY reads."""
    rows_max: int = 1_000
    """Rows that one connection gives in one turn."""
    batch_bytes: int = 1 << 16
    """A batch is handed on when it is this large, or when the sink has nothing to do."""


class SnapshotCoordinator:
    """The snapshots of one stream. For the thread that owns the stream; `tables_left` and `bytes_left` for any."""

    def __init__(
        self,
        requests: SnapshotRequests,
        encoder: ChangeConsumer,
        batches: BatchBuilder,
        start_export: Callable[[Choose], SnapshotExport],
        start_scan: Callable[[Choose], NewTableScan],
        limits: SnapshotLimits,
        *,
        only: bool = False,
    ) -> None:
        """`encoder` writes to `batches`; both serve snapshots alone. With `only` the stream never resumes.

        `start_export` starts to export a snapshot of the tables that its argument chooses. `start_scan` starts a scan
        for such a table.
        """
        self._requests = requests
        self._encoder = encoder
        self._batches = batches
        self._start_export = start_export
        self._start_scan = start_scan
        self._limits = limits
        self._only = only
        self._scan: NewTableScan | None = None
        self._next_scan_s = 0.0
        self._export: SnapshotExport | None = None
        self._safe_stream_lsn = 0
        self._rows: SnapshotRows | None = None
        self._last_keepalive_request_s = 0.0
        self.state = SnapshotState.REQUESTED if requests.may_want_tables else SnapshotState.IDLE

    def request(self, schema: str, table: str) -> None:
        """Take a request for a new snapshot of a table."""
        self._requests.request(schema, table)
        if self.state is SnapshotState.IDLE:
            self._begin()

    def turn(self, now: float, room: Room) -> Action:
        """Advance without waiting; call it once a turn. Raises what export and reading raise."""
        if self.state is SnapshotState.IDLE:
            self._poll_new_tables(now)
        if self.state is SnapshotState.REQUESTED:
            self._export = self._start_export(self._requests.choose)
            self.state = SnapshotState.EXPORTING
        elif self.state is SnapshotState.EXPORTING:
            return self._poll_export(now)
        elif self.state is SnapshotState.CATCHING_UP:
            return self._catch_up(now, room)
        elif self.state is SnapshotState.READING and room.wants_rows:
            return self._read_rows(now, room)
        return NOTHING

    def _begin(self) -> None:
        self._export = self._rows = None
        self.state = SnapshotState.REQUESTED

    def _poll_new_tables(self, now: float) -> None:
        """Scan for newly published tables, once an interval."""
        if self._scan is None:
            if now >= self._next_scan_s and self._requests.may_want_tables:
                self._scan = self._start_scan(self._requests.choose)
        elif (found := self._scan.found) is not None:
            if found:
                self._begin()
            self._scan = None
            self._next_scan_s = now + SCAN_INTERVAL_S

    def _poll_export(self, now: float) -> Action:
        export = self._export
        assert export is not None
        if export.needs_pause:
            self._safe_stream_lsn = FIRST_LSN
            export.confirm_stream_paused()  # the caller pauses it before it reads the stream again
            return Action(pause_before_lsn=FIRST_LSN)
        if export.done:
            exported = export.result()
            if exported is None:
                self.state = SnapshotState.IDLE
                return Action(resumes=True)
            self._requests.begin([table.record for table in exported.tables])
            self._rows = SnapshotRows(exported, self._encoder, self._batches, self._limits.chunk_bytes)
            self.state = SnapshotState.CATCHING_UP
            return Action(pause_before_lsn=exported.lsn, requests_keepalive=self._may_request_keepalive(now))
        if export.safe_stream_lsn > self._safe_stream_lsn:
            self._safe_stream_lsn = export.safe_stream_lsn
            return Action(pause_before_lsn=self._safe_stream_lsn)
        return NOTHING

    def _catch_up(self, now: float, room: Room) -> Action:
        if not (room.is_stream_paused and room.accepts_batch):
            return Action(requests_keepalive=True) if self._may_request_keepalive(now) else NOTHING
        assert self._rows is not None
        for relation in self._rows.relations:
            name = room.name_in_stream(relation.oid)
            if name is not None and _has_another_schema(name, (relation.schema, relation.name)):
                if not room.is_sink_idle:
                    return NOTHING  # then the next stream begins behind everything that has the old name
                now_named = f"{relation.schema}.{relation.name}"
                raise SnapshotGone(f"{'.'.join(name)} is {now_named} by now, but the stream still uses the old name")
        self.state = SnapshotState.READING
        self._rows.start(now)
        return self._read_rows(now, room, consistent_lsn=self._rows.lsn)

    def _may_request_keepalive(self, now: float) -> bool:
        if now - self._last_keepalive_request_s < KEEPALIVE_INTERVAL_S:
            return False
        self._last_keepalive_request_s = now
        return True

    def _read_rows(self, now: float, room: Room, *, consistent_lsn: int = 0) -> Action:
        """Read the rows that have come. `consistent_lsn` not 0: these are the first, handed on in any case."""
        rows = self._rows
        assert rows is not None
        rows.read(self._limits.rows_max)
        is_large = rows.gathered_bytes >= self._limits.batch_bytes
        if not (rows.is_finished or consistent_lsn or is_large or room.is_sink_idle):
            return NOTHING
        batch = rows.take_batch()
        assert batch.snapshot_records is not None
        batch.snapshot_records += self._requests.requested_since(batch.snapshot_records)
        return Action(
            consistent_lsn=consistent_lsn,
            resumes=consistent_lsn > 0 and not self._only,
            batch=batch if batch.rows or batch.snapshot_records else None,
            left=rows.left(now),
            finished=self._finish(rows) if rows.is_finished else None,
        )

    def _finish(self, rows: SnapshotRows) -> Finished:
        tables = rows.tables
        self._requests.finish(tables)
        rows.close()
        self.state = SnapshotState.IDLE
        if self._requests.has_requests:
            self._begin()
        return Finished(rows.lsn, len(tables), sum(table.rows for table in tables))

    def sockets(self) -> list[int]:
        """Return the sockets that rows come from."""
        return self._rows.sockets() if self._rows is not None and self.state is SnapshotState.READING else []

    @property
    def may_have_more_rows(self) -> bool:
        """The last read gave rows: the client may hold more, which no socket announces."""
        return self._rows is not None and self._rows.may_have_more

    @property
    def tables_left(self) -> int:
        """Tables whose snapshot is not complete."""
        rows = self._rows
        return 0 if rows is None else rows.tables_left

    @property
    def bytes_left(self) -> int:
        """The part of these tables that no connection has begun to read."""
        rows = self._rows
        return 0 if rows is None else rows.bytes_left

    def close(self) -> None:
        """Give the snapshot up, and close its connections."""
        if self._export is not None:
            self._export.close()


def _has_another_schema(in_stream: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether a table's schema was renamed: a walsender of PostgreSQL 14 and 15 does not notice that.

    It would send the next changes under the old name, and the topic of the new name would end with the snapshot. A new
    walsender knows the new name. Names that are not ASCII may differ by their encoding alone.
    """
    return in_stream[0] != now[0] and in_stream[1] == now[1] and (in_stream[0] + now[0]).isascii()
