"""The status page: `status` as one small HTML page for a person, without scripts, that loads itself anew.

Before: `status`. After: `health` serves it at `/`.
"""

from __future__ import annotations

from html import escape
from typing import Final

from cdcd.lsn import INVALID, format_lsn
from cdcd.status import State, Status

TABLES_SHOWN: Final = 50
"""The busiest tables; the others are counted in one line below."""

RELOAD_S: Final = 5

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #888; --good: #1a7f37; --busy: #9a6700; --bad: #cf222e }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; display: flex; gap: .6rem; align-items: baseline; flex-wrap: wrap }
h1 small { font-weight: normal; color: var(--soft); font-size: .9rem }
h2 { font-size: 1rem; margin: 1.8rem 0 .3rem }
.state { font-size: .95rem; padding: 0 .6rem; border-radius: 1rem; color: #fff; background: var(--busy) }
.state.streaming { background: var(--good) } .state.failed { background: var(--bad) }
table { border-collapse: collapse; width: 100% } th { font-weight: normal; color: var(--soft); text-align: left }
td, th { padding: .25rem 0; border-bottom: 1px solid var(--line) }
td { text-align: right; font-variant-numeric: tabular-nums }
.error { border-left: .25rem solid var(--bad); padding-left: .8rem; overflow-wrap: anywhere }
""".strip()


def render(status: Status, now_s: float) -> str:
    """The page. Everything that comes from outside is escaped: table names and errors may hold anything."""
    state = status.state.name.lower() if status.is_alive(now_s) or status.state is State.FAILED else "failed"
    shown = status.state.value if status.is_alive(now_s) else f"stuck: no turn for {duration(now_s - status.turned_s)}"
    facts = (
        ("Lag", f"{size(status.lag_bytes)}, {duration(status.lag_s)}"),
        ("Rows a second", f"{status.rows_rate.per_second(now_s):,.0f}"),
        ("Rows since the start", f"{status.rows:,}"),
        ("Transactions since the start", f"{status.transactions:,}"),
        ("Slot", status.slot),
        ("Publication", status.publication),
        ("PostgreSQL", status.server or "not connected"),
        ("Kafka", status.broker or "not connected"),
        ("End of the server's WAL", _lsn(status.server_lsn)),
        ("Received up to", _lsn(status.received_lsn)),
        ("Kafka holds up to", _lsn(status.durable_lsn)),
        ("Acknowledged up to", _lsn(status.acked_lsn)),
        ("Running for", duration(now_s - status.started_s)),
        ("Restarts of the stream", f"{status.restarts:,}"),
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{RELOAD_S}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>cdcd {escape(status.slot)}</title>
<style>{_STYLE}</style></head><body>
<h1>cdcd <span class="state {state}">{escape(shown)}</span> <small>{escape(status.version)}</small></h1>
{_error(status, now_s)}{_rows(facts)}
{_tables(status)}
</body></html>
"""


def size(count: int) -> str:
    """Bytes as people read them: `1.5 MiB`."""
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds as people read them: `0.2 s`, `3 min 20 s`, `2 d 4 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _lsn(lsn: int) -> str:
    return format_lsn(lsn) if lsn != INVALID else "-"


def _rows(rows: tuple[tuple[str, str], ...]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>\n" for name, value in rows)
    return f"<table>\n{cells}</table>"


def _tables(status: Status) -> str:
    busiest = sorted(status.tables.items(), key=lambda item: (-item[1], item[0]))
    rows = [(relation, f"{count:,}") for relation, count in busiest[:TABLES_SHOWN]]
    if rest := busiest[TABLES_SHOWN:]:
        rows.append((f"{len(rest)} more tables", f"{sum(count for _, count in rest):,}"))
    return f"<h2>Tables: events since the start</h2>\n{_rows(tuple(rows))}" if rows else ""


def _error(status: Status, now_s: float) -> str:
    if not status.last_error:
        return ""
    return f'<p class="error">{duration(now_s - status.last_error_s)} ago: {escape(status.last_error)}</p>\n'
