"""A finding of `cdcd check`: its subject, how bad it is, and what to do. Pure.

Before: the judges of this package make them.
After: `check` puts them in order; the command prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cdcd.errors import CdcdError


class Level(Enum):
    """How bad a finding is. With an error the daemon cannot run, or PostgreSQL would reject writes."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """The result of one check. `about`: the subject. `hint`: the SQL, the command or the setting that helps."""

    level: Level
    about: str
    message: str
    hint: str = ""


def ok(about: str, message: str) -> Finding:
    """A finding: no problem."""
    return Finding(Level.OK, about, message)


def warning(about: str, message: str, hint: str) -> Finding:
    """A finding: the daemon runs, but something will be a problem later or is worse than it could be."""
    return Finding(Level.WARNING, about, message, hint)


def error(about: str, message: str, hint: str) -> Finding:
    """A finding: the daemon cannot run, or PostgreSQL would reject writes."""
    return Finding(Level.ERROR, about, message, hint)


def of_error(about: str, failure: CdcdError) -> Finding:
    """A finding for an error that cdcd raised."""
    return Finding(Level.ERROR, about, failure.message, failure.hint)
