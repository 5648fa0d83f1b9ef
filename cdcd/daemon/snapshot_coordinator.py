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

The rows come no faster than the limits allow (`snapshot.copy_rate`). While the snapshots are paused, none begins. One
that is being read keeps its exported snapshot, and reads the chunks that it has begun to their end. The stream goes on.

So every topic is in commit order. If the daemon dies, the progress says how far the stream and each table's snapshot
have come. The next attempt starts at 1, with a snapshot at a later LSN. Before its rows, the attempt publishes the
stream up to that LSN. A row that is read twice has a later LSN the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final, Protocol

from cdcd.daemon.new_table_scan import NewTableScan, Wants
from cdcd.daemon.recopies import Table
from cdcd.daemon.repair_requests import RepairRequests
from cdcd.daemon.snapshot_export import ChooseRepairs, SnapshotExport
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.daemon.snapshot_rows import SnapshotLimits, SnapshotRows
from cdcd.lsn import format_lsn
from cdcd.progress.daemon_requests import SNAPSHOT, Request
from cdcd.progress.repair_records import RepairKeys
from cdcd.progress.snapshot_records import DONE, Choose
from cdcd.sink.batches import AnnouncedTable, Batch, BatchBuilder, RepairBatch
from cdcd.snapshot.table_progress import SnapshotProgress
from cdcd.source.incarnations import Incarnation
from cdcd.source.server_errors import SnapshotGone
from cdcd.transaction.change_consumer import ChangeConsumer

SCAN_INTERVAL_S: Final = 10.0
"""Between two scans for tables that are newly published, or were replaced."""

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
    def is_history_known(self) -> bool:
        """The stream has shown that the server's history is the one that Kafka has. The catalog cannot show that."""

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
    message: str = "the snapshot is complete"

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
    """The batch was the last one of a snapshot, or has all repairs of one."""


NOTHING: Final = Action()


class SnapshotCoordinator:
    """The snapshots of one stream. For the thread that owns the stream; `tables_left`, `bytes_left` and `progress`
    for any.
    """

    def __init__(
        self,
        requests: SnapshotRequests,
        encoder: ChangeConsumer,
        batches: BatchBuilder,
        start_export: Callable[[Choose, ChooseRepairs], SnapshotExport],
        start_scan: Callable[[Wants], NewTableScan],
        limits: SnapshotLimits,
        repairs: RepairRequests,
        *,
        only: bool = False,
    ) -> None:
        """`encoder` writes to `batches`; both serve snapshots alone. With `only` the stream never resumes.

        `start_export` starts to export a snapshot of the tables that its first argument chooses, with the rows to
        repair that the second one chooses. `start_scan` starts a scan for a table that wants either. `repairs`: the
        rows to repair.
        """
        self._requests = requests
        self._encoder = encoder
        self._batches = batches
        self._start_export = start_export
        self._start_scan = start_scan
        self._limits = limits
        self._repairs = repairs
        self._only = only
        self._scan: NewTableScan | None = None
        self._next_scan_s = 0.0
        self._export: SnapshotExport | None = None
        self._safe_stream_lsn = 0
        self._rows: SnapshotRows | None = None
        self._last_keepalive_request_s = 0.0
        self.state = SnapshotState.REQUESTED if self._may_want_tables else SnapshotState.IDLE

    def request(self, schema: str, table: str) -> None:
        """Take a request for a new snapshot of a table. The stream has brought everything before it."""
        self._requests.request(schema, table)
        if self.state is SnapshotState.IDLE:
            self._begin()

    def stop(self, schema: str, table: str) -> None:
        """Take a request to stop the snapshot of a table. Raises ValueError, with the reason, if nothing can stop."""
        topic = self._requests.stop(schema, table)
        if self._rows is not None:
            self._rows.stop(topic)

    def announce(self, announced: Iterable[AnnouncedTable]) -> list[Table]:
        """Take the tables whose events come next, in order; return those that get a new snapshot because of it.

        Raises FatalError if a key has changed or a table was replaced, and the daemon is to stop then.
        """
        copied = self._requests.announce(announced)
        if copied and self.state is SnapshotState.IDLE:
            self._begin()
        return copied

    def request_repair(self, schema: str, table: str, keys: RepairKeys) -> None:
        """Take a request for the repair of some rows of a table."""
        self._repairs.request(schema, table, keys)
        if self.state is SnapshotState.IDLE:
            self._begin()

    def pause(self, *, is_paused: bool) -> None:
        """Pause the snapshots, or let them go on."""
        self._requests.is_paused = is_paused
        if not is_paused and self.state is SnapshotState.IDLE:
            self._begin()

    @property
    def is_paused(self) -> bool:
        """The snapshots are paused. For any thread."""
        return self._requests.is_paused

    @property
    def is_out_of_hours(self) -> bool:
        """No rows are read, because each table that is to be copied waits for its hours. For any thread."""
        if self.state is SnapshotState.IDLE:
            return self._requests.has_waiting
        return self._rows is not None and self._rows.is_waiting and not self.is_paused

    @property
    def stopped(self) -> list[Table]:
        """The tables whose snapshots a person has stopped. For any thread."""
        return self._requests.stopped

    def turn(self, now: float, room: Room) -> Action:
        """Advance without waiting; call it once a turn. Raises what export and reading raise.

        Raises FatalError, too, if a table was replaced, and the daemon is to stop then.
        """
        if self.state is SnapshotState.IDLE and (news := self._poll_scan(now, room)):
            return news
        if self.state is SnapshotState.REQUESTED:
            self._requests.choose_anew()
            self._export = self._start_export(self._requests.choose, self._repairs.choose)
            self.state = SnapshotState.EXPORTING
        elif self.state is SnapshotState.EXPORTING:
            return self._poll_export(now)
        elif self.state is SnapshotState.CATCHING_UP:
            return self._catch_up(now, room)
        elif self.state is SnapshotState.READING and room.wants_rows:
            return self._read_rows(now, room)
        return NOTHING

    def _begin(self) -> None:
        self._export = self._rows = self._scan = None
        self.state = SnapshotState.REQUESTED

    def _poll_scan(self, now: float, room: Room) -> Action | None:
        """Scan for tables that are newly published, or were replaced, once an interval.

        Returns the action that records what else the catalog says, if that is news.
        """
        if self._scan is None:
            if now >= self._next_scan_s and self._may_want_tables:
                self._scan = self._start_scan(self._wants)
        elif room.accepts_batch and (found := self._scan.found) is not None:
            self._scan = None
            self._next_scan_s = now + SCAN_INTERVAL_S
            self._requests.note_waiting(found.incarnations or {})
            if found.wants_snapshot:
                self._begin()
            elif room.is_history_known and found.incarnations is not None:
                batch = Batch()
                batch.snapshot_records = self._requests.compare(found.incarnations)
                return Action(batch=batch) if batch.snapshot_records else None
        return None

    @property
    def _may_want_tables(self) -> bool:
        return self._requests.may_want_tables or self._repairs.has_any

    def _wants(self, schema: str, table: str, seen: Incarnation) -> bool:
        asked = {(each.schema, each.table) for each in self._repairs.choose()}
        return (schema, table) in asked or self._requests.choose(schema, table, seen) is not None

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
            exported.tables[:] = [
                table
                for table in exported.tables
                if not self._requests.is_stopped(table.relation.schema, table.relation.name)
            ]
            self._requests.begin([table.record for table in exported.tables])
            self._repairs.begin(exported.repairs)
            self._rows = SnapshotRows(exported, self._encoder, self._batches, self._limits)
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
        renamed = self._renamed_tables(room)
        if (renamed or self._requests.stops_here) and not room.is_sink_idle:
            return NOTHING  # then the next stream begins behind everything of the old name, or of the old table
        if renamed:
            raise SnapshotGone(f"the stream still uses an old name: {renamed[0]}")
        if self._rows.has_repairs:
            return self._repair(self._rows)
        anew = self._requests.reach(self._rows.tables)
        self.state = SnapshotState.READING
        self._rows.start(now, anew)
        return self._read_rows(now, room, consistent_lsn=self._rows.lsn)

    def _repair(self, rows: SnapshotRows) -> Action:
        """Publish all repairs of the snapshot: the stream stands at its consistent point until they are handed on."""
        gathered, outcomes = rows.repair(self._repairs.is_wanted)
        batch = RepairBatch(gathered, self._repairs.finish(outcomes, rows.lsn))
        # The rows may be of another table, or under another key, than the last events, as those of the stream may.
        copied = self._requests.announce(batch.announced)
        batch.requests = [Request(SNAPSHOT, table) for table in copied]
        batch.requests += self._requests.refused(each.pending for each in outcomes if each.refused)
        batch.snapshots = self._requests.repaired(outcomes, self._repairs.topics_left(), rows.lsn)
        is_over = not rows.tables
        if is_over:
            self._end(rows)
        tables, changed = {each.pending.topic for each in outcomes}, sum(each.rows + each.deletes for each in outcomes)
        return Action(
            consistent_lsn=rows.lsn,
            resumes=is_over,
            batch=batch,
            finished=Finished(rows.lsn, len(tables), changed, "repaired rows"),
        )

    def _renamed_tables(self, room: Room) -> list[str]:
        """The tables of the snapshot that the stream would go on to send under an old name.

        A walsender of PostgreSQL 14 and 15 does not notice that a schema was renamed. No walsender announces the new
        name of a root for partitions that it has announced. The topic of the new name would end with the snapshot. A
        new walsender knows all new names.
        """
        assert self._rows is not None
        found = []
        for relation, is_partitioned in self._rows.relations:
            now, name = (relation.schema, relation.name), room.name_in_stream(relation.oid)
            if name is not None and (_has_another_schema(name, now) or (is_partitioned and name != now)):
                found.append(f"{'.'.join(name)} is {'.'.join(now)} by now")
        return found

    def _may_request_keepalive(self, now: float) -> bool:
        if now - self._last_keepalive_request_s < KEEPALIVE_INTERVAL_S:
            return False
        self._last_keepalive_request_s = now
        return True

    def _read_rows(self, now: float, room: Room, *, consistent_lsn: int = 0) -> Action:
        """Read the rows that have come. `consistent_lsn` not 0: these are the first, handed on in any case."""
        rows = self._rows
        assert rows is not None
        rows.read(now, self._requests.may_read)
        is_large = rows.gathered_bytes >= self._limits.batch_bytes
        is_wanted = room.is_sink_idle and not rows.may_have_more
        if not (rows.is_finished or consistent_lsn or is_large or is_wanted):
            return NOTHING
        batch = rows.take_batch()
        batch.more_expected = rows.has_more_soon and not rows.is_finished
        assert batch.snapshot_records is not None
        self._requests.finish(batch.snapshot_records)
        batch.snapshot_records += self._requests.requested_since(batch.snapshot_records)
        return Action(
            consistent_lsn=consistent_lsn,
            resumes=consistent_lsn > 0 and not self._only,
            batch=batch if batch.rows or batch.snapshot_records else None,
            left=rows.left(now),
            finished=self._finish(rows) if rows.is_finished else None,
        )

    def _finish(self, rows: SnapshotRows) -> Finished:
        complete = [table for table in rows.tables if table.state == DONE]
        self._end(rows)
        message = "the snapshot is complete" if complete else "the snapshot was stopped"
        return Finished(rows.lsn, len(complete), sum(table.rows for table in complete), message)

    def _end(self, rows: SnapshotRows) -> None:
        rows.close()
        self.state = SnapshotState.IDLE
        if self._requests.has_requests or self._repairs.has_requests or rows.leaves_repairs:
            self._begin()

    def sockets(self) -> list[int]:
        """Return the sockets that rows come from."""
        return self._rows.sockets() if self._rows is not None and self.state is SnapshotState.READING else []

    @property
    def wait_s(self) -> float:
        """After how many seconds the limits let more rows be read; infinite if they do not keep any back."""
        return self._rows.wait_s if self._rows is not None and self.state is SnapshotState.READING else inf

    @property
    def may_have_more_rows(self) -> bool:
        """The last read left rows, which no socket announces."""
        return self._rows is not None and self._rows.may_have_more

    @property
    def tables_left(self) -> int:
        """Tables whose snapshot is not complete."""
        rows = self._rows
        return 0 if rows is None else rows.tables_left

    @property
    def bytes_left(self) -> int:
        """The part of these tables that was not read yet, as far as it can be estimated."""
        rows = self._rows
        return 0 if rows is None else rows.bytes_left

    def progress(self, now: float) -> SnapshotProgress | None:
        """How far the snapshot is that is under way, or waits for its hours; None if there is none. For any thread."""
        state, rows = self.state, self._rows
        if state is SnapshotState.IDLE:
            waiting = self._requests.waiting
            return SnapshotProgress(is_read=False, waiting=waiting) if waiting else None
        if rows is None:
            return SnapshotProgress(is_read=False)
        is_read = state is SnapshotState.READING
        seconds_left = rows.seconds_left(now) if is_read and not rows.is_waiting else None
        return SnapshotProgress(is_read, rows.lsn, rows.progress, seconds_left)

    def close(self) -> None:
        """Give the snapshot up, and close its connections."""
        if self._export is not None:
            self._export.close()


def _has_another_schema(in_stream: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether a table's schema was renamed. Names that are not ASCII may differ by their encoding alone."""
    return in_stream[0] != now[0] and in_stream[1] == now[1] and (in_stream[0] + now[0]).isascii()
