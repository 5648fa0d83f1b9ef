"""What is made from the code is as the code makes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdcd.cli.generated import files
from cdcd.cli.parser import build_parser
from cdcd.config.settings import NAMES

ROOT = Path(__file__).parents[3]
FILES = files()


@pytest.mark.parametrize("path", FILES)
def test_a_generated_file_is_the_generators_output(path: str) -> None:
    assert (ROOT / path).read_text() == FILES[path], "run: python -m cdcd.cli.generated"


def test_the_page_of_the_settings_has_every_setting_with_its_type_and_default() -> None:
    page = FILES["cdcd/manual/settings.md"]
    for key in NAMES.known():
        if key in NAMES.lists:
            assert f"\n## `[[{key}]]`\n" in page
            continue
        _, heading, rest = page.partition(f"\n### `{key}`\n\n")
        assert heading, key
        facts = rest.partition("\n\n")[0].replace("\n", " ")
        assert "Default: " in facts or "Required." in facts or "Not set by default." in facts, key


@pytest.mark.parametrize("words", ["run", "tail", "slot drop", "spark mirror", "init"])
def test_the_page_of_the_commands_has_every_option_of_the_parser(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args([*words.split(), "--help"])
    helped = capsys.readouterr().out
    _, heading, rest = FILES["cdcd/manual/commands.md"].partition(f"\n## `cdcd {words}`\n")
    assert heading
    section = rest.partition("\n## ")[0]
    options = set(re.findall(r"(?<!\S)\[?(--[a-z-]+)", helped))
    for option in options - {"--help", "--config", "--log-level"}:
        assert f"`{option}" in section, option


def test_the_page_of_the_commands_names_what_an_option_takes_and_whose_it_is() -> None:
    page = FILES["cdcd/manual/commands.md"]
    assert "{}" not in page
    common, of_init = page.partition("\n## ")[0], page.partition("## `cdcd init`")[2].partition("\n## ")[0]
    assert "`--config FILE`: the TOML file of settings" in common
    assert "`--log-level {" in common
    assert "`--config FILE`: the file to write" in of_init
    assert "`--slot SLOT`" in of_init
    assert page.count("- `--log-level") == 1
