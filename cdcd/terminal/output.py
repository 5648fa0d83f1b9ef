"""The standard output of a command: what a stranger wrote into a row or a name does not steer the terminal.

Before: the commands write lines. After: a person's terminal, or a script.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from cdcd.terminal.visible_text import visible


class Control(str):
    """Text that cdcd alone has made, such as a colour or a script. `Output` writes it as it is."""

    __slots__ = ()


class Output:
    """A text stream that makes hidden characters visible. Each `write` is at most one line: only its last character
    may be a line break.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a line, or a part of one."""
        if isinstance(text, Control):
            return self._stream.write(text)
        line, end = (text[:-1], "\n") if text.endswith("\n") else (text, "")
        return self._stream.write(visible(line) + end)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of `lines`."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand on what was written."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()
