"""What `cdcd check` says: one line a finding, with what to do about it.

Before: `preflight.postgres` and `preflight.kafka` judge facts. After: `preflight` prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cdcd.errors import CdcdError


class Level(Enum):
    """How bad it is: an error keeps the daemon from running, or will lose somebody's writes."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `hint` is the SQL, the command or the setting that mends it."""

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
    """The finding that an error of ours is."""
    return Finding(Level.ERROR, about, failure.message, failure.hint)
