from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import pytest

from cdcd.config.loading import load
from cdcd.config.settings import NAMES, Settings
from cdcd.daemon.settings_watch import AT_ONCE, ONLY_AT_START, SettingsWatch
from cdcd.errors import AccessDenied, CdcdError

TEXT = """
secrets_dir = "{secrets}"
[sink]
bootstrap_servers = "k:9092"
"""


class Watched:
    """A watch whose looks are those of the test, and whose services answer as it says."""

    def __init__(self, folder: Path) -> None:
        self.secrets, self._file = folder / "secrets", folder / "cdcd.toml"
        self.secrets.mkdir()
        (self.secrets / "source__dsn").write_text("host=a")
        self.write("")
        self.refusal: CdcdError | None = None
        self.tried: list[list[str]] = []
        self.wakes = 0
        self.watch = SettingsWatch(load(str(self._file)), self._wake, self._try_out)
        self.judged: list[str] = []
        self.watch._judged = lambda error: self.judged.append(str(error))

    def write(self, more: str) -> None:
        self._file.write_text(TEXT.format(secrets=self.secrets) + more)

    def look(self, *, is_asked: bool = True) -> None:
        self.watch.look(is_asked=is_asked)

    def _wake(self) -> None:
        self.wakes += 1

    def _try_out(self, settings: Settings, changed: Collection[str]) -> None:
        self.tried.append([*changed])
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Watched:
    caplog.set_level(logging.INFO)
    return Watched(tmp_path)


def test_a_changed_secret_is_due_and_in_force_once_it_is_taken(watched: Watched) -> None:
    (watched.secrets / "source__dsn").write_text("host=b")
    watched.look()
    assert watched.watch.is_due
    assert watched.wakes == 1
    assert watched.tried == [["source.dsn"]]
    assert watched.watch.settings.source.dsn == "host=a"
    assert watched.watch.take().source.dsn == "host=b"
    assert not watched.watch.is_due
    assert watched.watch.settings.source.dsn == "host=b"


def test_what_changed_between_the_start_and_the_first_look_is_noticed(watched: Watched) -> None:
    watched.write("[snapshot]\nworkers = 3\n")
    watched.look(is_asked=False)
    assert watched.watch.is_due


def test_a_secret_that_is_new_is_read_and_watched_from_then_on(watched: Watched) -> None:
    watched.look(is_asked=False)
    added = watched.secrets / "sink__librdkafka__sasl.password"
    added.write_text("one")
    watched.look()
    assert watched.watch.take().sink.librdkafka == {"sasl.password": "one"}
    watched.look(is_asked=False)
    added.write_text("two")  # the folder stays as it was
    watched.look()
    assert watched.watch.take().sink.librdkafka == {"sasl.password": "two"}


def test_an_error_is_said_once_and_what_it_concerns_is_tried_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.refusal = AccessDenied("no such password", "Check it", code="login-refused")
    (watched.secrets / "source__dsn").write_text("host=b password=hunter2")
    for _ in range(3):
        watched.look(is_asked=False)
    assert not watched.watch.is_due
    assert watched.tried == [["source.dsn"]] * 3
    [line] = caplog.messages
    assert line.startswith(
        "the new settings cannot be used, and the old ones stay in force: no such password. Check it"
    )
    watched.refusal = None
    assert watched.judged == ["the new settings cannot be used: no such password. Check it [login-refused]"]
    watched.look(is_asked=False)
    assert watched.watch.is_due
    assert watched.judged[1:] == ["None"]
    assert "hunter2" not in caplog.text


def test_a_setting_that_says_which_daemon_this_is_lets_nothing_be_taken(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write('prefix = "other"\ntombstones = true\n')
    watched.look()
    assert not watched.watch.is_due
    assert "sink.prefix has changed, which cdcd reads only at its start. Put the old value back, or" in caplog.text
    assert watched.tried == []
    watched.write("tombstones = true\n")
    watched.look()
    assert watched.watch.is_due, "the old value is back: the rest is taken"


def test_the_level_of_the_log_is_in_force_without_a_new_stream(watched: Watched) -> None:
    applied: list[Settings] = []
    watched.watch._apply = applied.append
    watched.write('[log]\nlevel = "debug"\n')
    watched.look()
    assert [settings.log.level for settings in applied] == ["debug"]
    assert not watched.watch.is_due
    assert watched.watch.settings.log.level == "debug"


def test_whoever_asks_hears_that_nothing_has_changed(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.look()
    assert caplog.messages == ["read the settings again: none has changed"]
    assert not watched.watch.is_due


def test_a_failure_of_the_watch_is_raised_in_the_main_thread(watched: Watched) -> None:
    def fail(_: Settings, __: Collection[str]) -> None:
        raise ZeroDivisionError

    watched.watch._trial = fail
    watched.watch.start(lambda _: None, lambda _: None)
    watched.watch.request()
    while not watched.watch.is_due:
        pass
    with pytest.raises(ZeroDivisionError):
        watched.watch.take()


def test_the_sorted_settings_are_settings() -> None:
    assert {*NAMES.known()} >= AT_ONCE | ONLY_AT_START
    assert not AT_ONCE & ONLY_AT_START
