"""The publication at a start: makes it if it is missing, alters it, and learns which tables and types it has.

Before: `start_judgement` has judged whether the publication can be made.
After: `slot_setup` and `kafka_takeover` get the tables; START_REPLICATION gets the choice between binary and text.
Source: PostgreSQL, "CREATE PUBLICATION"; "Logical Streaming Replication Parameters" (`binary`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from cdcd.avro.codecs.lookup import has_known_binary
from cdcd.config.settings import SourceSettings
from cdcd.errors import PostgresUnavailable, sentence
from cdcd.source.catalog import Catalog
from cdcd.source.publication import Publication
from cdcd.source.publication_contents import ListedTable, PublicationChange, publication_change
from cdcd.source.session import Locked, Session, StatementRejected
from cdcd.source.table_selection import CandidateTable, count_and_names

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S: Final = 1.0
"""How long a query waits for a lock. The holder of the lock may itself wait for the daemon, its synchronous standby."""


ALTER_LOCK_TIMEOUT_S: Final = 3.0
"""As LOCK_TIMEOUT_S, for a statement that puts tables into a publication. Longer than the default of deadlock_timeout,
after which an autovacuum gives up a lock that somebody waits for: that of a large table may last for hours."""

HINT_SIZE_MAX: Final = 4_000
"""Longer statements, of very many tables, are left out of the log."""


class PublicationSetup:
    """One start's view of the publication. All methods raise as Session does."""

    def __init__(self, source: SourceSettings, session: Session, publication: Publication) -> None:
        """`publication` is seen through `session`."""
        self._source = source
        self._session = session
        self._publication = publication

    def ensure(self, *, is_judged: bool) -> None:
        """Make the publication if it is missing, and with it the table of requests, if the role may.

        `is_judged`: nothing forbids that. Raises PostgresUnavailable else; Locked if a table stays locked.
        """
        source = self._source
        if self._publication.exists():
            return
        if not is_judged:
            raise PostgresUnavailable(
                "a table is locked, so it is not known whether it may be published", code="table-locked"
            )
        with self._session.lock_timeout(ALTER_LOCK_TIMEOUT_S):
            if not self._publication.create(source.asked):
                return
            log.info("made the publication", extra={"publication": source.publication})
            if not self._publication.add_requests_table():
                log.warning(
                    "made no table cdcd.requests: the daemon takes no requests. To see why, run: cdcd check "
                    "[requests-not-taken]",
                    extra={"code": "requests-not-taken"},
                )

    def follow(self) -> bool:
        """Alter the publication as the settings ask, if it is the daemon's own; return whether it has.

        For the daemon that holds the slot: another one may have other settings. A publication that cannot be altered
        is used as it is, and the log says how to alter it.
        """
        name, change = self._source.publication, PublicationChange()
        try:
            with self._session.lock_timeout(ALTER_LOCK_TIMEOUT_S):
                change = self._change()
                if change.statements:
                    self._publication.alter(change.statements)
        except (Locked, StatementRejected) as error:
            run = f"Its owner may run: BEGIN; {'; '.join(change.statements)}; COMMIT"
            hint = run if change.statements and len(run) <= HINT_SIZE_MAX else ""
            said = f"the publication {name} stays as it is, and the next stream tries again: {error.message}"
            log.warning("%s", sentence(said, hint, "publication-incomplete"), extra={"code": "publication-incomplete"})
            return False
        if not change.statements:
            return False
        log.info(
            "altered the publication as the settings ask",
            extra={"publication": name, "added": _named(change.added), "taken_out": _named(change.taken_out)},
        )
        return True

    def is_to_change(self) -> bool:
        """Whether `follow` is to alter it."""
        with self._session.lock_timeout(LOCK_TIMEOUT_S):
            return bool(self._change().statements)

    def _change(self) -> PublicationChange:
        """What makes the publication what the settings ask for; no statements if the daemon does not alter it."""
        name, asked = self._source.publication, self._source.asked
        found = self._publication.found()
        if found is None or not found.is_followed_by(asked.slot):
            return PublicationChange()
        return publication_change(name, asked, found, self._publication.all_candidates())

    def choose_binary(self, catalog: Catalog) -> bool:
        """Whether every published type has a binary form that cdcd reads. False if a lock hides the types."""
        try:
            with self._session.lock_timeout(LOCK_TIMEOUT_S):
                types = catalog.published_types(self._source.publication)
        except Locked:
            log.warning("streaming in text mode: a published table is locked, so its types are not known")
            return False
        encoding = self._session.encoding
        unknown = [each.qualified for each in types if not has_known_binary(each, encoding)]
        if unknown:
            log.warning("streaming in text mode: no binary form is known of a type", extra={"types": ",".join(unknown)})
        return not unknown

    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of the published tables. No lock of a table hides them."""
        return self._publication.tables()


def _named(tables: Sequence[CandidateTable | ListedTable]) -> str:
    return count_and_names([(table.schema, table.name) for table in tables])
