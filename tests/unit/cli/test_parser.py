from __future__ import annotations

import argparse
from collections.abc import Collection

import pytest

from cdcd.cli.main import command
from cdcd.cli.parser import build_parser

COMMANDS = ("run", "check", "config", "tail", "slot", "slot drop")


def subcommands() -> Collection[str]:
    [found] = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return found.choices


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_config_and_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([*command.split(), "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--config FILE" in text
    assert f"Example: cdcd {command}" in " ".join(text.split())


def test_an_action_of_the_slot_takes_its_own_options_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(["slot", "drop", "--two-phase"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --two-phase" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(subcommands()))
def test_every_command_has_a_file_of_its_own(name: str) -> None:
    assert callable(command(name))


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (["slot", "--config", "a", "drop"], "a"),
        (["slot", "drop", "--config", "b"], "b"),
        (["slot", "--config", "a", "drop", "--config", "b"], "b"),
    ],
)
def test_options_are_taken_before_and_after_the_name_of_an_action(words: list[str], config: str) -> None:
    assert build_parser().parse_args(words).config == config


@pytest.mark.parametrize("limit", ["0", "100001", "x"])
def test_a_limit_has_bounds(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["peek", "--limit", limit])
    assert "--limit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("2026-11-26T10:00", 1_795_687_200_000),
        ("2026-11-26T10:00:00.250", 1_795_687_200_250),
        ("2026-11-26T11:00+01:00", 1_795_687_200_000),
        ("2026-11-26", 1_795_651_200_000),
    ],
)
def test_a_moment_without_an_offset_is_utc(text: str, moment_ms: int) -> None:
    assert build_parser().parse_args(["tail", "t", "--since", text]).since == moment_ms


def test_a_moment_may_be_told_by_how_long_ago_it_was() -> None:
    def since(text: str) -> int:
        return int(build_parser().parse_args(["tail", "t", "--since", text]).since)

    assert since("2h") - since("3d") == pytest.approx((3 * 24 - 2) * 3_600_000, abs=60_000)


def test_a_moment_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["tail", "t", "--since", "yesterday"])
    assert "'yesterday' is no time: write 10m, 2h, 3d or 2026-11-26T10:00" in capsys.readouterr().err


def test_tail_begins_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["tail", "t", "-n", "5", "--from-beginning"])
    assert "not allowed with" in capsys.readouterr().err


def said_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(words)
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "command",
    [
        "init", "run", "check", "config", "peek", "top", "status", "adopt", "slot status", "slot create", "slot drop",
        "spark mirror", "spark status", "spark verify",
    ],
)  # fmt: skip
def test_a_file_of_settings_without_its_option_gets_a_hint_and_the_usage_of_the_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_by([*command.split(), "my own.toml"], capsys)
    assert said.startswith(f"usage: cdcd {command} [-h]")
    hint = f"A file of settings goes behind --config: cdcd {command} --config 'my own.toml' [arguments-invalid]"
    assert said.endswith(f"error: unrecognized arguments: my own.toml. {hint}")


def test_a_file_of_settings_in_the_place_of_a_command_gets_the_same_hint(capsys: pytest.CaptureFixture[str]) -> None:
    for words, usage in (
        (["a.toml"], "cdcd COMMAND"),
        (["--config", "a.toml", "check"], "cdcd COMMAND"),
        (["slot", "a.toml", "status"], "cdcd slot ACTION"),
        (["spark", "a.toml"], "cdcd spark JOB"),
    ):
        assert said_by(words, capsys).endswith(f"{usage} --config a.toml [arguments-invalid]")


def test_other_words_and_commands_without_settings_get_no_such_hint(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["check", "orders"], ["help", "a.toml"], ["completion", "zsh", "a.toml"], ["check", "--tables"]):
        assert "--config:" not in said_by(words, capsys)
