from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from cdcd.monitoring import log_setup


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger("cdcd")
    before = (root.handlers, root.level, root.propagate)
    yield
    root.handlers, root.level, root.propagate = before


def lines(form: str, level: str = "info") -> io.StringIO:
    out = io.StringIO()
    log_setup.set_up(level, form, out)
    return out


def test_a_text_line_names_level_component_message_and_what_it_is_about() -> None:
    out = lines("text")
    logging.getLogger("cdcd.sink").info("committed", extra={"rows": 12, "lsn": "16/B374D848"})
    time, rest = out.getvalue().split(" ", 1)
    assert rest == "INFO sink: committed rows=12 lsn=16/B374D848\n"
    assert time.endswith("Z")


def test_no_value_breaks_a_text_line_in_two() -> None:
    out = lines("text")
    logging.getLogger("cdcd.sink").info("odd", extra={"error": 'two\nlines "and" more'})
    assert out.getvalue().count("\n") == 1
    assert 'error="two\\nlines \\"and\\" more"' in out.getvalue()


def test_a_json_line_is_one_object_with_the_same_content() -> None:
    out = lines("json")
    logging.getLogger("cdcd.source").warning("slow", extra={"slot": "é"})
    content = json.loads(out.getvalue())
    assert content.pop("time").endswith("Z")
    assert content == {"level": "warning", "component": "source", "message": "slow", "slot": "é"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_written_with_its_traceback(form: str) -> None:
    out = lines(form)
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("cdcd.sink").exception("failed")
    assert "ValueError: boom" in out.getvalue()
    assert form == "text" or json.loads(out.getvalue())["traceback"].startswith("Traceback")


def test_lines_below_the_level_are_not_written() -> None:
    out = lines("text", "warning")
    logging.getLogger("cdcd.sink").info("quiet")
    assert out.getvalue() == ""


def test_setting_up_twice_does_not_write_twice() -> None:
    lines("text")
    out = lines("text")
    logging.getLogger("cdcd.sink").info("once")
    assert out.getvalue().count("once") == 1


def test_a_summary_is_logged_at_most_once_an_interval_and_loses_no_count() -> None:
    out = lines("json")
    summary = log_setup.Summary(logging.getLogger("cdcd.sink"), "published", interval_s=1.0)
    for tenth in range(25):
        summary.add(100 + tenth / 10, {"rows": 2}, {"lsn": tenth})
    summary.flush(103.5)
    summary.flush(110)
    written = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["rows"] for line in written] == [2, 20, 20, 8]
    assert [line["lsn"] for line in written] == [0, 10, 20, 24]


def test_the_very_first_line_can_be_made_to_wait_and_loses_no_count() -> None:
    out = lines("json")
    summary = log_setup.Summary(
        logging.getLogger("cdcd.daemon.pipeline"), "published snapshot rows", interval_s=5.0, first_after_s=1.0
    )
    for half in range(20):
        summary.add(100 + half / 2, {"rows": 2}, {})
    assert [json.loads(line)["rows"] for line in out.getvalue().splitlines()] == [6, 20]


def test_the_first_event_after_a_quiet_time_is_logged_at_once() -> None:
    out = lines("text")
    summary = log_setup.Summary(logging.getLogger("cdcd.sink"), "published")
    summary.add(0.0, {"rows": 1}, {})
    summary.add(60.0, {"rows": 5}, {})
    assert out.getvalue().splitlines()[1].endswith("published rows=5")
