"""A comparison begins only when no snapshot of its tables is under way."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdcd.errors import RequestRejected
from cdcd.progress.records import ParkedTable
from cdcd.progress.snapshot_records import COMPARE, DONE, RUNNING, STOPPED, WANTED, TableSnapshot
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.progress_wait import check_none_wanted, wait_for_snapshots

TABLES = {("public", "t")}
BAR = ProgressBar(io.StringIO())


def snapshot(state: str, repair: str = "", table: str = "t") -> TableSnapshot:
    return TableSnapshot("s", f"p.public.{table}", "public", table, state, 0, repair=repair)


class PlayedRecords:
    """Has one state after the other, one a look; the last one stays."""

    def __init__(self, *states: TableSnapshot, parked: Mapping[str, ParkedTable] | None = None) -> None:
        self._states = list(states)
        self._parked = parked or {}

    def parked(self) -> Mapping[str, ParkedTable]:
        return self._parked

    def snapshots(self) -> Mapping[str, TableSnapshot]:
        found = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return {found.topic: found}


def wait(records: PlayedRecords, wait_s: float = 10.0) -> int:
    """Wait; returns how often it slept, a second each."""
    slept: list[float] = []
    wait_for_snapshots(records, TABLES, wait_s, BAR, clock=lambda: float(len(slept)), sleep=slept.append)
    return len(slept)


def test_a_comparison_waits_until_a_wanted_snapshot_is_done() -> None:
    assert wait(PlayedRecords(snapshot(WANTED), snapshot(RUNNING), snapshot(RUNNING), snapshot(DONE))) == 3
    assert wait(PlayedRecords(snapshot(DONE))) == 0


def test_a_table_that_is_not_compared_is_not_waited_for() -> None:
    assert wait(PlayedRecords(snapshot(WANTED, table="other"))) == 0


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (snapshot(WANTED), "its new snapshot has not begun"),
        (snapshot(RUNNING), "its snapshot runs"),
        (snapshot(WANTED, COMPARE), "changes are missing, and their repair is not done"),
    ],
)
def test_a_topic_that_does_not_become_whole_in_time_is_said_to_be_incomplete(state: TableSnapshot, why: str) -> None:
    with pytest.raises(RequestRejected, match=f"the topic of public.t is not complete: {why}") as raised:
        wait(PlayedRecords(state))
    assert raised.value.code == "cut-incomplete"
    assert "--wait" in raised.value.hint


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (snapshot(STOPPED), "snapshot-stopped"),
        (replace(snapshot(DONE), where="id > 1"), "snapshot-partial"),
        (replace(snapshot(RUNNING), where="id > 1"), "snapshot-partial"),
    ],
)
def test_a_topic_that_is_no_copy_of_the_table_is_not_waited_for(state: TableSnapshot, code: str) -> None:
    with pytest.raises(RequestRejected) as raised:
        wait(PlayedRecords(state))
    assert raised.value.code == code
    assert "cdcd snapshot public.t" in raised.value.hint


def test_a_parked_table_is_not_waited_for() -> None:
    parked = {"public.t": ParkedTable("public", "t", "too large", 1, 0)}
    with pytest.raises(RequestRejected, match="too large") as raised:
        wait(PlayedRecords(snapshot(WANTED), parked=parked))
    assert "cdcd unpark public.t" in raised.value.hint


def test_a_gap_that_was_declared_during_the_wait_ends_the_comparison() -> None:
    with pytest.raises(RequestRejected, match="not complete"):
        check_none_wanted(PlayedRecords(snapshot(WANTED)), TABLES)
    check_none_wanted(PlayedRecords(snapshot(RUNNING)), TABLES)  # a snapshot that was asked for leaves the rows there
