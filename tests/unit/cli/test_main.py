from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cdcd.cli import main
from cdcd.config import loading
from cdcd.errors import RequestRejected, SettingsError

COMMANDS = ("run", "check", "config", "tail", "slot", "slot drop")


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "cdcd.toml"
    path.write_text('[source]\ndsn = "host=db password=hunter2"\n[sink]\nbootstrap_servers = "k:9092"\n')
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_config_and_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([*command.split(), "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--config FILE" in text
    assert f"Example: cdcd {command}" in " ".join(text.split())


def test_an_action_of_the_slot_takes_its_own_options_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["slot", "drop", "--two-phase"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --two-phase" in capsys.readouterr().err


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


def test_a_failed_run_exits_1_in_one_line_and_debug_adds_the_traceback(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RequestRejected("the slot is lost", "Drop it")

    monkeypatch.setattr(loading, "load", refuse)
    assert main.main(["config", "--config", config]) == 1
    assert capsys.readouterr().err == "cdcd: the slot is lost. Drop it\n"
    assert main.main(["config", "--config", config, "--log-level", "debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_exits_1_and_says_that_it_is_one(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(loading, "load", break_down)
    assert main.main(["config", "--config", config]) == 1
    said = capsys.readouterr().err
    assert "This is a bug in cdcd" in said
    assert "Traceback" not in said


def test_settings_errors_of_later_layers_exit_2(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SettingsError("no")

    monkeypatch.setattr("cdcd.config.reference.effective", refuse)
    assert main.main(["config", "--config", config]) == 2


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
    for word in ("cdcd ", "pure", "libpq", "librdkafka"):
        assert word in done.stdout


def test_a_reader_that_has_enough_is_no_error(config: str) -> None:
    command = f"{sys.executable} -m cdcd config --reference | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
