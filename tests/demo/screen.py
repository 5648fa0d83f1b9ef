"""The quickstart's table: one line for each topic. On a terminal it is drawn in place, elsewhere printed every 5 s.

Before: `demo/quickstart.py` hands in each event, as `cdcd tail --json` prints it. After: a person reads the table.
"""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from cdcd.terminal.visible_text import visible

WINDOW_S = 5.0
"""Seconds over which a rate is averaged."""

LINES_EVERY_S = 5.0
"""Seconds between two prints if there is no terminal."""

PRINTED = 160
"""Characters of a line that are printed if there is no terminal."""


@dataclass
class Topic:
    """One line of the table: how many events the topic has had, when they came, and the last of them."""

    rows: int = 0
    latency_s: float | None = None
    last: str = ""
    seen: deque[float] = field(default_factory=deque)

    def rate(self, now: float) -> float:
        """Return events a second over the last WINDOW_S seconds before `now` (monotonic seconds)."""
        while self.seen and self.seen[0] < now - WINDOW_S:
            self.seen.popleft()
        return len(self.seen) / WINDOW_S


class Screen:
    """Collects events and shows them on `out`."""

    def __init__(self, out: TextIO, topics: Sequence[str]) -> None:
        """Take the stream to write to, and the topics in the order of their lines."""
        self._out = out
        self._topics = {topic: Topic() for topic in topics}
        self._drawn = 0
        self._shown = time.monotonic()
        self._printed = -1
        self.rows = 0

    def add(self, topic: str, event: Mapping[str, Any]) -> None:
        """Count one row event, given as its envelope. Its latency is the time from its commit until now."""
        seen = self._topics.setdefault(topic, Topic())
        seen.rows += 1
        seen.seen.append(time.monotonic())
        seen.last = describe(event)
        seen.latency_s = latency_s(event)
        self.rows += 1

    def show(self, footer: Sequence[str], *, at_once: bool = False) -> None:
        """Draw the table and the footer again; without a terminal, print the table every LINES_EVERY_S seconds."""
        now = time.monotonic()
        if self._out.isatty():
            width = shutil.get_terminal_size().columns
            up = f"\x1b[{self._drawn}F" if self._drawn else ""
            lines = [line[: width - 1] for line in (*self._table(now), "", *footer)]
            self._out.write(up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
            self._drawn = len(lines)
        elif (at_once and self.rows != self._printed) or now - self._shown >= LINES_EVERY_S:
            self._shown, self._printed = now, self.rows
            self._out.write("".join(f"{line[:PRINTED]}\n" for line in self._table(now)))
        self._out.flush()

    def _table(self, now: float) -> list[str]:
        wide = max(map(len, self._topics), default=0)
        lines = [f"{'topic':{wide}}  {'rows':>8}  {'rows/s':>7}  {'lag':>8}  last event"]
        for name, topic in self._topics.items():
            lag = "" if topic.latency_s is None else f"{topic.latency_s * 1000:,.0f} ms"
            line = f"{name:{wide}}  {topic.rows:>8,}  {topic.rate(now):>7.1f}  {lag:>8}  {topic.last}"
            lines.append(visible(line))
        return lines


def describe(event: Mapping[str, Any]) -> str:
    """Return an event in one line: the operation and the row's values."""
    did = {"c": "insert", "u": "update", "d": "delete", "r": "read", "t": "truncate", "m": "message"}
    row = event.get("after") or event.get("before") or {}
    values = " ".join(f"{column}={value}" for column, value in row.items() if value is not None)
    return f"{did.get(event.get('op', ''), '?')} {values}"


def latency_s(event: Mapping[str, Any]) -> float | None:
    """Return the seconds from an event's commit in PostgreSQL until now; None if the event has no commit time."""
    commit = (event.get("source") or {}).get("commit_ts")
    if isinstance(commit, str):
        commit = dt.datetime.fromisoformat(commit).timestamp()
    elif isinstance(commit, int):
        commit /= 1_000_000
    return None if commit is None else max(0.0, time.time() - commit)
