"""The page of errors has each code that cdcd raises, and no other, each with a cause, a cure, and a way to see it."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from support.error_page import blocks

from cdcd import error_codes, manual
from cdcd.cli import main
from cdcd.cli.parser import build_parser
from cdcd.config import loading
from cdcd.errors import CdcdError, RequestRejected, sentence
from cdcd.manual.explanations import explanations
from cdcd.monitoring.log_setup import JsonFormatter, TextFormatter
from cdcd.preflight.topics import RAISED_RECORD_BYTES
from cdcd.source.requests_table import CREATE_TABLE

SOURCES = Path(error_codes.__file__).parent
CODES = set(get_args(error_codes.Code))


def constants() -> Iterator[str]:
    """Each text that stands in the sources as a constant. Documentation does not count, nor does the list itself."""
    for path in SOURCES.rglob("*.py"):
        if path != Path(error_codes.__file__):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def given_codes() -> Iterator[str]:
    """Each constant that is given as `code`: to an error, to a finding, as a default or by an assignment."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            values: list[ast.expr | None] = []
            if isinstance(node, ast.Call):
                values = [each.value for each in node.keywords if each.arg == "code"]
            elif isinstance(node, ast.FunctionDef):
                pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                values = [default for argument, default in pairs if argument.arg == "code"]
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "Code":
                values = [node.value]
            yield from (each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_each_code_has_a_section_and_each_section_a_code() -> None:
    assert set(explanations()) == CODES


def test_each_code_is_used() -> None:
    assert CODES - set(constants()) == set()


def test_each_code_that_is_used_is_listed() -> None:
    used = set(given_codes())
    assert len(used) > 100
    assert used <= CODES


def test_the_list_is_in_order_and_each_code_is_words_joined_by_hyphens() -> None:
    listed = get_args(error_codes.Code)
    assert list(listed) == sorted(listed)
    assert [code for code in listed if not re.fullmatch(r"[a-z]+(-[a-z]+)+", code)] == []


def test_no_section_is_passed_over_because_of_its_form() -> None:
    assert re.findall(r"^### (.*)$", manual.page("errors"), re.MULTILINE) == [*explanations()]
    for each in explanations().values():
        assert "**Cure" not in each.cause + each.cure + each.cured, each.code
        assert 15 < len(each.summary) < 160, each.code


def test_the_settings_of_a_cure_are_taken(tmp_path: Path) -> None:
    base = {"CDCD_SOURCE__DSN": "dbname=shop", "CDCD_SINK__BOOTSTRAP_SERVERS": "localhost:9092"}
    given = [each for each in blocks() if each.language == "toml"]
    assert len(given) > 30
    file = tmp_path / "cdcd.toml"
    for each in given:
        file.write_text(each.text)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in base.items():
                patch.setenv(name, value)
            loading.load(str(file), {})


def test_the_table_of_requests_takes_every_action() -> None:
    [shown] = [each.text for each in blocks() if "cdcd.requests (\n" in each.text]
    assert " ".join(CREATE_TABLE.split()) in " ".join(shown.split())


def test_an_error_ends_in_its_code() -> None:
    error = RequestRejected("No slot is free", "Drop one", code="slots-exhausted")
    assert str(error) == "No slot is free. Drop one [slots-exhausted]"
    assert str(CdcdError("It is gone", code="slot-lost")) == "It is gone [slot-lost]"
    assert sentence("Good", "", None) == "Good"


def test_a_log_in_json_has_the_code_as_a_field_and_a_text_has_it_once() -> None:
    error = RequestRejected("No slot is free", "Drop one", code="slots-exhausted")
    passed = logging.makeLogRecord({"name": "cdcd.test", "levelname": "ERROR", "msg": "%s", "args": (error,)})
    given = logging.makeLogRecord(
        {"name": "cdcd.test", "levelname": "ERROR", "msg": "x [slot-lost]", "code": "slot-lost"}
    )
    as_json = [json.loads(JsonFormatter().format(record))["code"] for record in (passed, given)]
    assert as_json == ["slots-exhausted", "slot-lost"]
    assert TextFormatter().format(passed).endswith("ERROR test: No slot is free. Drop one [slots-exhausted]")
    assert TextFormatter().format(given).endswith("ERROR test: x [slot-lost]")


def _run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main.main(["explain", *arguments]) == code
    done = capsys.readouterr()
    return done.err if code else done.out


def test_explain_lists_every_code_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    listed = re.findall(r"^  (\S+)  +\S", _run(capsys), re.MULTILINE)
    assert set(listed) == CODES
    assert len(listed) == len(CODES)


def test_explain_shows_the_section_of_a_code_also_if_it_was_copied_with_its_brackets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = _run(capsys, "slot-lost")
    assert shown.startswith("## slot-lost\n")
    assert shown.removeprefix("## slot-lost\n").strip() in manual.page("errors")
    assert _run(capsys, "[slot-lost]") == shown


def test_explain_names_the_nearest_of_a_code_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean slot-lost? [arguments-invalid]" in _run(capsys, "slot-lst", code=2)


def test_explain_gives_programs_json(capsys: pytest.CaptureFixture[str]) -> None:
    [found] = map(json.loads, _run(capsys, "slot-lost", "--json").splitlines())
    assert {*found} == {"code", "group", "summary", "cause", "cure", "cured"}
    assert 'on_slot_lost = "repair"' in found["cure"]
    assert "cdcd verify" in found["cured"]
    assert {each["code"] for each in map(json.loads, _run(capsys, "--json").splitlines())} == CODES


def test_the_parser_ends_a_wrong_argument_in_a_code_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["verify", "--wait", "soon"])
    assert capsys.readouterr().err.endswith("[arguments-invalid]\n")


def test_the_manual_and_check_raise_the_limit_of_a_topic_to_one_value() -> None:
    pages = "".join(manual.page(topic) for topic in manual.TOPICS)
    assert set(re.findall(r"max\.message\.bytes=(\d+)", pages)) == {str(RAISED_RECORD_BYTES)}
