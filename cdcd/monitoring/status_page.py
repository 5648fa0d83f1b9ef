"""The status page: one small HTML page for people. It says all without a script; the script keeps it new.

Before: `status_report` has the facts, `status_sections` their words. After: `http_answers` serves the page at `/`, with
`page.css` and `page.js` next to it.

All addresses are relative, so that the page works behind a proxy that adds a path. Whatever has `data-part` is replaced
by the script when it differs; the sections themselves stay, and with them the focus.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from cdcd.monitoring import status_sections as words
from cdcd.monitoring.status_report import Document
from cdcd.monitoring.status_sections import PLOTS_S, Facts, Grid, Plot
from cdcd.terminal.visible_text import visible_lines

PLOT_WIDTH: Final = 720
PLOT_HEIGHT: Final = 96


def asset(name: str) -> bytes:
    """A file that the page loads: `page.css` or `page.js`."""
    return Path(__file__).with_name(name).read_bytes()


def render(document: Document) -> str:
    """The page. A table's name or an error may hold any character: it is shown, and is neither HTML nor hidden."""
    state = document["state"]
    is_good = (state["is_alive"] and not state["lost"]) or state["name"] == "failed"
    colour = state["name"] if is_good else "failed"
    parts = (
        _part("next", "What to do", _next(document)),
        _part("snapshot", "Snapshot", _snapshot(document), is_wide=True),
        _part("flow", "Flow", _facts(words.flow(document)) + "".join(map(_plot, words.plots(document)))),
        _part("tables", "Tables, since the start", _tables(document), is_wide=True),
        _part("slot", "Slot", _facts(words.slot(document))),
        _part("inside", "Inside", _facts(words.inside(document))),
        _part("where", "Where", _facts(words.where(document))),
        _part("errors", "Last errors", _errors(document)),
    )
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>cdcd {escape(document["source"]["slot"])}</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="page.css"><script src="page.js" defer></script></head><body>
<header><h1>cdcd <span id="state" data-part role="status"><span class="state {colour}">{escape(state["text"])}</span>
</span> <small>{escape(words.title(document).removeprefix("cdcd "))}</small></h1>
<p class="place" id="place" data-part>{escape(words.place(document))}</p></header>
<main>
{"".join(parts)}</main>
<footer><span id="age">As of {escape(document["time"])}.</span> <span id="trouble" role="status"></span>
<button id="pause" type="button" aria-pressed="false" hidden>Pause</button>
<a href="./">Reload</a> <a href="status.json">JSON</a> <a href="metrics">Metrics</a></footer>
</body></html>
"""
    return visible_lines(page)


def _part(name: str, title: str, content: str, *, is_wide: bool = False) -> str:
    """A section; empty if it has no content. A wide one scrolls by itself on a narrow screen, also by keys."""
    head = f"<h2>{title}</h2>\n"
    wide = f' class="wide" tabindex="0" role="region" aria-label="{title}"' if is_wide else ""
    return f'<div id="{name}"{wide} data-part>{head + content if content else ""}</div>\n'


def _next(document: Document) -> str:
    found = words.to_do(document)
    if not found:
        return f"<p>{escape(words.nothing_to_do(document))}.</p>\n"
    return _list((problem, hint) for problem, hint in found)


def _errors(document: Document) -> str:
    found = words.errors(document)
    return _list((f"{ago}: {message}", hint) for ago, message, hint in found) if found else ""


def _list(items: Iterable[tuple[str, str]]) -> str:
    shown = (f"<li>{escape(text)}.{f' <strong>{escape(hint)}</strong>' if hint else ''}</li>\n" for text, hint in items)
    return f'<ul class="errors">\n{"".join(shown)}</ul>\n'


def _snapshot(document: Document) -> str:
    found = words.snapshot(document)
    if found is None:
        return ""
    sentence, grid = found
    bar = ""
    if document["snapshot"]["is_read"]:
        share = words.share_of(document)
        bar = f'<progress max="100" value="{share}" aria-label="Part of the snapshot that was read"></progress>\n'
    return f"<p>{escape(sentence)}.</p>\n{bar}{_grid(grid)}"


def _tables(document: Document) -> str:
    grid = words.tables(document)
    return f'{_grid(grid)}<p class="note">{escape(words.TABLES_CAPTION)}</p>\n' if grid.rows else ""


def _facts(facts: Facts) -> str:
    rows = (f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>\n' for name, value in facts)
    return f"<table>\n{''.join(rows)}</table>\n"


def _grid(grid: Grid) -> str:
    if not grid.rows:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in grid.head)
    rows = (
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(each)}</td>" for each in cells)}</tr>\n'
        for name, *cells in grid.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{''.join(rows)}</tbody></table>\n"


def _plot(plot: Plot) -> str:
    """A line over time. Its caption says the same in words, for people who cannot see the line."""
    line = " L".join(
        f"{(1 - min(ago, PLOTS_S) / PLOTS_S) * PLOT_WIDTH:.1f} {(1 - number / plot.top) * PLOT_HEIGHT:.1f}"
        for ago, number in plot.points
    )
    grid = "".join(
        f'<line x1="0" y1="{y}" x2="{PLOT_WIDTH}" y2="{y}"/>' for y in (0.5, PLOT_HEIGHT / 2, PLOT_HEIGHT - 0.5)
    )
    times = "".join(f"<i>{minutes} min ago</i>" for minutes in (15, 10, 5))
    return (
        f'<figure><figcaption>{escape(plot.label)}</figcaption><div class="plot">'
        f'<span class="y" aria-hidden="true"><i>{escape(plot.top_text)}</i><i>{escape(plot.middle_text)}</i>'
        "<i>0</i></span>"
        f'<svg viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'{grid}<path d="M{line}"/></svg>'
        f'<span class="x" aria-hidden="true">{times}<i>now</i></span></div></figure>\n'
    )
