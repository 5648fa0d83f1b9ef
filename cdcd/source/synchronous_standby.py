"""Whether COMMITs wait for us: then even one that publishes nothing must be acknowledged at once.

Before: a session beside the stream.
After: `stream_startup` asks at a start, `slot_monitor` now and then, for it can be altered.
Source: PostgreSQL, "synchronous_standby_names".
"""

from __future__ import annotations

import re

from cdcd.source.session import Session


def commits_wait_for(session: Session, application_name: str) -> bool:
    """Whether the server's synchronous standbys are, or can be, those of that name. Raises as Session does."""
    [(names,)] = session.rows("SELECT pg_catalog.current_setting('synchronous_standby_names')")
    return bool({"*", application_name} & set(re.findall(r'[^\s,()"]+', names)))
