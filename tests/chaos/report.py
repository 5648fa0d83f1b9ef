"""The figures of a chaos run, as text and as JSON.

Before: `run` has ended everything. After: a person or CI reads it.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from chaos.faults import Fault

AFTERMATH_S = 15.0
"""An outage that begins this soon after a fault's end counts as caused by the fault."""


@dataclass
class Report:
    """The figures of one run. The run is clean if `problems` is empty."""

    seed: int
    commit: str
    started: str
    minutes: float
    versions: str
    draw: str
    """The format of the events, and what else the seed has drawn."""
    transactions: int = 0
    rows: int = 0
    kafka_transactions: int = 0
    rolled_back: int = 0
    unsure: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    doubled: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    longest_s: dict[str, float] = field(default_factory=dict)
    """The longest time from the end of a fault until rows were published again, by kind of fault."""
    gap_s: dict[str, float] = field(default_factory=dict)
    """The longest time without rows that began during a fault or soon after it, by kind of fault."""
    gap_alone_s: dict[str, float] = field(default_factory=dict)
    """The same, if no other fault explains it: a kind that was never alone has none."""
    outage_s: float = 0.0
    outage_faults: list[str] = field(default_factory=list)
    quiet_outage_s: float = 0.0
    """The longest time without rows and without a fault that explains it."""
    restarts: dict[str, int] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    reader: dict[str, int] = field(default_factory=dict)
    """How often the check's own consumer was ended by a signal and restarted, by the signal's name."""
    peak_rss_mb: float = 0.0
    tables: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int | str] = field(default_factory=dict)
    """What came of the rows that count, by what it is; and how far their snapshots came."""
    problems: list[str] = field(default_factory=list)

    def outages(self, faults: list[Fault], arrivals: list[float]) -> None:
        """Work out the times without rows. `arrivals` are the times at which rows were published, ascending."""
        self.faults = dict(sorted(Counter(fault.kind for fault in faults).items()))
        for before, after in itertools.pairwise(arrivals):
            gap = after - before
            guilty = [f.kind for f in faults if f.start_s < after and f.end_s > before - AFTERMATH_S]
            if gap > self.outage_s:
                self.outage_s, self.outage_faults = gap, guilty
            if not guilty:
                self.quiet_outage_s = max(self.quiet_outage_s, gap)
            for kind in set(guilty):
                self.gap_s[kind] = max(gap, self.gap_s.get(kind, 0.0))
                if len(guilty) == 1:
                    self.gap_alone_s[kind] = max(gap, self.gap_alone_s.get(kind, 0.0))
        for fault in faults:
            again = next((arrival for arrival in arrivals if arrival > fault.end_s), fault.end_s)
            self.longest_s[fault.kind] = max(self.longest_s.get(fault.kind, 0.0), again - fault.end_s)

    def as_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, default=_rounded)

    def as_text(self) -> str:
        """The report as a page of text."""
        lines = [
            f"chaos: {self.minutes:g} minutes, seed {self.seed}, {self.started}, commit {self.commit}, {self.versions}",
            f"events: {self.draw}",
            "",
            f"verdict        {'CLEAN' if not self.problems else 'NOT CLEAN'}: lost {self.lost}, doubled {self.doubled}",
            (
                f"transactions   {self.transactions:,} "
                f"({', '.join(f'{kind} {n:,}' for kind, n in sorted(self.kinds.items()))}), "
                f"rolled back {self.rolled_back:,}, outcome unknown to the writer {self.unsure:,}"
            ),
            f"rows           {self.rows:,} in {self.kafka_transactions:,} Kafka transactions or idle cuts",
            f"tables         {', '.join(f'{k} {v:,}' for k, v in self.tables.items())} rows, equal as text",
            f"counts         {', '.join(f'{k}: {v}' for k, v in self.counts.items())}",
            (
                f"outage         longest {self.outage_s:.1f} s (during: {', '.join(self.outage_faults) or 'nothing'}); "
                f"without a fault {self.quiet_outage_s:.1f} s"
            ),
            f"peak RSS       {self.peak_rss_mb:.0f} MB",
            "",
            f"{'':54} {'':5}  longest time without rows, in seconds",
            f"{'fault':54} {'times':>5}  during or after it   it alone   from its end on",
            *(
                f"{kind:54} {times:5}  {self.gap_s.get(kind, 0):18.1f}  {self.gap_alone_s.get(kind, '-'):>9.3}"
                f"  {self.longest_s.get(kind, 0):16.1f}"
                for kind, times in self.faults.items()
            ),
            f"{'all':54} {sum(self.faults.values()):5}",
            "",
            *(
                f"{times:5}  stream restarted: {why}"
                for why, times in sorted(self.restarts.items(), key=lambda i: -i[1])
            ),
            *(f"{times:5}  process ended: {why}" for why, times in sorted(self.exits.items(), key=lambda i: -i[1])),
        ]
        lines += [f"{times:5}  the check's own consumer ended: {how}" for how, times in self.reader.items()]
        if self.problems:
            lines += ["", "PROBLEMS", *self.problems]
        return "\n".join(lines)


def _rounded(value: Any) -> Any:
    return round(float(value), 3)
