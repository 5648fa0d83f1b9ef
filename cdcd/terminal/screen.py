"""A screen of text that is shown again and again at the same place of a terminal, as `top` does.

Before: a command has lines. After: a person's terminal, which is as it was when the screen is closed.
Source: ECMA-48, "Control Functions for Coded Character Sets"; xterm, "Control Sequences" (the alternate screen);
no-color.org.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TextIO

from cdcd.terminal.output import Control

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, without a cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_TO_THE_END_OF_THE_LINE: Final = "\x1b[K"
_TO_THE_END_OF_THE_SCREEN: Final = "\x1b[J"


def has_colour(out: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether text may have colours: `out` is a terminal that knows them, and NO_COLOR is not set."""
    return out.isatty() and not environment.get("NO_COLOR") and environment.get("TERM", "") not in ("", "dumb")


def size(fallback: tuple[int, int] = (80, 24)) -> tuple[int, int]:
    """The columns and rows of the terminal as it is now."""
    return shutil.get_terminal_size(fallback)


class Screen:
    """Takes the whole terminal while a `with` lasts. The lines must hold nothing that steers it but colours."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, lines: Sequence[str]) -> None:
        """Show these lines in place of the ones before: as many as there is room for."""
        rows = size()[1]
        shown = list(lines[:rows])
        if len(lines) > rows:
            shown[-1] = f"... {len(lines) - rows + 1} more lines"
        text = f"{_TO_THE_END_OF_THE_LINE}\n".join(shown)
        # One write, and nothing is cleared before it is written anew: so the screen does not flicker.
        self._out.write(Control(f"{_HOME}{text}{_TO_THE_END_OF_THE_LINE}{_TO_THE_END_OF_THE_SCREEN}"))
        self._out.flush()

    def __enter__(self) -> Self:
        self._out.write(Control(_ENTER))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._out.write(Control(_LEAVE))
        self._out.flush()
