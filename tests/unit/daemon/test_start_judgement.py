"""A start is refused for an error of the judges, and says their warnings once."""

from __future__ import annotations

import logging

import pytest

from cdcd.daemon.start_judgement import StartJudgement
from cdcd.errors import RequestRejected
from cdcd.preflight.findings import error, ok, warning


def test_an_error_refuses_the_start_with_its_hint_and_says_how_many_there_are() -> None:
    with pytest.raises(RequestRejected, match=r"^no slot \(1 more: run cdcd check\)\. make it \[slot-missing\]$"):
        StartJudgement().accept(
            [
                ok("a", "good"),
                error("b", "no slot", "make it", code="slot-missing"),
                error("c", "no right", "grant it", code="select-missing"),
            ]
        )


def test_a_warning_is_logged_once_in_the_life_of_the_process(caplog: pytest.LogCaptureFixture) -> None:
    judgement = StartJudgement()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            judgement.accept(
                [
                    ok("a", "good"),
                    warning("b", "odd", "look", code="slot-behind"),
                    warning("c", "odder", "look", code="table-unkeyed"),
                ]
            )
    assert [record.getMessage() for record in caplog.records] == [
        "odd. look [slot-behind]",
        "odder. look [table-unkeyed]",
    ]


def test_a_warning_whose_figures_have_changed_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    judgement = StartJudgement()
    for size in range(3):
        judgement.accept([warning("slot", f"the server keeps {size} GB", "look", code="slot-behind")])
    assert [record.getMessage() for record in caplog.records] == ["the server keeps 0 GB. look [slot-behind]"]


def test_warnings_are_said_before_the_start_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RequestRejected):
        StartJudgement().accept(
            [error("b", "no slot", "make it", code="slot-missing"), warning("c", "odd", "look", code="slot-behind")]
        )
    assert "odd. look" in caplog.text
