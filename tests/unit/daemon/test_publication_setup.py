"""No question about the published tables waits for a lock without end: its holder may wait for the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cdcd.config.settings import SourceSettings
from cdcd.daemon.publication_setup import LOCK_TIMEOUT_S, PublicationSetup
from cdcd.source.session import Locked

TABLE = ("public", "t")


class PlayedSession:
    """A session, and a publication seen through it, whose tables another session may have locked."""

    def __init__(self) -> None:
        self.is_locked = False
        self.lock_timeout_s = 0.0

    @contextmanager
    def lock_timeout(self, seconds: float) -> Iterator[None]:
        self.lock_timeout_s = seconds
        yield
        self.lock_timeout_s = 0.0

    def tables(self) -> list[tuple[str, str]]:
        assert self.lock_timeout_s == LOCK_TIMEOUT_S
        if self.is_locked:
            raise Locked("canceling statement due to lock timeout", "55P03")
        return [TABLE]


@pytest.fixture
def session() -> PlayedSession:
    return PlayedSession()


@pytest.fixture
def setup(session: PlayedSession) -> PublicationSetup:
    played: Any = session
    return PublicationSetup(SourceSettings(dsn=""), played, played)


def test_the_tables_are_asked_for_with_a_bound_on_the_wait(setup: PublicationSetup) -> None:
    assert setup.tables() == setup.tables_if_unlocked() == [TABLE]


def test_a_lock_hides_the_tables_for_now(setup: PublicationSetup, session: PlayedSession) -> None:
    session.is_locked = True
    assert setup.tables_if_unlocked() is None
    with pytest.raises(Locked):
        setup.tables()
