"""One line of a terminal that shows how far something is; nothing where nobody looks.

Before: who does long work: `verify`, `pipeline` (copies of tables), `commands.snapshot`. After: a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, TextIO

from cdcd.clock import monotonic_s

SHOW_S: Final = 0.2
CLEAR: Final = "\r\x1b[K"
"""Begins the line anew."""

COPY_FIRST_S: Final = 1.0
"""A copy that is whole sooner shows nothing on its way: no rate, and nothing left, could be told of it yet."""

_WIDTH: Final = 20


class ProgressBar:
    """The line. What is logged meanwhile goes above it: see `log.set_up`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown_s = float("-inf")
        self.on = out.isatty()
        """Somebody may look."""

    def show(self, text: str, share: float | None = None) -> None:
        """Show this text, if the last was not shown just now; behind a bar that is filled to `share`, 0 to 1."""
        now = monotonic_s()
        if self.on and now - self._shown_s > SHOW_S:
            self._shown_s = now
            full = 0 if share is None else round(min(1.0, max(0.0, share)) * _WIDTH)
            drawn = "" if share is None else f"[{'#' * full}{'.' * (_WIDTH - full)}] "
            self._out.write(f"{CLEAR}{drawn}{text}")
            self._out.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self.on:
            self._out.write(CLEAR)
            self._out.flush()


class SnapshotBar:
    """Rows of one snapshot on their way, in place of the lines that a log would get."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._rows = 0
        self._began_s: float | None = None
        self._whole_bytes = 0

    def add(self, now_s: float, counts: Mapping[str, int], latest: Mapping[str, object]) -> None:
        """As `log.Summary`: `counts` has the rows that are new, `latest` what `snapshot_coordinator` says is left."""
        left_bytes, tables, seconds = (latest[name] for name in ("bytes_left", "tables_left", "seconds_left"))
        assert isinstance(left_bytes, int)
        if self._began_s is None:
            self._began_s = now_s
        self._rows += counts["rows"]
        self._whole_bytes = max(self._whole_bytes, left_bytes)
        took_s = now_s - self._began_s
        if took_s < COPY_FIRST_S:
            return
        rate = self._rows / took_s
        share = 1 - left_bytes / self._whole_bytes if self._whole_bytes else 0.0
        eta = "" if not isinstance(seconds, int) else f", {timedelta(seconds=seconds)} left"
        self._bar.show(
            f"{self._rows:,} rows, {rate:,.0f} rows/s, {tables} tables and {left_bytes / 1e6:,.0f} MB to go{eta}", share
        )
