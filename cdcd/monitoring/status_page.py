"""The status page: one small HTML page for people, without scripts, that reloads itself.

Before: `status` has the facts. After: `http_answers` serves the page at `/`, and at `/?still` without the reload.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from cdcd.lsn import INVALID, format_lsn
from cdcd.monitoring.history import Sample
from cdcd.monitoring.status import State, Status
from cdcd.source.table_selection import shell_word
from cdcd.terminal.text_format import duration, size
from cdcd.terminal.visible_text import visible_lines

TABLES_SHOWN: Final = 50
"""The busiest tables. One more line sums up the others."""

_NAMES: Final = {".messages": "logical messages"}
"""Shown instead of a name that is not a table's, because it has no schema."""

RELOAD_S: Final = 5

PLOT_WIDTH: Final = 720
PLOT_HEIGHT: Final = 72

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --soft: light-dark(#59636e, #a3acb6); --good: #1a7f37;
  --busy: #8a5d00; --bad: #c01c2b; --plot: light-dark(#0969da, #6cb6ff) }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 1.5rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; display: flex; gap: .6rem; align-items: baseline; flex-wrap: wrap; margin: 0 0 1rem }
h1 small { font-weight: normal; color: var(--soft); font-size: .9rem }
h2 { font-size: 1rem; margin: 1.6rem 0 .3rem }
.state { font-size: .95rem; padding: 0 .6rem; border-radius: 1rem; color: #fff; background: var(--busy) }
.state.streaming { background: var(--good) } .state.failed { background: var(--bad) }
table { border-collapse: collapse; width: 100% } caption { text-align: left; color: var(--soft); font-size: .9rem }
th { font-weight: normal; text-align: left; overflow-wrap: anywhere } thead th { color: var(--soft) }
td, th { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td, thead th + th { text-align: right; padding-right: 0; font-variant-numeric: tabular-nums }
td + td { padding-left: .8rem }
.errors { list-style: none; padding: 0 } .errors li { border-left: .25rem solid var(--bad); padding-left: .8rem;
  margin: .6rem 0; overflow-wrap: anywhere } .errors strong { font-weight: 600 }
svg { display: block; width: 100%; height: auto; margin-top: .2rem } svg path { fill: none; stroke: var(--plot);
  stroke-width: 1.5; vector-effect: non-scaling-stroke } svg line { stroke: var(--line) }
footer { margin: 2rem 0; color: var(--soft); font-size: .9rem } a { color: inherit }
""".strip()


def render(status: Status, now_s: float, now_us: int, *, still: bool = False) -> str:
    """The page. A table's name or an error may hold any character: it is shown, and is neither HTML nor hidden."""
    stage, stalled_s = status.longest_stall(now_s)
    alive = stalled_s < status.stages.stalled_after_s
    lost = status.lost(now_s)
    colour = status.state.name.lower() if (alive and not lost) or status.state is State.FAILED else "failed"
    shown = status.state.value if alive else f"stalled: nothing moves at the {stage} for {duration(stalled_s)}"
    shown = "; ".join(lost if lost and alive and status.state is State.STREAMING else [shown, *lost])
    reload_ = "" if still else f'<meta http-equiv="refresh" content="{RELOAD_S}">'
    switch = '<a href="/">Reload by itself</a>' if still else '<a href="/?still">Stop reloading</a>'
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">{reload_}
<meta name="viewport" content="width=device-width, initial-scale=1"><title>cdcd {escape(status.slot)}</title>
<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body><main>
<h1>cdcd <span class="state {colour}" role="status">{escape(shown)}</span> <small>{escape(status.version)}</small></h1>
{_parked(status)}{_errors(status, now_s)}{_facts("Flow", _flow(status, now_s, now_us))}
{_plots(status.history.samples())}{_facts("Slot", _slot(status))}{_facts("Inside", _inside(status, now_s))}
{_tables(status, now_s)}</main>
<footer>{f"Reloads every {RELOAD_S} s. " if not still else ""}{switch} ·
<a href="/metrics">Metrics</a></footer>
</body></html>
"""
    return visible_lines(page)


def _flow(status: Status, now_s: float, now_us: int) -> Iterable[tuple[str, str]]:
    positions, published = status.positions, status.published
    yield "Lag", f"{duration(positions.lag_s(now_us))}, {size(positions.lag_bytes)} of WAL"
    yield "Rows a second", f"{published.rows_rate.per_second(now_s):,.0f}"
    yield "Since the start", f"{published.rows:,} rows in {published.transactions:,} transactions"
    yield "End of the server's WAL", _lsn(positions.server_lsn)
    yield "Received up to", _lsn(positions.received_lsn)
    yield "Kafka holds up to", _lsn(positions.durable_lsn)
    yield "Acknowledged up to", _lsn(positions.acked_lsn)


def _slot(status: Status) -> Iterable[tuple[str, str]]:
    yield "Slot", status.slot
    yield "Publication", status.publication
    slot = status.slot_state
    if slot is None:
        yield "State", "not known yet"
        return
    state = f"invalid: {slot.invalidation or slot.wal_status}" if slot.lost else slot.wal_status or "no WAL held"
    yield "State", f"{'in use' if slot.active else 'not in use'}, {state}"
    yield "WAL that the server keeps for it", size(slot.retained_bytes)
    if slot.safe_wal_bytes is not None:
        yield "WAL until the slot is in danger", size(slot.safe_wal_bytes)


def _inside(status: Status, now_s: float) -> Iterable[tuple[str, str]]:
    depths = status.depths()
    yield "Waiting for Kafka", f"{size(depths.queue_bytes)} in {depths.queue_batches:,} batches"
    if depths.snapshot_tables:
        yield "Left of snapshots", f"{size(depths.snapshot_bytes)} of {depths.snapshot_tables:,} tables"
    spooled = f"{size(depths.spool_memory_bytes)} in memory, {size(depths.spool_disk_bytes)} on disk"
    yield "Spooled until they commit", f"{depths.spool_transactions:,} transactions, {spooled}"
    yield "Running for", duration(now_s - status.started_s)
    yield "Restarts of the stream", f"{status.errors.restarts:,}"


def _facts(title: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>\n' for name, value in rows)
    return f"<h2>{title}</h2>\n<table>\n{cells}</table>\n"


def _errors(status: Status, now_s: float) -> str:
    seen = status.errors.last()
    if not seen:
        return ""
    items = "".join(
        f"<li>{duration(now_s - error.at_s)} ago: {escape(error.message)}."
        f"{f' <strong>{escape(error.hint)}</strong>' if error.hint else ''}</li>\n"
        for error in reversed(seen)
    )
    return f'<h2>Last errors</h2>\n<ul class="errors">\n{items}</ul>\n'


def _parked(status: Status) -> str:
    items = "".join(
        f"<li>{escape(table)}: {escape(reason)}. "
        f"<strong>Correct the cause, then run: cdcd unpark {escape(shell_word(table))}</strong></li>\n"
        for table, reason in status.parked.items()
    )
    return f'<h2>Parked tables</h2>\n<ul class="errors">\n{items}</ul>\n' if items else ""


def _tables(status: Status, now_s: float) -> str:
    tables = status.published.tables.copy()
    busiest = sorted(tables.items(), key=lambda item: (-item[1].rows, item[0]))
    shown = busiest[:TABLES_SHOWN]
    lines = [
        (_NAMES.get(name, name), f"{table.rows:,}", f"{table.rate.per_second(now_s):,.0f}") for name, table in shown
    ]
    if rest := [table for _, table in busiest[TABLES_SHOWN:]]:
        rows, rate = sum(table.rows for table in rest), sum(table.rate.per_second(now_s) for table in rest)
        lines.append((f"{len(rest)} more tables", f"{rows:,}", f"{rate:,.0f}"))
    if not lines:
        return ""
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{rows}</td><td>{rate}</td></tr>\n' for name, rows, rate in lines
    )
    head = '<tr><th scope="col">Table</th><th scope="col">Events</th><th scope="col">a second</th></tr>'
    return f"<h2>Tables, since the start</h2>\n<table><thead>{head}</thead><tbody>\n{body}</tbody></table>\n"


def _plots(samples: Sequence[Sample]) -> str:
    if len(samples) < 2:
        return ""
    span = duration(samples[-1].at_s - samples[0].at_s)
    times = [sample.at_s for sample in samples]
    lag = [sample.lag_s for sample in samples]
    rates = [sample.rows_per_s for sample in samples]
    return _plot("Lag", times, lag, span, duration(max(lag)), duration(lag[-1])) + _plot(
        "Rows a second", times, rates, span, f"{max(rates):,.0f}", f"{rates[-1]:,.0f}"
    )


def _plot(title: str, times: Sequence[float], values: Sequence[float], span: str, most: str, now: str) -> str:
    """A line over time. Its label says what it shows, for people who cannot see it."""
    width_s = max(times[-1] - times[0], 1e-9)
    highest = max(*values, 1e-9)
    points = [
        f"{(at - times[0]) / width_s * PLOT_WIDTH:.1f} {PLOT_HEIGHT - 2 - value / highest * (PLOT_HEIGHT - 6):.1f}"
        for at, value in zip(times, values, strict=True)
    ]
    label = f"{title} over the last {span}: now {now}, at most {most}"
    return (
        f'<figure style="margin:1rem 0"><figcaption>{escape(label)}</figcaption>'
        f'<svg viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f'<line x1="0" y1="{PLOT_HEIGHT - 1}" x2="{PLOT_WIDTH}" y2="{PLOT_HEIGHT - 1}"/>'
        f'<path d="M{" L".join(points)}"/></svg></figure>\n'
    )


def _lsn(lsn: int) -> str:
    return format_lsn(lsn) if lsn != INVALID else "-"
