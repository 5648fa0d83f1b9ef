"""Judges PostgreSQL: one module for each subject, in this order. Pure.

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
    """The findings about PostgreSQL for these settings. `takes_snapshot`: the daemon reads tables for snapshots."""
    yield from server.judge(facts.server, facts.slot, source)
    yield from slot.judge(facts, source)
    yield from publication.judge(facts, source)
    yield from replica_identity.judge(facts.publication, facts.identities)
    if takes_snapshot:
        # If the slot exists, the snapshot may already be done.
        yield from privileges.judge(facts.server.role, facts.privileges, is_needed=facts.slot is None)
