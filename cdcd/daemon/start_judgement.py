"""Lets the judges of `cdcd check` decide about a start: an error refuses it, a warning is logged.

Before: `stream_startup` has a session.
After: the publication and the slot are made if they are missing.

The same code judges for `cdcd check`, so both say the same. A start is repeated after each lost connection, so a
warning is logged once in the life of the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from cdcd.config.settings import Settings, SourceSettings
from cdcd.daemon.publication_setup import LOCK_TIMEOUT_S
from cdcd.errors import RequestRejected
from cdcd.preflight import column_rules, outbox, postgres
from cdcd.preflight.findings import Finding, Level
from cdcd.preflight.postgres_facts import PostgresFacts, gather
from cdcd.source.session import Locked, Session
from cdcd.source.table_columns import TableColumns, published_columns

log = logging.getLogger(__name__)

Gather: TypeAlias = "Callable[[Session, SourceSettings], PostgresFacts]"
GatherColumns: TypeAlias = "Callable[[Session, str], list[TableColumns]]"


class StartJudgement:
    """The judge of all starts of a process."""

    def __init__(self, ask: Gather = gather, ask_columns: GatherColumns = published_columns) -> None:
        """`ask` asks PostgreSQL for the facts, `ask_columns` for the columns of a publication's tables."""
        self._ask = ask
        self._ask_columns = ask_columns
        self._logged: set[tuple[str, str]] = set()
        """The subject and the hint of each logged warning. Its message may have figures that change."""

    def judge(self, session: Session, settings: Settings) -> bool:
        """Ask PostgreSQL, and judge; return False if another session's lock hides the tables.

        Raises RequestRejected if something forbids the start, or what `Session` raises.
        """
        try:
            with session.lock_timeout(LOCK_TIMEOUT_S):
                facts = self._ask(session, settings.source).with_keys(settings.column_rules().keying)
        except Locked:
            log.warning("a table is locked: this start does not check the publication")
            return False
        self.accept(postgres.judge(facts, settings.source, snapshots=settings.snapshot_rules(), is_start=True))
        return True

    def judge_columns(self, session: Session, settings: Settings) -> bool:
        """Judge [[table]] and [outbox], once there is a publication. Returns whether masks can be made in binary mode.

        Raises RequestRejected if something forbids the start, or what `Session` raises.
        """
        rules = settings.column_rules()
        if not (rules.rules or settings.outbox.is_on):
            return True
        tables = self._ask_columns(session, settings.source.publication)
        self.accept(column_rules.judge(rules, tables, binary=settings.source.binary))
        self.accept(outbox.judge(settings.outbox.rules, tables, rules))
        return column_rules.in_binary_mode(rules, tables)

    def accept(self, findings: Iterable[Finding]) -> None:
        """Log the warnings that are new. Raises RequestRejected for an error."""
        found = list(findings)
        for finding in found:
            if finding.level is Level.WARNING and (finding.about, finding.hint) not in self._logged:
                self._logged.add((finding.about, finding.hint))
                log.warning("%s", finding, extra={"about": finding.about})
        errors = [finding for finding in found if finding.level is Level.ERROR]
        if errors:
            code = errors[0].code
            assert code is not None  # each error has one
            more = f" ({len(errors) - 1} more: run cdcd check)" if len(errors) > 1 else ""
            raise RequestRejected(f"{errors[0].message}{more}", errors[0].hint, code=code)
