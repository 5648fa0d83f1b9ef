"""The findings of `cdcd check` about the conditions of snapshots (`where` of `[[table]]`).

Before: `postgres_facts` has the tables. After: `check` passes the findings on.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcd.config.settings import Settings
from cdcd.preflight.findings import Finding, error
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.source.session import Session
from cdcd.source.snapshot_conditions import broken_condition, unfit_condition


def findings(settings: Settings, facts: PostgresFacts) -> Iterator[Finding]:
    """Each condition that PostgreSQL does not take is an error. Raises as `Session` does."""
    rules = settings.snapshot_rules()
    found = [(each, where) for each in facts.privileges if (where := rules.where(each.schema, each.name))]
    if found:
        with Session(settings.source.login, "cdcd check") as session:
            for table, where in found:
                if why := broken_condition(session, table.schema, table.name, where):
                    unfit = unfit_condition(table.quoted, why)
                    yield error("snapshots", unfit.message, unfit.hint, code=unfit.code)
