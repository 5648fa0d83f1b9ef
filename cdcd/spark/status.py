"""Where a mirror is: what `cdcd spark status` shows, as text or JSON. Pure.

Before: `mirror` has the last published run and its lag. After: a person, or a program, reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cdcd.lsn import format_lsn
from cdcd.spark.mirror.planner import Lag
from cdcd.spark.mirror.run_log import PLANNED, PUBLISHED, MirroredTable, Run
from cdcd.spark.mirror.targets.target import Files
from cdcd.terminal.text_format import plural, size
from cdcd.terminal.text_width import left, right, width
from cdcd.terminal.visible_text import visible

_HEADINGS: Final = ("table", "in the lake", "state", "events", "seconds", "files", "size")
_TEXTS: Final = 3
"""So many columns are texts; the others are numbers, and stand to the right."""


@dataclass(frozen=True)
class MirrorStatus:
    """The last published run of a mirror, and how far its tables are behind the topics."""

    run: Run
    lag: Lag
    times: Mapping[str, datetime] = field(default_factory=dict)
    """By state, when the run's row was written."""
    files: Mapping[str, Files] = field(default_factory=dict)
    """By the table's id."""
    compact_every_runs: int = 0
    """As the setting: 0 is never."""

    def as_text(self) -> str:
        """Lines for the mirror and its last run, and a table of its tables."""
        behind = f"{self.lag.events:,} events, {self.lag.bytes:,} bytes of WAL, {self.lag.seconds:.1f} s"
        lines = [
            f"{self.run.mirror}: run {self.run.run}, published at {format_lsn(self.run.lsn)}",
            f"behind the topics: {behind}",
            f"last run: {self._last_run()}",
            f"next upkeep: {self._next_upkeep()}",
            *_table([_HEADINGS, *map(self._cells, self.run.tables)]),
            *(f"{each.shown} is in quarantine: {each.error}" for each in self.run.tables if each.error is not None),
        ]
        return "\n".join(map(visible, lines))

    def as_json(self) -> str:
        """One object."""
        tables = [
            {"table": each.shown, "target": each.target, "version": each.version, "columns": each.columns,
             "events": each.events, "seconds": each.seconds, "quarantine": each.error}
            | ({"files": of.count, "bytes": of.bytes} if (of := self.files.get(each.id)) else {})
            for each in self.run.tables
        ]  # fmt: skip
        return json.dumps({
            "mirror": self.run.mirror, "run": self.run.run, "lsn": format_lsn(self.run.lsn),
            "lag_events": self.lag.events, "lag_bytes": self.lag.bytes, "lag_seconds": self.lag.seconds,
            "planned_at": self._at(PLANNED), "published_at": self._at(PUBLISHED),
            "next_upkeep_run": next_upkeep(self.run, self.compact_every_runs),
            "tables": tables,
        })  # fmt: skip

    def _last_run(self) -> str:
        merged = [each for each in self.run.tables if each.events is not None]
        planned, published = self.times.get(PLANNED), self.times.get(PUBLISHED)
        when = "" if published is None else f", published {published:%Y-%m-%d %H:%M:%S} UTC"
        took = "" if planned is None or published is None else f" in {(published - planned).total_seconds():.1f} s"
        return f"{self.run.events:,} events of {plural(len(merged), 'table')}{took}{when}"

    def _next_upkeep(self) -> str:
        number = next_upkeep(self.run, self.compact_every_runs)
        return "never" if number is None else f"after run {number}"

    def _at(self, state: str) -> str | None:
        return self.times[state].isoformat() if state in self.times else None

    def _cells(self, table: MirroredTable) -> tuple[str, ...]:
        files = self.files.get(table.id)
        return (
            table.shown,
            table.target,
            "published" if table.error is None else "IN QUARANTINE",
            "" if table.events is None else f"{table.events:,}",
            "" if table.seconds is None else f"{table.seconds:.1f}",
            "" if files is None else f"{files.count:,}",
            "" if files is None else size(files.bytes),
        )


def next_upkeep(run: Run, every: int) -> int | None:
    """The run after which the mirror does its upkeep; None: never. `every`: the setting compact_every_runs."""
    return (run.run // every + 1) * every if every else None


def upkeep_is_due(run: Run, every: int) -> bool:
    """Whether the upkeep follows this run. The mirror's own count says it, because `--once` makes few runs."""
    return bool(every) and run.run % every == 0


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns that are as wide as their widest cell."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = zip(row, widths, strict=True)
        return "  ".join((left if at < _TEXTS else right)(cell, wide) for at, (cell, wide) in enumerate(cells)).rstrip()

    return [line(row) for row in rows]
