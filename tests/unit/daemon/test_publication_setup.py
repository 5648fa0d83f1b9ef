"""No statement about the publication waits for a lock without end: its holder may wait for the daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from cdcd.config.settings import SourceSettings
from cdcd.daemon.publication_setup import ALTER_LOCK_TIMEOUT_S, PublicationSetup
from cdcd.source.publication_contents import (
    EVERYTHING,
    FoundPublication,
    ListedTable,
    PublicationContents,
)
from cdcd.source.session import Locked, StatementRejected
from cdcd.source.table_selection import CandidateTable

TABLES = [CandidateTable(1, "public", "a", None, True), CandidateTable(2, "public", "b", None, True)]


class PlayedSession:
    """A session, and a publication seen through it, whose tables another session may have locked."""

    def __init__(self) -> None:
        self.is_locked = False
        self.is_owned = True
        self.is_refused = False
        self.candidates = TABLES
        self.lock_timeout_s = 0.0
        self.made: list[str] = []

    @contextmanager
    def lock_timeout(self, seconds: float) -> Iterator[None]:
        self.lock_timeout_s = seconds
        yield
        self.lock_timeout_s = 0.0

    def exists(self) -> bool:
        return "publication" in self.made

    def found(self) -> FoundPublication:
        """It has the tables 1 and 2, for the slot cdcd."""
        now = PublicationContents(EVERYTHING, False, tables=frozenset([1, 2]))
        listed = [ListedTable(each.oid, each.schema, each.name) for each in TABLES]
        return FoundPublication(now, now.comment("cdcd"), self.is_owned, False, listed, {}, [1, 2])

    def all_candidates(self) -> list[CandidateTable]:
        if self.is_locked:
            raise Locked("canceling statement due to lock timeout", "55P03", code="table-locked")
        return self.candidates

    def alter(self, statements: Sequence[str]) -> None:
        assert self.lock_timeout_s == ALTER_LOCK_TIMEOUT_S
        if self.is_refused:
            raise StatementRejected("must be owner", "42501")
        self.made += statements

    def create(self, patterns: Sequence[str]) -> bool:
        return self._make("publication")

    def add_requests_table(self) -> bool:
        return self._make("requests")

    def _make(self, what: str) -> bool:
        assert self.lock_timeout_s == ALTER_LOCK_TIMEOUT_S
        if self.is_locked:
            raise Locked("canceling statement due to lock timeout", "55P03", code="table-locked")
        self.made.append(what)
        return True


@pytest.fixture
def session() -> PlayedSession:
    return PlayedSession()


@pytest.fixture
def setup(session: PlayedSession) -> PublicationSetup:
    played: Any = session
    return PublicationSetup(SourceSettings(dsn=""), played, played)


def test_the_publication_is_made_with_a_bound_on_the_wait(setup: PublicationSetup, session: PlayedSession) -> None:
    session.is_locked = True
    with pytest.raises(Locked):
        setup.ensure(is_judged=True)
    session.is_locked = False
    setup.ensure(is_judged=True)
    assert session.made == ["publication", "requests"]


def following(session: PlayedSession, *tables: str) -> PublicationSetup:
    played: Any = session
    return PublicationSetup(SourceSettings(dsn="", slot="cdcd", tables=tables), played, played)


def test_what_is_to_change_is_known_before_it_is_changed(session: PlayedSession) -> None:
    assert not following(session, "public.a", "public.b").is_to_change()
    setup = following(session, "public.a")
    assert setup.is_to_change()
    assert session.made == []
    assert setup.follow()
    assert session.made[0] == 'ALTER PUBLICATION "cdcd" DROP TABLE "public"."b"'
    session.is_owned = False
    assert not setup.is_to_change()
    assert not setup.follow()


def test_a_publication_that_cannot_be_altered_is_used_as_it_is_and_the_log_stays_short(
    session: PlayedSession, caplog: pytest.LogCaptureFixture
) -> None:
    session.is_refused = True
    assert not following(session, "public.a").follow()
    assert 'Its owner may run: BEGIN; ALTER PUBLICATION "cdcd" DROP TABLE "public"."b"; COMMENT' in caplog.text
    caplog.clear()
    session.is_locked = True
    assert not following(session, "public.a").follow()
    assert "stays as it is" in caplog.text
    session.is_locked = False
    session.candidates = [CandidateTable(number, "public", f"t{number}", None, True) for number in range(1_000)]
    caplog.clear()
    assert not following(session, "public.*").follow()
    assert 0 < len(caplog.text) < 1_000
