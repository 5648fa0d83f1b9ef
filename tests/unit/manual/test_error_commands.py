"""Each command on the page of errors is one that a test runs. `acceptance/test_error_page.py` runs most of them."""

from __future__ import annotations

from pathlib import Path

from support.error_page import ELSEWHERE, NOT_RUN, blocks_of, inline_commands

ROOT = Path(__file__).parents[3]


def test_the_acls_are_those_that_the_tests_of_least_privilege_run() -> None:
    script = (ROOT / "deploy" / "kafka" / "acls.sh").read_text()
    given = script.replace('"$PRINCIPAL"', "User:cdcd").replace('"$PREFIX', '"shop').replace("$SLOT", "cdcd")
    commands = [line.replace('"', "") for line in given.splitlines() if line.startswith("acls --add")]
    there = " --bootstrap-server localhost:9092"
    assert blocks_of("kafka-acls.sh") == {f"{line.replace('acls ', 'kafka-acls.sh ', 1)}{there}" for line in commands}


def test_a_command_that_another_test_runs_is_in_that_test() -> None:
    for command, file in ELSEWHERE.items():
        words = command.split()
        text = (ROOT / "tests" / file).read_text()
        for word in words[1 : words.index("--config")]:
            assert "." in word or f'"{word}"' in text, f"{command} in {file}"


def test_a_command_within_a_sentence_is_one_that_runs() -> None:
    known = [*blocks_of(""), *NOT_RUN]
    for code, command in inline_commands():
        words = command.split()
        assert any(each.split()[: len(words)] == words for each in known), f"{code}: {command}"


def test_each_other_command_of_cdcd_is_one_that_the_test_of_the_page_runs() -> None:
    text = (ROOT / "tests" / "acceptance" / "test_error_page.py").read_text()
    others = blocks_of("cdcd") - {*ELSEWHERE, *NOT_RUN}
    assert len(others) > 20
    assert sorted(command for command in others if f'"{command}"' not in text) == []
