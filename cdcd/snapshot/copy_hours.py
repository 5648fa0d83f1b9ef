"""The hours of the day in which snapshots may read rows. Pure.

Before: the settings give the hours and their time zone; `table_rules` knows which tables have others.
After: `daemon.snapshot_requests` begins no snapshot outside of them, and `daemon.snapshot_rows` no chunk of a table.
Source: Python, `zoneinfo`: the time zones of the IANA. A day of 23 or 25 hours keeps its times of day.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_MINUTE_US: Final = 60_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def checked_hours(text: str) -> str:
    """Return the text of hours. Raises ValueError if it is neither empty nor written so."""
    found = _HOURS.fullmatch(text)
    if text and (found is None or found[1] + found[2] == found[3] + found[4]):
        raise ValueError('must be written as "22:00-06:00", from one time of the day to another one')
    return text


def checked_time_zone(name: str) -> str:
    """Return the name of a time zone. Raises ValueError if there is none of this name."""
    if name != "UTC":
        try:
            ZoneInfo(name)
        except (KeyError, OSError, ValueError):  # there is no such name; or it is a path
            raise ValueError(
                "must be a time zone that Python knows, such as Europe/Berlin; a machine without time zones needs the "
                "package tzdata"
            ) from None
    return name


@dataclass(frozen=True)
class CopyHours:
    """Every day from one time to another one, which may be that of the next day."""

    text: str = ""
    """Such as 22:00-06:00; empty: always."""
    time_zone: str = "UTC"

    def are_open(self, unix_us: int) -> bool:
        """Whether snapshots may read rows at this time, microseconds since 1970-01-01 UTC."""
        if not self.text:
            return True
        local = (_EPOCH + timedelta(microseconds=unix_us)).astimezone(self._zone)
        now = local.strftime("%H:%M")
        begin, _, end = self.text.partition("-")
        return begin <= now < end if begin < end else now >= begin or now < end

    @cached_property
    def _zone(self) -> tzinfo:
        return UTC if self.time_zone == "UTC" else ZoneInfo(self.time_zone)  # which a machine may lack even for UTC


class TableHours:
    """Whether the rows of tables may be read now. For any thread. It works hours out once a minute."""

    def __init__(self, hours: Callable[[str, str], CopyHours], wall_us: Callable[[], int]) -> None:
        """`hours`: those of a table (schema and name). `wall_us`: microseconds since 1970-01-01 UTC."""
        self._hours = hours
        self._wall_us = wall_us
        self._of_tables: dict[tuple[str, str], CopyHours] = {}
        self._now: tuple[int, dict[CopyHours, bool]] = (0, {})
        """The minute, and which hours are open in it. Replaced as a whole, because threads share it."""

    def are_open(self, schema: str, table: str) -> bool:
        """Whether the rows of a table may be read now."""
        hours = self._of_tables.get((schema, table))
        if hours is None:
            hours = self._of_tables[schema, table] = self._hours(schema, table)
        if not hours.text:
            return True
        unix_us = self._wall_us()
        minute, found = self._now
        if minute != unix_us // _MINUTE_US:
            found = {}
            self._now = (unix_us // _MINUTE_US, found)
        if hours not in found:
            found[hours] = hours.are_open(unix_us)
        return found[hours]
