"""Makes the findings of `cdcd check`, in their order. It changes nothing.

Before: the command has loaded the settings.
After: the command prints each finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcd.config.settings import Settings
from cdcd.errors import CdcdError
from cdcd.preflight import column_findings, condition_findings, connections, host, kafka, postgres, registry
from cdcd.preflight.findings import Finding, Level, of_error
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.preflight.postgres_facts import gather_for_check as ask_postgres


def findings(settings: Settings) -> Iterator[Finding]:
    """Check everything that the daemon needs. An error, such as a server that cannot be reached, is a finding, too."""
    published: list[tuple[str, str]] = []
    is_slot_in_use = False
    facts: PostgresFacts | None = None
    absent: Finding | None = None
    try:
        facts = ask_postgres(settings.source.login, settings.source).with_keys(settings.column_rules().keying)
        is_slot_in_use = facts.slot is not None and facts.slot.active
        published = facts.tables
        for finding in postgres.judge(facts, settings.source, snapshots=settings.snapshot_rules()):
            is_absent = finding.level is Level.OK or finding.code == "slot-missing"
            if facts.slot is None and finding.about == "slot" and is_absent:
                absent = finding  # only Kafka tells whether it is a new slot, or a lost one
            else:
                yield finding
        yield from column_findings.findings(settings, facts)
        yield from condition_findings.findings(settings, facts)
    except CdcdError as failure:
        yield of_error("server", failure, unseen="PostgreSQL")
    lost: Finding | None = None
    for finding in kafka.findings(settings, published, facts):
        if finding.code in ("slot-lost", "progress-lost"):
            lost = finding
        yield finding
    # With source.on_slot_lost a start makes the slot again, unless it may not.
    if absent is not None and (lost is None or (lost.level is not Level.ERROR and absent.level is Level.ERROR)):
        yield absent
    yield from connections.judge(settings)
    if settings.avro.registry_url is not None:
        yield from registry.findings(settings, has_publication=facts is not None and facts.publication is not None)
    yield from host.judge(settings, is_slot_in_use=is_slot_in_use)
