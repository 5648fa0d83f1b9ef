"""The status as lines of a terminal, which fit its width. Pure.

Before: `status_report` made the document, in the daemon's process; `status_sections` has the words.
After: `cdcd top` and `cdcd status` show the lines.

Names and messages of the document come from outside: what they hold does not steer the terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.monitoring import status_sections as words
from cdcd.monitoring.status_report import Document
from cdcd.monitoring.status_sections import Facts, Grid, Plot
from cdcd.terminal.text_width import cut, left, right, width
from cdcd.terminal.visible_text import visible

LABEL_COLUMNS: Final = 17
PLOT_COLUMNS_MAX: Final = 60
NAME_COLUMNS_MIN: Final = 12

_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_BOLD, _DIM, _GOOD, _BUSY, _BAD = "1", "2", "1;32", "1;33", "1;31"

_SHORT: Final = {
    "Since the start": "Total",
    "Rows a second": "Rows/s",
    "WAL that Kafka does not hold": "WAL behind",
    "WAL that the server keeps for it": "WAL kept",
    "WAL until the slot is in danger": "WAL until danger",
    "End of the server's WAL": "Server's WAL",
    "Received up to": "Received",
    "Kafka holds up to": "In Kafka",
    "Acknowledged up to": "Acknowledged",
    "Added to the server's own LSNs": "Added to LSNs",
    "Spooled until they commit": "Spooled",
    "Waiting for Kafka": "For Kafka",
    "Restarts of the stream": "Restarts",
    "Prefix of the topics": "Prefix",
    "Machine of the daemon": "Machine",
}
"""Labels that are shorter here than on the page."""

_DISPENSABLE: Final = ("Last change", "Rows", "State", "Left", "Copied", "Rows a second", "Changes", "Delay", "Done")
"""The columns that a narrow terminal leaves out, the first one first."""


@dataclass(frozen=True)
class Display:
    """What a terminal can show. `columns` None: lines of any length."""

    columns: int | None = None
    has_colour: bool = False
    has_blocks: bool = False
    """It shows the block elements of Unicode, which the plots are made of."""

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour (parameters of SGR), if there are colours."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self.has_colour and text else text

    def cut(self, text: str) -> str:
        """The text, as it fits the line."""
        return text if self.columns is None else cut(text, self.columns)


def lines(document: Document, display: Display) -> list[str]:
    """The status, as lines without a line break."""
    return list(_Lines(display).of(document))


class _Lines:
    def __init__(self, display: Display) -> None:
        self._display = display

    def of(self, document: Document) -> Iterator[str]:
        yield from self._head(document)
        yield from self._to_do(document)
        yield from self._flow(document)
        if (found := words.snapshot(document)) is not None:
            yield from self._heading("Snapshot")
            yield from self._wrapped(f"{found[0]}.")
            yield from self._grid(found[1])
        if (tables := words.tables(document)).rows:
            yield from self._heading("Tables, since the start")
            yield from self._grid(tables)
        yield from self._section("Slot", words.slot(document)[2:])
        yield from self._section("Inside", words.inside(document))
        yield from self._section("Where", words.where(document))
        if errors := words.errors(document):
            yield from self._heading("Last errors")
            for ago, message, hint in errors:
                yield from self._wrapped(f"{ago}: {message}. {hint}".rstrip())

    def _head(self, document: Document) -> Iterator[str]:
        state, display = document["state"], self._display
        is_good = state["is_ready"] or state["name"] == "waiting"
        colour = _GOOD if is_good and state["is_alive"] else _BUSY if state["is_alive"] and not state["lost"] else _BAD
        title, time = words.title(document), document["time"]
        text = visible(state["text"])
        room = (display.columns or 120) - width(title) - width(time) - 4
        if room >= 12:
            yield f"{display.paint(title, _BOLD)}  {display.paint(left(text, room), colour)}  {time}".rstrip()
        else:
            yield display.paint(display.cut(title), _BOLD)
            yield display.paint(display.cut(text), colour)
        source = document["source"]
        yield display.cut(visible(words.place(document)))
        yield display.cut(visible(f"slot {source['slot']}, publication {source['publication']}"))

    def _to_do(self, document: Document) -> Iterator[str]:
        yield from self._heading("What to do")
        if not (found := words.to_do(document)):
            yield f"{words.nothing_to_do(document)}."
        for problem, hint in found:
            first, *rest = self._wrapped(f"{problem}.")
            yield self._display.paint(first, _BAD)
            yield from rest
            yield from self._wrapped(f"  {hint}" if hint else "")

    def _flow(self, document: Document) -> Iterator[str]:
        yield from self._section("Flow", words.flow(document))
        if self._display.has_blocks:
            yield from (self._plot(plot) for plot in words.plots(document))

    def _plot(self, plot: Plot) -> str:
        """A plot on one line: of each piece of time the highest number."""
        label = left(_SHORT.get(plot.title, plot.title), LABEL_COLUMNS)
        scale = f" 15 min, 0 to {plot.top_text}"
        room = min(PLOT_COLUMNS_MAX, (self._display.columns or 120) - LABEL_COLUMNS - width(scale))
        if room < 10:
            return self._display.cut(f"{label}at most {plot.most_text} in 15 min")
        highest = [-1.0] * room
        for ago, number in plot.points:
            place = room - 1 - min(room - 1, int(ago / words.PLOTS_S * room))
            highest[place] = max(highest[place], number)
        return f"{label}{''.join(_level(number, plot.top) for number in highest)}{scale}"

    def _section(self, title: str, facts: Facts) -> Iterator[str]:
        yield from self._heading(title)
        for name, value in facts:
            label = left(_SHORT.get(name, name), LABEL_COLUMNS)
            yield self._display.cut(f"{label}{visible(value)}")

    def _heading(self, title: str) -> Iterator[str]:
        yield ""
        yield self._display.paint(self._display.cut(title.upper()), _DIM)

    def _wrapped(self, text: str) -> list[str]:
        """Lines of words; the first ends where the terminal does, the others are indented."""
        text = visible(text)
        if self._display.columns is None:
            return [text] if text.strip() else []
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        found = textwrap.wrap(text, max(20, self._display.columns), subsequent_indent=indent)
        return [self._display.cut(line) for line in found]

    def _grid(self, grid: Grid) -> Iterator[str]:
        """The head and the rows, with as many columns as there is room for."""
        if not grid.rows:
            return
        rows = [tuple(map(visible, row)) for row in (grid.head, *grid.rows)]
        kept = list(range(len(grid.head)))
        for name in _DISPENSABLE:
            if self._display.columns is None or self._room(rows, kept) >= NAME_COLUMNS_MIN or len(kept) == 1:
                break
            kept = [number for number in kept if grid.head[number] != name]
        names = max(width(row[0]) for row in rows)
        if self._display.columns is not None:
            names = min(names, max(1, self._room(rows, kept)))
        sizes = {number: max(width(row[number]) for row in rows) for number in kept[1:]}
        for number, row in enumerate(rows):
            cells = "".join(f"  {right(row[each], sizes[each])}" for each in kept[1:])
            line = f"{left(row[0], names)}{cells}".rstrip()
            yield self._display.paint(line, _DIM) if number == 0 else line

    def _room(self, rows: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
        """What the columns leave to the names."""
        return (self._display.columns or 0) - sum(2 + max(width(row[each]) for row in rows) for each in kept[1:])


def _level(number: float, top: float) -> str:
    """A block that is as high as the number: some height for every number above 0, and a blank for none."""
    if number < 0:
        return " "
    highest = len(_LEVELS) - 1
    return _LEVELS[min(highest, max(1, round(number / top * highest)))] if number else "▁"
