"""How many columns of a terminal a text takes, and texts that are made to fit.

Before: names of tables and messages may hold any letter. After: the columns of `cdcd top` stand below each other.
Source: Unicode, "East Asian Width" (UAX 11).
"""

from __future__ import annotations

from typing import Final
from unicodedata import combining, east_asian_width

CUT: Final = "~"
"""Stands where a text was cut."""


def width(text: str) -> int:
    """The columns that a terminal gives the text."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """The text, or its beginning and CUT if it takes more than `columns`."""
    if width(text) <= columns:
        return text
    kept, left = [], columns - len(CUT)
    for letter in text:
        left -= _columns(letter)
        if left < 0:
            break
        kept.append(letter)
    return "".join(kept) + CUT if columns >= len(CUT) else ""


def left(text: str, columns: int) -> str:
    """The text at the left of so many columns."""
    text = cut(text, columns)
    return text + " " * (columns - width(text))


def right(text: str, columns: int) -> str:
    """The text at the right of so many columns."""
    text = cut(text, columns)
    return " " * (columns - width(text)) + text


def _columns(letter: str) -> int:
    if combining(letter):
        return 0
    return 2 if east_asian_width(letter) in "WF" else 1
