"""A finding of `cdcd check`: what was looked at, how bad it is, and what to do about it. Pure.

Before: the judges of this package make them.
After: `check` puts them in order; the command prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cdcd.errors import CdcdError


class Level(Enum):
    """How bad it is. An error keeps the daemon from running, or makes the application's writes fail."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `hint`: the SQL, the command or the setting that helps."""

    level: Level
    about: str
    message: str
    hint: str = ""


def ok(about: str, message: str) -> Finding:
    """As it should be."""
    return Finding(Level.OK, about, message)


def warning(about: str, message: str, hint: str) -> Finding:
    """It runs, but not as well as it could, or not for ever."""
    return Finding(Level.WARNING, about, message, hint)


def error(about: str, message: str, hint: str) -> Finding:
    """It would not run."""
    return Finding(Level.ERROR, about, message, hint)


def of_error(about: str, failure: CdcdError) -> Finding:
    """An error of cdcd as a finding."""
    return Finding(Level.ERROR, about, failure.message, failure.hint)
