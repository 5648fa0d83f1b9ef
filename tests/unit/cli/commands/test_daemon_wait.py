from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.cli.commands.daemon_wait import AWAY_MAX_S, COMES_WITHIN_S, DaemonWait
from cdcd.config.settings import Settings, SinkSettings, SourceSettings
from cdcd.errors import PostgresUnavailable, RequestRejected
from cdcd.source.slot import SlotState

STATE = SlotState("s", "pgoutput", "d", False, True, 7, 16, 16, "reserved", None, False, False, "", 64)


class PlayedSlot:
    """A slot that a test speaks for."""

    name = "s"

    def __init__(self) -> None:
        self.found: SlotState | PostgresUnavailable | None = STATE

    def state(self) -> SlotState | None:
        if isinstance(self.found, PostgresUnavailable):
            raise self.found
        return self.found

    def close(self) -> None:
        pass


class Played:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.comes_back_s = float("inf")
        settings = Settings(source=SourceSettings(dsn="", slot="s"), sink=SinkSettings(bootstrap_servers="k:9092"))
        self.wait = DaemonWait(settings, lambda: self.now_s, self.sleep)
        self.slot = PlayedSlot()
        monkeypatch.setattr(self.wait, "_slot", self.slot)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self.comes_back_s:
            self.slot.found = STATE


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def test_a_daemon_that_is_there_is_not_waited_for(played: Played) -> None:
    played.wait.until_there()
    assert played.now_s == 1000.0


def test_a_daemon_that_starts_again_is_waited_for_and_one_that_does_not_come_for_a_bounded_time(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    played.slot.found = replace(STATE, active=False)
    played.comes_back_s = 1003.0
    with caplog.at_level("INFO", "cdcd"):
        played.wait.until_there()
    assert [record.getMessage() for record in caplog.records] == ["no daemon uses the slot s; waiting 10 s for one"]
    played.slot.found, played.comes_back_s = replace(STATE, active=False), float("inf")
    began_s = played.now_s
    with pytest.raises(RequestRejected, match="no daemon uses the slot s, so nobody takes the request"):
        played.wait.until_there()
    assert COMES_WITHIN_S <= played.now_s - began_s <= COMES_WITHIN_S + 1


def turn_without_end(wait: DaemonWait) -> None:
    while True:
        wait.turn(0.5, None, 100)


def test_a_daemon_that_goes_away_and_stays_away_ends_the_wait_and_a_silent_postgresql_does_not(played: Played) -> None:
    played.wait.until_there()
    played.slot.found = PostgresUnavailable("gone", code="postgres-interrupted")
    for _ in range(400):
        played.wait.turn(0.5, None, 100)
    played.slot.found = None
    began_s = played.now_s
    with pytest.raises(RequestRejected, match="no daemon has used the slot s for") as error:
        turn_without_end(played.wait)
    assert AWAY_MAX_S <= played.now_s - began_s <= AWAY_MAX_S + 4
    assert "do not make it again" in error.value.hint
