"""Whether COMMITs wait for the daemon. Then it acknowledges at once even a commit that publishes nothing.

Before: a session next to the stream.
After: `stream_startup` asks at its start, and `slot_monitor` every few seconds, because the setting can be altered.
Source: PostgreSQL, "synchronous_standby_names".
"""

from __future__ import annotations

import re

from cdcd.source.session import Session


def commits_wait_for(session: Session, application_name: str) -> bool:
    """Whether a connection of that name is or can be a synchronous standby. Raises what Session raises."""
    [(names,)] = session.rows("SELECT pg_catalog.current_setting('synchronous_standby_names')")
    return bool({"*", application_name} & set(re.findall(r'[^\s,()"]+', names)))
