"""A finding of `cdcd check`: its subject, how bad it is, and what to do. Pure.

Before: the judges of this package make them.
After: `check` puts them in order; the command prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cdcd.error_codes import Code
from cdcd.errors import CdcdError, sentence


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
    code: Code | None = None
    """The code of the error with which `cdcd run` would end, or of the warning; None if there is no problem."""
    seen: str = ""
    """The software that answered, with its version if it tells one: `PostgreSQL 18.6`."""
    unseen: str = ""
    """The software that could not be looked at: findings about it are missing."""

    def __str__(self) -> str:
        return sentence(self.message, self.hint, self.code)


def ok(about: str, message: str, *, seen: str = "") -> Finding:
    """A finding: no problem."""
    return Finding(Level.OK, about, message, seen=seen)


def warning(about: str, message: str, hint: str, *, code: Code) -> Finding:
    """A finding: the daemon runs, but something will be a problem later or is worse than it could be."""
    return Finding(Level.WARNING, about, message, hint, code)


def error(about: str, message: str, hint: str, *, code: Code) -> Finding:
    """A finding: the daemon cannot run, or PostgreSQL would reject writes."""
    return Finding(Level.ERROR, about, message, hint, code)


def of_error(about: str, failure: CdcdError, *, unseen: str = "") -> Finding:
    """A finding for an error that cdcd raised."""
    return Finding(Level.ERROR, about, failure.message, failure.hint, failure.code, unseen=unseen)
