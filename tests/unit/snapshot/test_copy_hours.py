"""The hours of the day in which snapshots may be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cdcd.snapshot.copy_hours import CopyHours, checked_hours


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
    berlin.check_time_zone()
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
        CopyHours("22:00-06:00", zone).check_time_zone()
