"""Where a mirror is: what `cdcd spark status` shows, as text or JSON. Pure.

Before: `mirror` has the last published run and its lag. After: a person, or a program, reads it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from cdcd.lsn import format_lsn
from cdcd.spark.mirror.planner import Lag
from cdcd.spark.mirror.run_log import Run
from cdcd.terminal.visible_text import visible


@dataclass(frozen=True)
class MirrorStatus:
    """The last published run of a mirror, and how far its tables are behind the topics."""

    run: Run
    lag: Lag

    def as_text(self) -> str:
        """A line for the mirror, and one for each table."""
        first = (
            f"{self.run.mirror}: run {self.run.run}, published at {format_lsn(self.run.lsn)}; behind the topics: "
            f"{self.lag.events:,} events, {self.lag.bytes:,} bytes of WAL, {self.lag.seconds:.1f} s"
        )
        tables = (f"  {each.shown} in {each.target}: {self._state(each.error)}" for each in self.run.tables)
        return "\n".join(map(visible, (first, *tables)))

    def as_json(self) -> str:
        """One object."""
        tables = [
            {"table": each.shown, "target": each.target, "version": each.version, "columns": each.columns,
             "quarantine": each.error}
            for each in self.run.tables
        ]  # fmt: skip
        return json.dumps({
            "mirror": self.run.mirror, "run": self.run.run, "lsn": format_lsn(self.run.lsn),
            "lag_events": self.lag.events, "lag_bytes": self.lag.bytes, "lag_seconds": self.lag.seconds,
            "tables": tables,
        })  # fmt: skip

    @staticmethod
    def _state(error: str | None) -> str:
        return "published" if error is None else f"IN QUARANTINE, {error}"
