"""Finds out whether COMMITs wait for the daemon. The daemon then acknowledges at once, even a commit without rows.

Before: a session runs the query.
After: the daemon asks at its start, and `slot_monitor` every few seconds, because the parameter may change.
Source: PostgreSQL, "synchronous_standby_names".
"""

from __future__ import annotations

import re
from typing import Final

from cdcd.source.session import Session

_NAMES: Final = """
    SELECT pg_catalog.current_setting('synchronous_standby_names'), pg_catalog.current_setting('application_name')
"""
_NAME: Final = re.compile(r'"((?:[^"]|"")*)"|([^\s,()"]+)')


def commits_wait(session: Session) -> bool:
    """Whether COMMITs wait for clients with the name of `session`, which the DSN may have chosen.

    Raises what `Session` raises.
    """
    [(names, own)] = session.rows(_NAMES)
    return names_standby(names, own)


def names_standby(names: str, application_name: str) -> bool:
    """Whether `synchronous_standby_names` has this name or `*`. PostgreSQL compares names without regard to case."""
    found = {quoted.replace('""', '"') or plain for quoted, plain in _NAME.findall(names)}
    return bool({"*", application_name.lower()} & {name.lower() for name in found})
