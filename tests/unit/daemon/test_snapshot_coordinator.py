"""The coordinator's states, moved on with a played export and played connections."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, cast

import pytest

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.daemon.exported_tables import TableExport
from cdcd.daemon.new_table_scan import ScanResult
from cdcd.daemon.recopies import Recopies
from cdcd.daemon.repair_requests import RepairRequests
from cdcd.daemon.snapshot_coordinator import (
    FIRST_LSN,
    KEEPALIVE_INTERVAL_S,
    NOTHING,
    SCAN_INTERVAL_S,
    Action,
    Finished,
    SnapshotCoordinator,
    SnapshotState,
)
from cdcd.daemon.snapshot_export import ChooseRepairs, ExportedSnapshot
from cdcd.daemon.snapshot_requests import UNPUBLISHED, SnapshotRequests
from cdcd.daemon.snapshot_rows import GATHER_BYTES, GATHER_S, LOOK_INTERVAL_S, SnapshotLimits
from cdcd.errors import PostgresUnavailable
from cdcd.progress.repair_records import RepairKeys
from cdcd.progress.snapshot_records import DONE, RUNNING, STOPPED, WANTED, Choose, TableSnapshot, wanted_snapshot
from cdcd.sink.batches import BatchBuilder, RepairBatch
from cdcd.sink.topics import TopicNames
from cdcd.snapshot.copy_format import SIGNATURE
from cdcd.snapshot.copy_rate import CopyRate, TableRates
from cdcd.snapshot.repair_events import RepairRows
from cdcd.snapshot.table_progress import SnapshotProgress
from cdcd.source.heaps import Heap
from cdcd.source.incarnations import Incarnation
from cdcd.source.pg_types import PgType
from cdcd.source.server_errors import SnapshotGone
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

LSN = 0x5000
NOW = 1000.0
HEADER = SIGNATURE + bytes(8)
TRAILER = b"\xff\xff"


@dataclass
class PlayedRoom:
    is_stream_paused: bool = False
    accepts_batch: bool = True
    is_history_known: bool = True
    wants_rows: bool = True
    is_sink_idle: bool = True
    names: dict[int, tuple[str, str]] = field(default_factory=dict)

    def name_in_stream(self, relation_oid: int) -> tuple[str, str] | None:
        return self.names.get(relation_oid)


class PlayedConnection:
    """Gives the rows that the test puts into `arrived`."""

    def __init__(self) -> None:
        self.chunk: Any = None
        self.arrived: list[bytes] = []
        self.has_more = False
        self.read_bytes = 0
        self.is_closed = False
        self.leaves: list[int] = []

    def fileno(self) -> int:
        return 42

    def start(self, chunk: Any, columns: object, row_filter: str, numbers: object) -> None:
        assert numbers == {"id": 1}
        self.chunk = chunk

    def leave(self) -> None:
        assert self.chunk is None
        self.leaves.append(len(self.leaves))

    def read(self, rows_max: int, _: int) -> tuple[list[bytes], bool]:
        messages, self.arrived = self.arrived[:rows_max], self.arrived[rows_max:]
        self.has_more, self.read_bytes = bool(self.arrived), sum(map(len, messages))
        ended = TRAILER in messages
        if ended:
            self.chunk = None
        return messages, ended

    def close(self) -> None:
        self.is_closed = True


@dataclass
class PlayedExport:
    choose: Choose
    repairs: ChooseRepairs
    needs_pause: bool = False
    done: bool = False
    safe_stream_lsn: int = 0
    is_paused: bool = False
    exported: ExportedSnapshot | None = None
    error: Exception | None = None
    is_closed: bool = False

    def confirm_stream_paused(self) -> None:
        self.needs_pause = False
        self.is_paused = True

    def result(self) -> ExportedSnapshot | None:
        if self.error is not None:
            raise self.error
        return self.exported

    def close(self) -> None:
        self.is_closed = True


@dataclass
class PlayedScan:
    found: ScanResult | None = None


@dataclass
class Played:
    """A coordinator, and what it started."""

    takes_new_tables: bool = True
    only: bool = False
    snapshots: dict[str, TableSnapshot] = field(default_factory=dict)
    recopies: Recopies | None = None
    rates: TableRates = field(default_factory=TableRates)
    is_paused: bool = False
    are_hours_open: bool = True
    always: tuple[str, ...] = ()
    """Tables that are copied at any hour."""
    exports: list[PlayedExport] = field(default_factory=list)
    scans: list[PlayedScan] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.room = PlayedRoom()
        self.connection = PlayedConnection()
        self.anchor = PlayedConnection()
        self.batches = BatchBuilder(tombstones=False)
        self.requests = SnapshotRequests(
            "s",
            TopicNames("p"),
            self.snapshots,
            takes=(lambda *_: True) if self.takes_new_tables else None,
            recopies=self.recopies,
            is_paused=self.is_paused,
            are_hours_open=lambda _, name: self.are_hours_open or name in self.always,
        )
        self.repairs = RepairRequests("s", TopicNames("p"))
        self.coordinator = SnapshotCoordinator(
            self.requests,
            EventEncoder(self.batches, FingerprintStore(self.batches), TypeOptions()),
            self.batches,
            cast("Any", self._start_export),
            cast("Any", self._start_scan),
            SnapshotLimits(8192, rows_max=100, batch_bytes=1 << 16, rates=self.rates),
            self.repairs,
            only=self.only,
        )

    def _start_export(self, choose: Choose, repairs: ChooseRepairs) -> PlayedExport:
        self.exports.append(PlayedExport(choose, repairs))
        return self.exports[-1]

    def _start_scan(self, _: Callable[[str, str], bool]) -> PlayedScan:
        self.scans.append(PlayedScan())
        return self.scans[-1]

    def turn(self, now: float = NOW) -> Action:
        return self.coordinator.turn(now, self.room)

    def is_in(self, state: SnapshotState) -> bool:
        return self.coordinator.state is state

    def exported(self, blocks: int = 1) -> ExportedSnapshot:
        """One table with an int column, exported at LSN."""
        wanted = self.requests.choose("public", "t")
        assert wanted is not None
        column = ResolvedColumn("id", PgType(23, "pg_catalog", "int4"), -1, True)
        heap = Heap(1, "public", "t", 10, blocks, 0, True, False)
        table = TableExport(wanted, ResolvedRelation(1, "public", "t", "d", [column]), [heap], b"b", "", {1: {"id": 1}})
        connections = cast("Any", [self.connection])
        return ExportedSnapshot(LSN, 1_700_000_000_000_000, 700, [table], connections, cast("Any", self.anchor))

    def repaired(self, *, has_table: bool = False, leaves_repairs: bool = False) -> ExportedSnapshot:
        """The rows of all repairs that the export is to read, exported at LSN: each key has a row."""
        column = ResolvedColumn("id", PgType(23, "pg_catalog", "int4"), -1, True)
        relation = ResolvedRelation(1, "public", "t", "d", [column])
        read = [
            RepairRows(each, relation, b"b", [[HEADER, *(row(int(key)) for (key,) in each.wanted.keys), TRAILER]])
            for each in self.exports[-1].repairs()
        ]
        tables = self.exported().tables if has_table else []
        anchor = cast("Any", self.anchor)
        connections = cast("Any", [self.connection])
        return ExportedSnapshot(
            LSN, 1_700_000_000_000_000, 700, tables, connections, anchor, read, leaves_repairs=leaves_repairs
        )

    def catch_up(self, blocks: int = 1) -> Action:
        """Bring it to the consistent point, and begin to read."""
        self.turn()
        export = self.exports[-1]
        export.done, export.exported = True, self.exported(blocks)
        self.turn()
        self.room.is_stream_paused = True
        return self.turn()


def row(number: int) -> bytes:
    return struct.pack("!hii", 1, 4, number)


def test_the_stream_pauses_where_it_is_before_the_snapshot_is_taken() -> None:
    it = Played()
    assert it.is_in(SnapshotState.REQUESTED)
    assert it.turn() == NOTHING
    assert it.is_in(SnapshotState.EXPORTING)
    assert it.turn() == NOTHING, "the export is not ready"
    it.exports[0].needs_pause = True
    assert it.turn() == Action(pause_before_lsn=FIRST_LSN)
    assert it.exports[0].is_paused


def test_the_pause_moves_on_while_the_server_makes_the_export_wait() -> None:
    it = Played()
    it.turn()
    it.exports[0].needs_pause = True
    it.turn()
    it.exports[0].safe_stream_lsn = 0x300
    assert it.turn() == Action(pause_before_lsn=0x300)
    assert it.turn() == NOTHING
    it.exports[0].safe_stream_lsn = 0x400
    assert it.turn() == Action(pause_before_lsn=0x400)


def test_the_stream_runs_up_to_the_consistent_point_and_an_idle_server_is_asked_how_far_it_is() -> None:
    it = Played()
    it.turn()
    it.exports[0].done, it.exports[0].exported = True, it.exported()
    assert it.turn() == Action(pause_before_lsn=LSN, requests_keepalive=True)
    assert it.is_in(SnapshotState.CATCHING_UP)
    assert it.turn(NOW + KEEPALIVE_INTERVAL_S / 2) == NOTHING
    assert it.turn(NOW + 2 * KEEPALIVE_INTERVAL_S) == Action(requests_keepalive=True)


def test_no_row_is_read_before_the_stream_stands_at_the_consistent_point_with_room_for_a_batch() -> None:
    it = Played()
    it.turn()
    it.exports[0].done, it.exports[0].exported = True, it.exported()
    it.turn()
    it.room.is_stream_paused, it.room.accepts_batch = True, False
    assert it.turn() == NOTHING
    assert it.is_in(SnapshotState.CATCHING_UP)
    it.room.accepts_batch, it.room.wants_rows = True, False
    assert it.turn().consistent_lsn == LSN, "the first batch waits for no more than that"


def test_the_first_batch_says_which_tables_are_read_and_the_stream_goes_on_with_it() -> None:
    it = Played()
    action = it.catch_up()
    assert it.is_in(SnapshotState.READING)
    assert action.resumes
    assert action.consistent_lsn == LSN
    assert action.batch is not None
    assert action.batch.snapshot_records is not None
    [table] = action.batch.snapshot_records
    assert (table.topic, table.state, table.lsn) == ("p.public.t", RUNNING, LSN)
    assert it.coordinator.sockets() == [42]


def test_where_only_snapshots_are_wanted_the_stream_stays_paused() -> None:
    action = Played(only=True).catch_up()
    assert action.consistent_lsn == LSN
    assert not action.resumes


def test_rows_are_handed_on_while_there_is_room_and_the_last_batch_ends_the_snapshot() -> None:
    it = Played()
    it.catch_up(blocks=2)
    it.connection.arrived = [HEADER + row(1), row(2)]
    it.room.wants_rows = False
    assert it.turn() == NOTHING
    it.room.wants_rows = True
    action = it.turn(NOW + 1)
    assert action.batch is not None
    assert action.batch.rows == 2
    assert action.left == {"tables_left": 1, "bytes_left": 2 * 8192, "seconds_left": None}, "no chunk is read yet"
    it.connection.arrived = [TRAILER]
    it.turn(NOW + 1)
    it.connection.arrived = [HEADER + row(3), TRAILER]
    action = it.turn(NOW + 2)
    assert action.batch is not None
    assert action.batch.snapshot_records is not None
    [table] = action.batch.snapshot_records
    assert (table.state, table.rows) == (DONE, 3)
    assert action.finished == Finished(LSN, 1, 3)
    assert it.is_in(SnapshotState.IDLE)
    assert it.connection.is_closed
    assert it.anchor.is_closed
    assert it.coordinator.sockets() == []
    assert (it.coordinator.tables_left, it.coordinator.bytes_left) == (0, 0)


def test_small_batches_are_for_an_idle_sink() -> None:
    it = Played()
    it.catch_up()
    it.connection.arrived = [HEADER + row(1)]
    it.room.is_sink_idle = False
    assert it.turn() == NOTHING
    it.room.is_sink_idle = True
    action = it.turn()
    assert action.batch is not None
    assert action.batch.rows == 1


def test_rows_that_no_socket_announces_are_read_at_once_and_a_large_batch_is_made_of_them() -> None:
    it = Played()
    it.catch_up()
    it.connection.arrived = [HEADER + row(1), *map(row, range(2, 151))]
    assert it.turn() == NOTHING, "the rest fits into the batch"
    assert it.coordinator.may_have_more_rows
    assert it.coordinator.sockets() == [42]
    action = it.turn()
    assert action.batch is not None
    assert (action.batch.rows, action.batch.more_expected) == (150, True)


def test_more_rows_gather_before_a_connection_that_gave_all_is_read_again() -> None:
    it = Played()
    it.catch_up()
    assert it.coordinator.wait_s == inf
    it.connection.arrived = [HEADER + row(1)]
    action = it.turn()
    assert action.batch is not None
    assert action.batch.more_expected
    assert not it.coordinator.may_have_more_rows
    assert it.coordinator.sockets() == [], "each row would end the wait"
    assert it.coordinator.wait_s == GATHER_S
    assert it.turn() == Action(left=it.turn().left)
    assert it.coordinator.sockets() == [42], "nothing has come: whatever comes ends the wait"
    assert it.coordinator.wait_s == inf
    it.connection.arrived = [row(2), TRAILER]
    action = it.turn()
    assert action.batch is not None
    assert not action.batch.more_expected, "Kafka's transaction ends with the snapshot"


def test_a_connection_that_gives_much_at_once_is_read_again_at_once() -> None:
    it = Played()
    it.catch_up()
    it.connection.arrived = [HEADER + row(1), TRAILER]
    it.connection.read = lambda *_: _much(it.connection)  # type: ignore[method-assign]
    it.turn()
    assert it.coordinator.may_have_more_rows
    assert it.coordinator.wait_s == inf


def _much(connection: PlayedConnection) -> tuple[list[bytes], bool]:
    """A row for many."""
    connection.read_bytes = GATHER_BYTES
    return connection.arrived[:1], False


def test_a_table_that_is_asked_for_while_it_is_read_gets_another_snapshot() -> None:
    it = Played()
    it.catch_up()
    it.coordinator.request("public", "t")
    it.connection.arrived = [HEADER + row(1), TRAILER]
    action = it.turn()
    assert action.finished is not None
    assert action.batch is not None
    assert action.batch.snapshot_records is not None
    assert [table.state for table in action.batch.snapshot_records] == [DONE, WANTED], "the next daemon knows of it"
    assert it.is_in(SnapshotState.REQUESTED)
    it.turn()
    assert len(it.exports) == 2
    assert it.requests.choose("public", "t") is not None


@pytest.mark.parametrize("rates", [TableRates(CopyRate(2)), TableRates(limits=lambda *_: (2, 0))])
def test_a_limit_keeps_rows_back_and_the_loop_neither_spins_nor_forgets_them(rates: TableRates) -> None:
    it = Played(rates=rates)
    it.catch_up()
    it.connection.arrived = [HEADER + row(1), row(2), row(3), TRAILER]
    assert it.turn().batch is None
    assert it.coordinator.sockets() == [], "they would end every wait"
    assert not it.coordinator.may_have_more_rows
    assert it.coordinator.wait_s == 0.5
    assert it.turn(NOW + 1) == NOTHING
    assert it.coordinator.may_have_more_rows
    action = it.turn(NOW + 1)
    assert action.batch is not None
    assert action.batch.rows == 2, "they do not wait for the rest"
    assert not it.coordinator.may_have_more_rows
    assert it.coordinator.wait_s == 0.5
    action = it.turn(NOW + 2)
    assert action.finished == Finished(LSN, 1, 3)
    assert it.coordinator.wait_s == inf


def test_a_paused_snapshot_ends_its_chunks_and_holds_neither_a_lock_nor_the_stream() -> None:
    it = Played()
    it.catch_up(blocks=2)
    it.turn()
    it.coordinator.pause(is_paused=True)
    it.connection.arrived = [HEADER + row(1)]
    assert it.turn().batch is not None, "the chunk that was begun"
    assert not it.connection.leaves
    it.connection.arrived = [TRAILER]
    it.turn()
    assert it.connection.chunk is None
    assert len(it.connection.leaves) == 1
    assert it.is_in(SnapshotState.READING)
    assert it.coordinator.sockets() == []
    progress = it.coordinator.progress(NOW)
    assert progress is not None
    assert progress.seconds_left is None
    assert not it.anchor.is_closed, "the snapshot stays"
    it.coordinator.pause(is_paused=False)
    it.turn(NOW + LOOK_INTERVAL_S)
    it.connection.arrived = [HEADER + row(2), TRAILER]
    assert it.turn().finished == Finished(LSN, 1, 2)
    assert len(it.exports) == 1


def test_a_snapshot_that_is_stopped_ends_at_once_with_the_rows_that_were_read() -> None:
    it = Played()
    it.catch_up(blocks=3)
    it.turn()
    it.room.is_sink_idle = False
    it.connection.arrived = [HEADER + row(1)]
    assert it.turn() is NOTHING
    it.coordinator.stop("public", "t")
    it.connection.arrived = [row(2)]
    action = it.turn()
    assert action.batch is not None
    assert action.batch.rows == 1
    assert [(each.state, each.rows) for each in action.batch.snapshot_records or ()] == [(STOPPED, 1)]
    assert action.finished == Finished(LSN, 0, 0, "the snapshot was stopped")
    assert it.anchor.is_closed
    assert it.connection.is_closed
    assert it.is_in(SnapshotState.IDLE)


def test_a_snapshot_that_is_stopped_and_asked_for_again_while_it_is_read_begins_again() -> None:
    it = Played()
    it.catch_up()
    it.coordinator.stop("public", "t")
    it.coordinator.request("public", "t")
    action = it.turn()
    assert action.batch is not None
    assert [each.state for each in action.batch.snapshot_records or ()] == [STOPPED, WANTED], "in this order"
    assert it.is_in(SnapshotState.REQUESTED)


def test_a_snapshot_that_is_complete_is_not_stopped_while_others_are_read() -> None:
    it = Played()
    it.catch_up()
    it.connection.arrived = [HEADER + row(1), TRAILER]
    it.turn()
    with pytest.raises(ValueError, match="is complete"):
        it.coordinator.stop("public", "t")


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_snapshot_that_is_stopped_before_its_rows_leaves_no_trace(is_taken: bool) -> None:
    it = Played()
    it.turn()
    export = it.exports[-1]
    export.exported = it.exported()
    if not is_taken:
        it.coordinator.stop("public", "t")
    export.done = True
    it.turn()
    if is_taken:
        it.coordinator.stop("public", "t")
    it.room.is_stream_paused = True
    action = it.turn()
    assert action.batch is None
    assert action.resumes
    assert action.finished == Finished(LSN, 0, 0, "the snapshot was stopped")
    assert it.anchor.is_closed
    assert it.is_in(SnapshotState.IDLE)


def test_no_snapshot_begins_before_the_pause_of_an_earlier_daemon_is_over() -> None:
    it = Played(is_paused=True)
    it.turn()
    assert it.exports[0].choose("public", "t", None) is None
    it.exports[0].done = True
    assert it.turn() == Action(resumes=True)
    it.coordinator.request("public", "t")
    it.turn()
    assert it.exports[1].choose("public", "t", None) is None
    it.exports[1].done = True
    it.turn()
    assert it.is_in(SnapshotState.IDLE)
    it.coordinator.pause(is_paused=False)
    it.turn()
    assert it.exports[2].choose("public", "t", None) is not None


def test_a_snapshot_begins_by_itself_when_its_hours_do_and_pauses_when_they_end() -> None:
    it = Played(are_hours_open=False)
    it.turn()
    assert it.exports[0].choose("public", "t", None) is None
    it.are_hours_open = True
    assert it.exports[0].choose("public", "t", None) is not None
    it = Played()
    it.catch_up(blocks=2)
    it.turn()
    it.are_hours_open = False
    it.connection.arrived = [HEADER + row(1), TRAILER]
    assert not it.coordinator.is_out_of_hours, "rows come"
    it.turn()
    it.turn()
    assert it.connection.chunk is None, "no chunk is begun"
    assert it.coordinator.is_out_of_hours
    assert it.coordinator.wait_s == LOOK_INTERVAL_S
    it.coordinator.pause(is_paused=True)
    it.are_hours_open = True
    it.turn(NOW + 1)
    assert it.connection.chunk is None, "a person has paused them, too"
    assert not it.coordinator.is_out_of_hours
    it.coordinator.pause(is_paused=False)
    it.turn(NOW + 2)
    it.connection.arrived = [HEADER + row(2), TRAILER]
    assert it.turn(NOW + 2).finished == Finished(LSN, 1, 2)


def test_a_table_with_hours_of_its_own_is_copied_while_others_wait() -> None:
    it = Played(are_hours_open=False, always=("t",))
    it.turn()
    assert it.exports[0].choose("public", "u", None) is None
    it.exports[0].done, it.exports[0].exported = True, it.exported(2)
    it.turn()
    it.room.is_stream_paused = True
    it.turn()
    it.connection.arrived = [HEADER + row(1), TRAILER]
    it.turn()
    assert it.connection.chunk is not None
    assert not it.coordinator.is_out_of_hours, "a table is read"
    it.connection.arrived = [HEADER + row(2), TRAILER]
    assert it.turn().finished == Finished(LSN, 1, 2)
    assert it.coordinator.is_out_of_hours, "the other one still waits"
    assert it.coordinator.progress(NOW) == SnapshotProgress(is_read=False, waiting=1)


def test_a_table_that_waits_for_the_hours_is_told_before_its_snapshot_begins() -> None:
    it = Played(
        are_hours_open=False,
        snapshots={"p.public.u": replace(wanted_snapshot("s", "p.public.u", "public", "u"), state=DONE)},
    )
    it.turn()
    it.exports[0].done = True
    it.turn()
    assert it.is_in(SnapshotState.IDLE)
    it.turn()
    it.scans[0].found = ScanResult(False, {("public", name): Incarnation(1) for name in "tu"})
    it.turn()
    assert it.coordinator.progress(NOW) == SnapshotProgress(is_read=False, waiting=1)
    it.are_hours_open = True
    assert it.coordinator.progress(NOW) is None, "the next scan finds it"


def test_rows_are_repaired_while_the_snapshots_are_paused() -> None:
    it = Played(is_paused=True, takes_new_tables=False)
    it.coordinator.request_repair("public", "t", RepairKeys(("id",), (("7",),)))
    it.turn()
    assert len(it.exports[0].repairs()) == 1


def test_the_stream_goes_on_where_no_table_wants_a_snapshot_after_all() -> None:
    it = Played()
    it.turn()
    it.exports[0].done = True
    assert it.turn() == Action(resumes=True)
    assert it.is_in(SnapshotState.IDLE)


def test_a_newly_published_table_is_found_by_the_next_scan() -> None:
    it = Played()
    it.turn()
    it.exports[0].done = True
    it.turn()
    it.turn()
    [scan] = it.scans
    scan.found = ScanResult(wants_snapshot=False, incarnations={})
    it.turn()
    it.turn(NOW + SCAN_INTERVAL_S - 1)
    assert len(it.scans) == 1
    it.turn(NOW + SCAN_INTERVAL_S)
    it.scans[1].found = ScanResult(wants_snapshot=True, incarnations={})
    assert it.turn(NOW + SCAN_INTERVAL_S) == NOTHING
    assert it.is_in(SnapshotState.EXPORTING), "the export starts in the same turn"


def test_what_the_catalog_says_is_recorded_only_of_a_server_that_has_all_that_kafka_has() -> None:
    copied = TableSnapshot("s", "p.public.t", "public", "t", DONE, LSN, incarnation=Incarnation(7, (1,)))
    recopies = Recopies(TopicNames("p"), {}, {copied.topic: Incarnation(7, (1,))})
    it = Played(snapshots={copied.topic: copied}, recopies=recopies)
    it.turn()
    it.exports[0].done = True
    it.turn()
    it.turn()
    it.room.is_history_known = False
    it.scans[0].found = ScanResult(wants_snapshot=False, incarnations={})
    assert it.turn() == NOTHING, "the server may have been put back to a time before the table was published"
    it.room.is_history_known = True
    it.turn(NOW + SCAN_INTERVAL_S)
    it.scans[1].found = ScanResult(wants_snapshot=False, incarnations={})
    batch = it.turn(NOW + SCAN_INTERVAL_S).batch
    [record] = (batch and batch.snapshot_records) or []
    assert record == replace(copied, incarnation=Incarnation(7, UNPUBLISHED))


def test_nothing_is_looked_for_where_no_table_can_want_a_snapshot() -> None:
    it = Played(takes_new_tables=False)
    assert it.is_in(SnapshotState.IDLE)
    assert it.turn() == NOTHING
    assert it.scans == []
    it.coordinator.request("public", "t")
    it.turn()
    assert len(it.exports) == 1


def test_a_stream_that_uses_the_old_name_of_a_schema_starts_again_before_the_rows() -> None:
    it = Played()
    it.room.names[1] = ("before", "t")
    it.room.is_sink_idle = False
    assert it.catch_up() == NOTHING, "what has the old name is not in Kafka yet"
    it.room.is_sink_idle = True
    with pytest.raises(SnapshotGone, match=r"before\.t is public\.t by now"):
        it.turn()


@pytest.mark.parametrize("name", [("public", "t"), ("public", "renamed"), ("pübl", "t")])
def test_another_name_in_the_stream_is_no_reason_to_start_again(name: tuple[str, str]) -> None:
    it = Played()
    it.room.names[1] = name
    it.catch_up()
    assert it.is_in(SnapshotState.READING)


def test_what_ends_the_export_ends_the_stream() -> None:
    it = Played()
    it.turn()
    it.exports[0].done, it.exports[0].error = True, PostgresUnavailable("gone", code="postgres-interrupted")
    with pytest.raises(PostgresUnavailable, match="gone"):
        it.turn()
    it.coordinator.close()
    assert it.exports[0].is_closed


def test_a_connection_that_has_nothing_more_to_read_lets_its_table_go_while_others_still_read() -> None:
    it = Played()
    idle = PlayedConnection()
    it.turn()
    export = it.exports[-1]
    export.done, export.exported = True, it.exported()
    export.exported.connections.append(cast("Any", idle))
    it.turn()
    it.room.is_stream_paused = True
    it.turn()
    assert it.connection.chunk is not None
    assert idle.is_closed
    assert not it.connection.is_closed
    assert not it.anchor.is_closed


KEYS = RepairKeys(("id",), (("1",), ("2",)))


def exports_repairs(it: Played, **more: bool) -> Action:
    """Bring a requested repair to the consistent point; returns the action there."""
    it.turn()
    export = it.exports[-1]
    export.done, export.exported = True, it.repaired(**more)
    assert it.turn().pause_before_lsn == LSN
    it.room.is_stream_paused = True
    return it.turn()


def test_a_repair_is_published_whole_before_the_stream_goes_on() -> None:
    it = Played(takes_new_tables=False)
    assert it.is_in(SnapshotState.IDLE)
    it.coordinator.request_repair("public", "t", KEYS)
    action = exports_repairs(it)
    assert (action.consistent_lsn, action.resumes) == (LSN, True)
    assert isinstance(action.batch, RepairBatch)
    assert (action.batch.rows, len(action.batch.records)) == (2, 2)
    assert action.batch.snapshot_records is None, "it follows what is deferred"
    assert action.finished == Finished(LSN, 1, 2, "repaired rows")
    assert it.is_in(SnapshotState.IDLE)
    assert it.anchor.is_closed
    assert not it.repairs.has_any


def test_a_snapshot_of_a_table_follows_the_repairs_of_the_same_export_while_the_stream_waits() -> None:
    it = Played()
    it.coordinator.request_repair("public", "t", KEYS)
    action = exports_repairs(it, has_table=True)
    assert isinstance(action.batch, RepairBatch)
    assert (action.consistent_lsn, action.resumes) == (LSN, False)
    following = it.turn()
    assert (following.consistent_lsn, following.resumes) == (LSN, True)
    assert it.is_in(SnapshotState.READING)


def test_a_repair_that_is_requested_meanwhile_or_had_no_room_gets_another_snapshot() -> None:
    it = Played(takes_new_tables=False)
    it.coordinator.request_repair("public", "t", KEYS)
    it.turn()
    export = it.exports[-1]
    export.done, export.exported = True, it.repaired()
    it.turn()
    it.coordinator.request_repair("public", "t", KEYS)
    it.room.is_stream_paused = True
    action = it.turn()
    assert action.batch is not None
    assert action.batch.rows == 0, "the later snapshot publishes it"
    assert it.is_in(SnapshotState.REQUESTED)
    assert exports_repairs(it, leaves_repairs=True).batch is not None
    assert it.is_in(SnapshotState.REQUESTED)
