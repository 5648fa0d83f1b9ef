"""PostgreSQL at `cdcd init`: looks at the server, and runs the SQL that makes what the daemon needs.

Before: `--dsn` names a role that may look, or make things. After: `answers` and `commands.init`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from psycopg import sql

from cdcd.cli.setup.answers import PUBLICATION, SLOT, Login
from cdcd.config.settings import Settings
from cdcd.errors import CdcdError, sentence
from cdcd.preflight import postgres
from cdcd.preflight.findings import Finding, Level
from cdcd.preflight.postgres_facts import PostgresFacts, gather
from cdcd.snapshot.table_rules import SnapshotRules
from cdcd.source.publication import Publication
from cdcd.source.server import server_facts
from cdcd.source.server_errors import INSUFFICIENT_PRIVILEGE
from cdcd.source.session import Session, StatementRejected
from cdcd.source.setup_sql import RDS_REPLICATION, Step
from cdcd.source.slot import Slot

_RIGHTS: Final = """
    SELECT rolreplication OR rolsuper OR EXISTS (
               SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = %s AND pg_catalog.pg_has_role(r.oid, 'MEMBER')),
           rolsuper
    FROM pg_catalog.pg_roles WHERE rolname = current_user
"""
_MADE_BY_THE_SQL: Final = frozenset({"publication", "requests", "privileges"})
"""Subjects of findings that the SQL takes care of."""


def log_in(session: Session, dsn: str) -> Login:
    """Look who has connected, and what is there. Raises as `Session`."""
    [(may_replicate, is_superuser)] = session.rows(_RIGHTS, [RDS_REPLICATION])
    slot = Slot(session, SLOT).state()
    return Login(
        dsn=dsn,
        server=server_facts(session),
        may_replicate=may_replicate,
        is_superuser=is_superuser,
        candidates=Publication(session, PUBLICATION).all_candidates(),
        is_slot_foreign=slot is not None and bool(slot.misfit),
    )


def look(session: Session, settings: Settings) -> PostgresFacts:
    """What a start with these settings would be judged by. Raises as `Session`."""
    return gather(session, settings.source, is_start=False)


def problems(facts: PostgresFacts, settings: Settings) -> Iterator[Finding]:
    """What stands in the way, and is not made by the SQL."""
    for finding in postgres.judge(facts, settings.source, snapshots=SnapshotRules(takes_others=False)):
        if finding.level is not Level.OK and finding.about not in _MADE_BY_THE_SQL:
            yield finding


def run(session: Session, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Run the steps, up to the first that fails, because the next ones need it.

    Yields the name of each, and why it failed; "" if it did not.
    """
    for step in steps:
        try:
            for statement in step.statements:
                session.rows(sql.SQL(statement))
        except CdcdError as error:
            is_denied = isinstance(error, StatementRejected) and error.sqlstate == INSUFFICIENT_PRIVILEGE
            yield step.name, sentence(error.message, step.who, error.code) if is_denied else str(error)
            return
        yield step.name, ""
