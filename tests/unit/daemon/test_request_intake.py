"""The daemon takes the requests for its slot, and passes over all others without harm."""

from __future__ import annotations

import logging

import pytest

from cdcd.daemon.request_intake import RequestIntake
from cdcd.progress.daemon_requests import ALL_TABLES, DISCARD, PAUSE, REPAIR, RESUME, SNAPSHOT, STOP, UNPARK, Request
from cdcd.progress.repair_records import RepairKeys

T = ("public", "t")


class Intake:
    """An intake for the slot `s`, whose publication has one table."""

    def __init__(self) -> None:
        self.snapshots: list[tuple[str, str]] = []
        self.parked: set[tuple[str, str]] = set()
        self.pauses: list[bool] = []
        self.is_complete = False
        self.intake = RequestIntake(
            "s",
            lambda: [T],
            lambda *table: self.snapshots.append(table),
            lambda: self.parked,
            pause_snapshots=self.pauses.append,
            stop_snapshot=self.stop,
        )

    def stop(self, *_: str) -> None:
        if self.is_complete:
            raise ValueError("the snapshot of the table is complete")

    def take(self, action: str, schema: str = "public", table: str = "t", slot: str = "s") -> list[Request]:
        return self.intake.take([{"slot": slot, "action": action, "table_schema": schema, "table_name": table}])


@pytest.fixture
def it() -> Intake:
    return Intake()


def test_a_request_for_a_snapshot_is_taken(it: Intake) -> None:
    assert it.take(SNAPSHOT) == [Request(SNAPSHOT, T)]
    assert it.take(UNPARK) == [Request(UNPARK, T)]
    assert it.take(DISCARD) == [Request(DISCARD, T)]
    assert it.snapshots == [T, T]


def test_a_request_to_stop_a_snapshot_is_taken_if_there_is_something_to_stop(
    it: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    assert it.take(STOP) == [Request(STOP, T)]
    assert it.take(STOP, table="nobody") == it.take(STOP, "", "") == it.take(STOP, "", "messages") == []
    it.is_complete = True
    assert it.take(STOP) == []
    assert "complete" in caplog.text


def test_a_request_for_another_slot_is_left_to_its_daemon(it: Intake, caplog: pytest.LogCaptureFixture) -> None:
    assert it.take(SNAPSHOT, slot="other") == it.take(SNAPSHOT, slot="") == it.intake.take([{}]) == []
    assert not it.snapshots
    assert not caplog.records


@pytest.mark.parametrize(
    "table", [("public", "nobody"), ("", "t"), ("public_order", "items"), ("..", ".."), ("public", "x" * 900)]
)
def test_a_request_for_a_table_that_is_not_published_is_named_and_passed_over(
    it: Intake, table: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert it.take(SNAPSHOT, *table) == it.take(DISCARD, *table) == []
    assert not it.snapshots
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "passed over a request" in caplog.text
    assert caplog.records[0].__dict__["table"] == ".".join(table)


def test_the_events_of_a_parked_table_that_was_dropped_can_be_given_up(it: Intake) -> None:
    gone = ("public", "gone")
    it.parked.add(gone)
    assert it.take(DISCARD, *gone) == [Request(DISCARD, gone)]
    assert it.snapshots == [gone], "it needs one if it is published again"
    assert it.take(SNAPSHOT, *gone) == it.take(DISCARD, "public", "other") == []


def test_a_pause_and_its_end_are_taken_for_all_tables_and_for_none_alone(
    it: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    assert it.take(PAUSE, *ALL_TABLES) == [Request(PAUSE, ALL_TABLES)]
    assert it.take(RESUME, *ALL_TABLES) == [Request(RESUME, ALL_TABLES)]
    assert it.pauses == [True, False]
    assert it.take(PAUSE) == it.take(RESUME, "", "t") == []
    assert it.pauses == [True, False]
    assert "all snapshots are paused or resumed together" in caplog.text


def test_an_unknown_action_stops_no_other_request(it: Intake, caplog: pytest.LogCaptureFixture) -> None:
    assert it.take("drop everything") == []
    assert "its action is unknown" in caplog.text
    assert it.take(SNAPSHOT) == [Request(SNAPSHOT, T)]


def test_a_repair_is_taken_with_its_keys_and_nonsense_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[tuple[str, str, RepairKeys]] = []
    intake = RequestIntake(
        "s",
        lambda: [T],
        lambda *_: None,
        request_repair=lambda schema, table, keys: asked.append((schema, table, keys)),
    )
    keys = RepairKeys(("id",), (("1",),))
    row = {"slot": "s", "action": REPAIR, "table_schema": "public", "table_name": "t", "keys": keys.text()}
    assert intake.take([row]) == [Request(REPAIR, T, repair=keys)]
    assert asked == [("public", "t", keys)]
    others: list[dict[str, str]] = [
        {"keys": "[]"},
        {"table_name": "nobody"},
        {"table_schema": "", "table_name": "messages"},
    ]
    assert intake.take([row | other for other in others]) == []
    del row["keys"]
    assert intake.take([row]) == []
    assert caplog.text.count("passed over a request") == 4
    assert len(asked) == 1
