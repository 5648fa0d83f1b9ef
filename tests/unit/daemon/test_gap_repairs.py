"""What becomes of a table that is compared after a gap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from cdcd.daemon.gap_repairs import GapRepairs
from cdcd.daemon.recopies import Recopies, Table
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.daemon.table_comparison import Compared
from cdcd.progress.daemon_requests import REPAIR, SNAPSHOT, STOP, Request
from cdcd.progress.repair_records import RepairKeys
from cdcd.progress.snapshot_records import COMPARE, DONE, ROWS, wanted_snapshot
from cdcd.sink.batches import RepairBatch
from cdcd.sink.topics import TopicNames

A = replace(wanted_snapshot("s", "p.public.a", "public", "a"), repair=COMPARE)
B = replace(wanted_snapshot("s", "p.public.b", "public", "b"), repair=COMPARE)
KEYS = RepairKeys(("id",), (("1",), ("2",)))


class PlayedComparison:
    waits = False

    def __init__(self) -> None:
        self.found: Compared | None = None
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Played:
    def __init__(self, *, parked: str = "", compares: bool = True, never: bool = False) -> None:
        self.requests = SnapshotRequests(
            "s", TopicNames("p"), {"p.public.a": A, "p.public.b": B}, takes=lambda *_: True,
            parked=lambda: {("public", parked)}, recopies=Recopies(TopicNames("p"), {}, {}, forbids=lambda *_: never),
        )  # fmt: skip
        self.started: list[tuple[Table, PlayedComparison]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.gap = GapRepairs(self.requests, self, self._start if compares else None)

    def _start(self, table: Table) -> Any:
        self.started.append((table, PlayedComparison()))
        return self.started[-1][1]

    def request(self, schema: str, table: str) -> None:
        self.requests.request(schema, table)
        self.asked.append((schema, table))

    def request_repair(self, schema: str, table: str, keys: RepairKeys) -> None:
        self.asked.append((schema, table, keys))

    def find(self, compared: Compared) -> RepairBatch:
        """The first comparison ends so."""
        assert self.gap.turn() is None
        self.started[-1][1].found = compared
        return cast("RepairBatch", self.gap.turn())


def test_tables_are_compared_one_after_the_other_and_copied_by_nobody() -> None:
    it = Played()
    assert it.requests.choose("public", "a") is None
    assert it.gap.turn() is None
    assert it.gap.turn() is None
    assert [table for table, _ in it.started] == [("public", "a")]
    it.started[0][1].found = Compared(0x500)
    it.gap.turn()
    it.gap.turn()
    assert [table for table, _ in it.started] == [("public", "a"), ("public", "b")]
    it.gap.close()
    assert it.started[1][1].is_closed


def test_a_table_that_is_equal_is_complete_as_of_the_comparison() -> None:
    batch = Played().find(Compared(0x500, (), 10, 0))
    [record] = batch.snapshots
    assert (record.state, record.lsn, record.repair, record.starts_with_truncate) == (DONE, 0x500, "", False)
    assert (batch.requests, batch.rows, batch.end_lsn, batch.snapshot_records) == ([], 0, 0, [])


def test_what_differs_is_recorded_together_with_the_end_of_the_comparison() -> None:
    it = Played()
    batch = it.find(Compared(0x500, (KEYS,), 10, 2))
    assert [record.repair for record in batch.snapshots] == [ROWS]
    assert batch.requests == [Request(REPAIR, ("public", "a"), repair=KEYS)]
    assert it.asked == [("public", "a", KEYS)]
    assert not it.requests.is_to_compare("public", "a")


def test_a_table_that_cannot_be_repaired_gets_a_new_snapshot() -> None:
    it = Played()
    batch = it.find(Compared(refused="it has no key"))
    assert (batch.snapshots, batch.requests) == ([], [Request(SNAPSHOT, ("public", "a"))])
    assert it.asked == [("public", "a")]


def test_a_table_that_is_never_copied_is_not_copied_because_it_cannot_be_repaired() -> None:
    it = Played(never=True)
    batch = it.find(Compared(refused="more than 100,000 rows differ"))
    assert (batch.snapshots, batch.requests) == ([], [Request(STOP, ("public", "a"))])
    assert it.asked == []
    assert it.requests.stopped == [("public", "a")]
    assert it.requests.to_compare() == ("public", "b")


def test_a_comparison_of_a_table_that_is_copied_by_now_counts_for_nothing() -> None:
    it = Played()
    assert it.gap.turn() is None
    it.requests.request("public", "a")
    it.started[0][1].found = Compared(0x500, (KEYS,), 10, 2)
    assert it.gap.turn() is None
    assert it.asked == []


def test_a_parked_table_waits_and_a_stream_with_nothing_but_snapshots_compares_nothing() -> None:
    it = Played(parked="a")
    it.gap.turn()
    assert [table for table, _ in it.started] == [("public", "b")]
    other = Played(compares=False)
    other.gap.turn()
    assert other.started == []
    assert not other.gap.waits
