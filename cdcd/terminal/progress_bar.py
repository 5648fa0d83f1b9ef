"""A progress bar on one line of the terminal. Without a terminal it shows nothing.

Before: `verify`, `daemon` (snapshots) and `cdcd snapshot` do long work. After: a person reads the line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, TextIO

from cdcd.clock import monotonic_s
from cdcd.terminal.visible_text import visible

SHOW_S: Final = 0.2
CLEAR: Final = "\r\x1b[K"
"""Moves to the start of the line and erases it."""

COPY_FIRST_S: Final = 1.0
"""The bar of a snapshot appears after this time: before it, rate and remaining time are not known."""

_WIDTH: Final = 20


class ProgressBar:
    """The bar. `monitoring.log_setup` writes log lines above it."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = monotonic_s) -> None:
        """`out`: the bar is shown if this is a terminal. `clock` gives monotonic seconds."""
        self._out = out
        self._clock = clock
        self._shown_s = float("-inf")
        self.on = out.isatty()
        """Whether the bar is shown."""

    def show(self, text: str, share: float | None = None) -> None:
        """Show `text`, after a bar that is filled to `share` (0 to 1; None: no bar). At most once in SHOW_S seconds."""
        now = self._clock()
        if self.on and now - self._shown_s > SHOW_S:
            self._shown_s = now
            full = 0 if share is None else round(min(1.0, max(0.0, share)) * _WIDTH)
            drawn = "" if share is None else f"[{'#' * full}{'.' * (_WIDTH - full)}] "
            self._out.write(f"{CLEAR}{drawn}{visible(text)}")
            self._out.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self.on:
            self._out.write(CLEAR)
            self._out.flush()


class SnapshotBar:
    """Shows the progress of one snapshot. It replaces progress lines in the log."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._rows = 0
        self._began_s: float | None = None
        self._total_bytes = 0

    def add(self, now_s: float, counts: Mapping[str, int], latest: Mapping[str, object]) -> None:
        """Add the newest counts, as `log_setup.Summary.add` does.

        `counts` has the new `rows`. `latest` has what remains: `bytes_left`, `tables_left`, `seconds_left`.
        """
        left_bytes, tables, seconds = (latest[name] for name in ("bytes_left", "tables_left", "seconds_left"))
        assert isinstance(left_bytes, int)
        if self._began_s is None:
            self._began_s = now_s
        self._rows += counts["rows"]
        self._total_bytes = max(self._total_bytes, left_bytes)
        took_s = now_s - self._began_s
        if took_s < COPY_FIRST_S:
            return
        rate = self._rows / took_s
        share = 1 - left_bytes / self._total_bytes if self._total_bytes else 0.0
        eta = "" if not isinstance(seconds, int) else f", {timedelta(seconds=seconds)} left"
        self._bar.show(
            f"{self._rows:,} rows, {rate:,.0f} rows/s, {tables} tables and {left_bytes / 1e6:,.0f} MB to go{eta}", share
        )
