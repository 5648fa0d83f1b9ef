"""What `cdcd check` looks at in PostgreSQL, in its order: one judge a subject. Pure.

Before: `postgres_facts` has asked the server.
After: `check` passes the findings on.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcd.config.settings import SourceSettings
from cdcd.preflight import privileges, publication, replica_identity, server, slot
from cdcd.preflight.findings import Finding
from cdcd.preflight.postgres_facts import PostgresFacts


def judge(facts: PostgresFacts, source: SourceSettings, *, takes_snapshot: bool) -> Iterator[Finding]:
    """What the facts mean for these settings. `takes_snapshot`: rows that tables hold are published, too."""
    yield from server.judge(facts.server, facts.slot, source)
    yield from slot.judge(facts, source)
    yield from publication.judge(facts, source)
    yield from replica_identity.judge(facts.publication, facts.identities)
    if takes_snapshot:
        # Where there is a slot, the snapshot may have been taken already.
        yield from privileges.judge(facts.server.role, facts.privileges, is_needed=facts.slot is None)
