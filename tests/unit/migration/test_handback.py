from __future__ import annotations

from cdcd.migration.handback import unpublished
from cdcd.progress.records import DeferredTable, SlotRecord
from cdcd.progress.snapshot_records import DONE, RUNNING, STOPPED, WANTED, TableSnapshot

LAST = SlotRecord("s", 0x500, 0x480, 1, "1", 1, 1, 1, deferred=(DeferredTable("public", "deferred", 0x400, 0),))


def snapshot(state: str) -> TableSnapshot:
    return TableSnapshot("s", f"shop.public.{state}", "public", state, state, 0x400)


def test_a_connector_waits_for_events_that_are_to_come_and_for_no_snapshot_that_was_stopped() -> None:
    snapshots = [snapshot(state) for state in (WANTED, RUNNING, DONE, STOPPED)]
    assert unpublished(LAST, snapshots) == ["public.deferred", "public.running", "public.wanted"]
