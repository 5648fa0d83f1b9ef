"""Judges PostgreSQL: one module for each subject. Pure.

Before: `postgres_facts` has asked the server.
After: `check` passes the findings on; a start of the daemon refuses what is an error, and logs what is a warning.

A person follows the hints in their order. A table without a replica identity must not be published: PostgreSQL would
reject its updates. So the replica identities come before the publication. The publication comes before the slot,
because a slot does not see a publication that is younger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from cdcd.config.settings import SourceSettings
from cdcd.preflight import privileges, publication, replica_identity, selected_tables, server, slot
from cdcd.preflight.findings import Finding
from cdcd.preflight.postgres_facts import PostgresFacts, asked_tables
from cdcd.snapshot.table_rules import SnapshotRules


def judge(
    facts: PostgresFacts, source: SourceSettings, *, snapshots: SnapshotRules, is_start: bool = False
) -> Iterator[Finding]:
    """The findings about PostgreSQL for these settings. `snapshots`: the tables that the daemon reads for snapshots.

    `is_start`: the daemon is about to stream. If there is a slot, then the server has what a stream needs.
    """
    if not is_start or facts.slot is None:
        yield from server.judge(facts.server, facts.slot, source)
    for finding in _of_the_catalog(facts, source, snapshots):
        yield _on_primary(finding) if facts.server.is_standby else finding
    yield from slot.judge(facts, source)


def _of_the_catalog(facts: PostgresFacts, source: SourceSettings, snapshots: SnapshotRules) -> Iterator[Finding]:
    """The findings about what a primary and its standbys have in common."""
    operations = source.asked.operations
    yield from replica_identity.judge(facts.publication, facts.identities, source.publication, operations)
    if snapshots.takes_any:
        read = [each for each in facts.privileges if snapshots.takes(each.schema, each.name)]
        # If the slot exists, the snapshot may already be done.
        is_needed = facts.slot is None
        yield from privileges.judge(facts.server.role, read, facts.unreadable_later, is_needed=is_needed)
    yield from selected_tables.judge(
        facts, source.publication, source.asked, asked_tables(source, facts.found, exists=facts.publication is not None)
    )
    yield from publication.judge(facts, source)


def _on_primary(finding: Finding) -> Finding:
    """The finding, with a hint that does not fail on a standby."""
    if re.search(r"\b[Rr]un: ", finding.hint) is None:
        return finding
    return replace(finding, hint=f"On the primary: {finding.hint}")
