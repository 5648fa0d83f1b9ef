from __future__ import annotations

import pytest
from unit.monitoring.test_status_page import busy, status

from cdcd.monitoring.status_report import report
from cdcd.monitoring.status_text import Display, lines
from cdcd.terminal.text_width import width


def shown(display: Display) -> list[str]:
    return lines(report(busy(), 1002.0, 10_000_000), display)


def test_the_terminal_shows_what_the_page_shows() -> None:
    text = "\n".join(shown(Display()))
    for words in (
        "cdcd 1.0 (pure)  streaming",
        "shop@db:5432 to kafka:9092, prefix shop",
        "the table public.c is parked; the reason when it was: too large.",
        "Correct the cause, then run: cdcd unpark public.c",
        "75 % read, about 30 s left: 1 of 1 table not complete, 127,920 rows, as of 0/1600.",
        "3 changes in 1 transaction, and 127,920 copied rows",
        "1.0 s ago: gone. look [postgres-interrupted]",
    ):
        assert words in text, words
    assert "\x1b" not in text


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_every_line_fits_the_terminal(columns: int) -> None:
    assert max(map(width, shown(Display(columns, has_blocks=True)))) <= columns


def test_a_narrow_terminal_keeps_names_and_delays_and_leaves_out_columns() -> None:
    wide, narrow = ("\n".join(shown(Display(columns))) for columns in (120, 40))
    assert "Last change" in wide
    assert "Last change" not in narrow
    assert "public.a" in narrow
    assert "12 ms" in narrow


def test_colours_are_those_of_the_state_and_only_where_there_are_colours() -> None:
    assert "\x1b[1;32mstreaming" in shown(Display(100, has_colour=True))[0]
    waiting = lines(report(status(), 1002.0, 0), Display(100, has_colour=True))
    assert "\x1b[1;33mstarting" in waiting[0]


def test_a_plot_shows_the_highest_number_of_each_piece_of_time_at_its_end() -> None:
    it = status()
    for second in range(0, 60, 5):
        it.positions.oldest_pending_us = 1_000_000 if second == 30 else 0
        it.sample(1000.0 + second, 3_000_000)
    found = lines(report(it, 1055.0, 0), Display(100, has_blocks=True))
    [plot] = [line for line in found if line.startswith("Lag") and "15 min" in line]
    assert plot.endswith(" ▁▁█▁ 15 min, 0 to 2.0 s")
