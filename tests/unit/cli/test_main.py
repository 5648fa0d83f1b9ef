from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cdcd.cli import main
from cdcd.cli.commands import Load
from cdcd.cli.main import Execute
from cdcd.errors import RequestRejected, SettingsError
from cdcd.sink.acls import IDEMPOTENT_WRITE


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "cdcd.toml"
    path.write_text('[source]\ndsn = "host=db password=hunter2"\n[sink]\nbootstrap_servers = "k:9092"\n')
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["check"], ["config"], ["tail", "topic"], ["slot", "status"], ["slot", "drop"]],
)
def test_a_bad_setting_exits_2_with_one_line_before_anything_is_touched(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([*arguments, "--config", "/does/not/exist"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("cdcd: The settings file /does/not/exist cannot be read")
    assert said.count("\n") == 1


def raising(error: Exception) -> Callable[[str], Execute]:
    """Give a command that fails, whatever its name."""

    def fail(*_: object) -> bool:
        raise error

    return lambda _: fail


def test_a_command_that_fails_exits_1_in_one_line_and_debug_adds_the_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    find = raising(RequestRejected("the slot is lost", "Drop it", code="slot-lost"))
    assert main.main(["config"], find) == 1
    assert capsys.readouterr().err == "cdcd: the slot is lost. Drop it [slot-lost]\n"
    assert main.main(["config", "--log-level", "debug"], find) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_command_in_the_hint_of_a_failed_command_names_the_brokers_of_the_settings(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(_: object, load: Load, __: object) -> bool:
        load()
        raise RequestRejected("denied", f"Run: {IDEMPOTENT_WRITE.command()}", code="kafka-acl-missing")

    assert main.main(["slot", "status", "--config", config], lambda _: execute) == 1
    said = capsys.readouterr().err
    assert "--bootstrap-server BROKERS" not in said
    assert "--bootstrap-server k:9092" in said


@pytest.fixture
def signals_as_in_a_terminal() -> Iterator[None]:
    """Let signals end a command, though whoever started the tests may ignore some: nohup, or `&` in a script."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_as_in_a_terminal")
@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        ("verify", signal.SIGINT, 130),
        ("check", signal.SIGINT, 130),
        ("slot", signal.SIGINT, 130),
        ("verify", signal.SIGTERM, 143),
        ("snapshot", signal.SIGHUP, 129),
        ("tail", signal.SIGTERM, 143),
        ("run", signal.SIGTERM, 0),
        ("run", signal.SIGINT, 0),
        ("tail", signal.SIGINT, 0),
    ],
)
def test_a_command_that_a_signal_ends_has_not_succeeded_and_leaves_no_file(
    command: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    def wait(*_: object) -> bool:
        with TemporaryDirectory(dir=tmp_path):
            signal.raise_signal(number)
            time.sleep(5)
        return True

    words = {"slot": ["status"], "snapshot": ["t"], "tail": ["t"]}
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)]
    assert main.main([command, *words.get(command, [])], lambda _: wait) == code
    assert list(tmp_path.iterdir()) == []
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    def succeed(*_: object) -> bool:
        signal.raise_signal(signal.SIGHUP)
        return True

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert main.main(["verify"], lambda _: succeed) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_command_that_is_not_satisfied_exits_1_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check"], lambda _: lambda *_: False) == 1
    assert main.main(["check"], lambda _: lambda *_: True) == 0
    assert capsys.readouterr().err == ""


def test_a_command_runs_with_the_garbage_collector_on() -> None:
    gc.disable()  # as `program` does until the command's modules are there
    try:
        assert main.main(["check"], lambda _: lambda *_: gc.isenabled()) == 0
    finally:
        gc.enable()


def test_a_bug_exits_1_and_says_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["config"], raising(ZeroDivisionError("division by zero"))) == 1
    said = capsys.readouterr().err
    assert "This is a bug in cdcd" in said
    assert "Traceback" not in said


def test_settings_errors_of_later_layers_exit_2() -> None:
    assert main.main(["config"], raising(SettingsError("no", code="setting-invalid"))) == 2


def test_config_shows_values_and_origins_without_secrets(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["config", "--config", config]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    assert f'sink.bootstrap_servers = "k:9092" # file {config}' in " ".join(text.split())
    assert main.main(["config", "--config", config, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["source.dsn"] == {"value": "host=db password=********", "from": f"file {config}"}
    assert content["sink.partitions"] == {"value": 4, "from": "default"}


def test_config_reference_needs_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["config", "--reference"]) == 0
    assert "[source]" in capsys.readouterr().out


def test_the_command_runs_as_a_process_and_names_its_libraries() -> None:
    done = subprocess.run([sys.executable, "-P", "-m", "cdcd", "--version"], capture_output=True, text=True, check=True)
    for word in ("cdcd ", "libpq", "librdkafka"):
        assert word in done.stdout
    assert "(pure)" in done.stdout or "(compiled)" in done.stdout


def test_a_reader_that_has_enough_is_no_error(config: str) -> None:
    command = f"{sys.executable} -m cdcd config --reference | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
