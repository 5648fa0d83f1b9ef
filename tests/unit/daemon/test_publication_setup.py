"""No statement about the publication waits for a lock without end: its holder may wait for the daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from cdcd.config.settings import SourceSettings
from cdcd.daemon.publication_setup import LOCK_TIMEOUT_S, PublicationSetup
from cdcd.source.session import Locked


class PlayedSession:
    """A session, and a publication seen through it, whose tables another session may have locked."""

    def __init__(self) -> None:
        self.is_locked = False
        self.lock_timeout_s = 0.0
        self.made: list[str] = []

    @contextmanager
    def lock_timeout(self, seconds: float) -> Iterator[None]:
        self.lock_timeout_s = seconds
        yield
        self.lock_timeout_s = 0.0

    def exists(self) -> bool:
        return "publication" in self.made

    def create(self, patterns: Sequence[str]) -> bool:
        return self._make("publication")

    def add_requests_table(self) -> bool:
        return self._make("requests")

    def _make(self, what: str) -> bool:
        assert self.lock_timeout_s == LOCK_TIMEOUT_S
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
