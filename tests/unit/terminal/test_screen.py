from __future__ import annotations

import io

import pytest

from cdcd.terminal.screen import Screen, has_colour
from cdcd.terminal.text_width import cut, left, right, width


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({}, False)],
)
def test_colours_need_a_terminal_that_has_them_and_nobody_who_wants_none(
    environment: dict[str, str], is_coloured: bool
) -> None:
    assert has_colour(Tty(), environment) is is_coloured
    assert not has_colour(io.StringIO(), environment)


def test_a_screen_shows_as_many_lines_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "3")
    out = Tty()
    Screen(out).show(["a", "b", "c"])
    assert out.getvalue() == "\x1b[Ha\x1b[K\nb\x1b[K\nc\x1b[K\x1b[J"
    out.truncate(0)
    Screen(out).show(list("abcde"))
    assert "... 3 more lines" in out.getvalue()


def test_the_terminal_is_as_before_however_the_screen_ends() -> None:
    out = Tty()
    with pytest.raises(KeyboardInterrupt), Screen(out):
        raise KeyboardInterrupt
    assert out.getvalue() == "\x1b[?1049h\x1b[?25l" + "\x1b[?25h\x1b[?1049l"


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301a", 2), ("", 0)])
def test_the_width_is_that_of_the_terminal(text: str, columns: int) -> None:
    assert width(text) == columns


def test_a_text_is_cut_and_filled_to_the_columns_that_it_has() -> None:
    assert cut("abcdef", 4) == "abc~"
    assert cut("日本語", 4) == "日~"
    assert (left("ab", 4), right("ab", 4), left("日本", 3)) == ("ab  ", "  ab", "日~")
