"""The hours of the day in which snapshots may read rows. Pure.

Before: the settings give the hours and their time zone.
After: `daemon.snapshot_requests` begins no snapshot outside of them, and `daemon.snapshot_coordinator` reads none on.
Source: Python, `zoneinfo`: the time zones of the IANA. A day of 23 or 25 hours keeps its times of day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def checked_hours(text: str) -> str:
    """Return the text of hours. Raises ValueError if it is neither empty nor written so."""
    found = _HOURS.fullmatch(text)
    if text and (found is None or found[1] + found[2] == found[3] + found[4]):
        raise ValueError('must be written as "22:00-06:00", from one time of the day to another one')
    return text


@dataclass(frozen=True)
class CopyHours:
    """Every day from one time to another one, which may be that of the next day."""

    text: str = ""
    """Such as 22:00-06:00; empty: always."""
    time_zone: str = "UTC"

    def check_time_zone(self) -> None:
        """Raise ValueError if there is no such time zone."""
        try:
            ZoneInfo(self.time_zone)
        except (KeyError, OSError, ValueError):  # there is no such name; or it is a path
            raise ValueError(
                f"has a time_zone that Python does not know, as it knows Europe/Berlin: {self.time_zone!r}; "
                "a machine without time zones needs the package tzdata"
            ) from None

    def are_open(self, unix_us: int) -> bool:
        """Whether snapshots may read rows at this time, microseconds since 1970-01-01 UTC."""
        if not self.text:
            return True
        local = (_EPOCH + timedelta(microseconds=unix_us)).astimezone(self._zone)
        now = local.strftime("%H:%M")
        begin, _, end = self.text.partition("-")
        return begin <= now < end if begin < end else now >= begin or now < end

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)
