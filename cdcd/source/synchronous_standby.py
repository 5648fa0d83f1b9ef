"""Finds out whether COMMITs wait for the daemon. The daemon then acknowledges at once, even a commit without rows.

Before: a session runs the query.
After: the daemon asks at its start, and `slot_monitor` every few seconds, because the parameter may change.
Source: PostgreSQL, "synchronous_standby_names".
"""

from __future__ import annotations

import re

from cdcd.source.session import Session


def commits_wait_for(session: Session, application_name: str) -> bool:
    """Whether `synchronous_standby_names` contains this name or `*`. Raises what `Session` raises."""
    [(names,)] = session.rows("SELECT pg_catalog.current_setting('synchronous_standby_names')")
    return bool({"*", application_name} & set(re.findall(r'[^\s,()"]+', names)))
