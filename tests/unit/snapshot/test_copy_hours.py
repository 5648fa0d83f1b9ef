"""The hours of the day in which snapshots may be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cdcd.snapshot.copy_hours import CopyHours, TableHours, checked_hours, checked_time_zone
from cdcd.snapshot.table_rules import SnapshotRule, SnapshotRules


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("hours", "is_open"),
    [
        ("", {"00:00": True, "12:00": True}),
        ("09:30-17:00", {"09:29": False, "09:30": True, "16:59": True, "17:00": False, "23:59": False}),
        ("22:00-06:00", {"21:59": False, "22:00": True, "00:00": True, "05:59": True, "06:00": False}),
        ("00:00-23:59", {"00:00": True, "23:58": True, "23:59": False}),
    ],
)
def test_hours_begin_and_end_each_day_also_behind_midnight(hours: str, is_open: dict[str, bool]) -> None:
    found = {time: CopyHours(hours).are_open(at(f"2026-11-26T{time}:00")) for time in is_open}
    assert found == is_open


def test_the_time_zone_counts_with_its_summer_time() -> None:
    berlin = CopyHours("22:00-06:00", "Europe/Berlin")
    assert checked_time_zone(berlin.time_zone) == "Europe/Berlin"
    assert berlin.are_open(at("2026-01-15T21:00:00"))
    assert not berlin.are_open(at("2026-01-15T20:59:00"))
    assert berlin.are_open(at("2026-07-15T20:00:00"))
    assert not berlin.are_open(at("2026-07-15T04:00:00"))


@pytest.mark.parametrize("text", ["22-06", "24:00-06:00", "22:00-22:00", "22:00 - 06:00", "22:60-06:00", "x"])
def test_what_are_no_hours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22:00-06:00"):
        checked_hours(text)


@pytest.mark.parametrize("zone", ["Nowhere/Land", "../etc/passwd", "/etc/passwd", ""])
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        checked_time_zone(zone)


def test_the_hours_of_a_table_take_the_place_of_the_general_ones() -> None:
    now = at("2026-07-15T09:59:59")
    rules = SnapshotRules(
        [
            SnapshotRule("public.small", order=1),
            SnapshotRule("public.small", hours=""),
            SnapshotRule("public.noon", hours="12:00-13:00"),
            SnapshotRule("public.*", hours="01:00-02:00"),
        ],
        hours=CopyHours("22:00-06:00", "Europe/Berlin"),
    )
    hours = TableHours(rules.hours, lambda: now)

    def open_tables() -> list[str]:
        tables = ("public.small", "public.noon", "public.large", "audit.log")
        return [table for table in tables if hours.are_open(*table.split("."))]

    assert open_tables() == ["public.small"]
    now = at("2026-07-15T10:00:00")
    assert open_tables() == ["public.small", "public.noon"], "it is 12:00 in Berlin"
    now = at("2026-07-15T20:00:00")
    assert open_tables() == ["public.small", "audit.log"]
