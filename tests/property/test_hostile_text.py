"""Whatever text comes from outside, no output steers a terminal, forges a line or ceases to be JSON."""

from __future__ import annotations

import io
import json
import logging
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import TextIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.cli import main
from cdcd.cli.commands.check import check_lines
from cdcd.cli.commands.peeked_events import PeekedEvent
from cdcd.cli.commands.tail import TailedEvent
from cdcd.cli.commands.verify import as_json, as_text
from cdcd.errors import RequestRejected
from cdcd.monitoring import log_setup
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import Status
from cdcd.monitoring.status_page import render
from cdcd.monitoring.status_report import Document, report
from cdcd.monitoring.status_report import as_json as status_json
from cdcd.monitoring.status_text import Display, lines
from cdcd.preflight.findings import Finding, Level
from cdcd.snapshot.table_progress import SnapshotProgress, TableProgress
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.output import Output
from cdcd.terminal.progress_bar import CLEAR, ProgressBar
from cdcd.terminal.text_width import width
from cdcd.verify.comparison import CHANGED, Difference, TableResult

STEERING = "\x00\x07\x08\x1b\x9b\x9d\x85\x7f\r\n\t\u2028\u2029\u202e\u2066\u2069\u061c\ud800"
hostile = st.text(st.sampled_from(STEERING + "\"'<>&=\\ ]52;cab1") | st.characters(), max_size=40)

BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def assert_harmless(text: str, lines: int | None = None) -> None:
    """Only line breaks are control characters, and there are as many of them as lines."""
    if lines is not None:
        assert text.count("\n") == lines, text
    for character in text.replace("\n", ""):
        assert unicodedata.category(character) not in {"Cc", "Cs", "Zl", "Zp"}, repr(character)
        assert unicodedata.bidirectional(character) not in BIDI, repr(character)
    text.encode()


def printed(write: Callable[[TextIO], object]) -> str:
    """What a command that writes to standard output shows."""
    out = io.StringIO()
    write(cast("TextIO", Output(out)))
    return out.getvalue()


def printed_lines(lines: list[str]) -> str:
    return printed(lambda out: out.writelines(f"{line}\n" for line in lines))


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, last = logging.getLogger("cdcd"), logging.lastResort
    before = (root.handlers, root.level, root.propagate)
    yield
    root.handlers, root.level, root.propagate = before
    logging.lastResort = last


def event(column: str, value: str) -> dict[str, object]:
    return {
        "op": "u",
        "source": {"commit_lsn": 16, "lsn": 16, "seq": 0, "xid": 7},
        "before": None,
        "after": {column: value, "n": [value]},
        "unchanged": [column],
        "unrepresentable": [{"image": "after", "column": column, "text": value}],
    }


@given(hostile, hostile, hostile)
def test_tail_shows_a_row_in_its_own_lines(topic: str, column: str, value: str) -> None:
    tailed = TailedEvent(topic, 0, 0, 0, {column: value}, event(column, value))
    lines = tailed.as_text()
    assert len(lines) == 4
    assert_harmless(printed(lambda out: out.writelines(f"{line}\n" for line in lines)), 4)
    shown = printed(lambda out: out.write(f"{tailed.as_json()}\n"))
    assert_harmless(shown, 1)
    assert json.loads(shown)["value"]["after"][column] == (value if column != "n" else [value])


FIELDS = [
    "op",
    "source",
    "commit_lsn",
    "seq",
    "xid",
    "before",
    "after",
    "unchanged",
    "unrepresentable",
    "truncate",
    "column",
]
anything = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inside, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(FIELDS), anything), anything, st.integers(-(1 << 63), (1 << 63) - 1))
def test_tail_shows_a_record_that_another_program_has_written(
    value: dict[str, object], key: object, time_ms: int
) -> None:
    for each in (value, {**value, "source": {}}, {**value, "source": {"commit_lsn": 1, "seq": 1, "xid": 1}}):
        lines = TailedEvent("topic", 0, 5, time_ms, key, each).as_text()
        assert_harmless(printed_lines(lines), len(lines))


@given(hostile, hostile, hostile)
def test_peek_shows_an_event_in_one_line(table: str, column: str, value: str) -> None:
    peeked = PeekedEvent("public", table, {column: value}, event(column, value), "u")
    of_outbox = PeekedEvent("", table, value, {column: value}, "c")
    for each in (peeked, of_outbox, replace(peeked, value={column: value}, is_flat=True)):
        assert_harmless(printed_lines([each.as_text(table)]), 1)
    shown = printed(lambda out: out.write(f"{peeked.as_json(table)}\n"))
    assert_harmless(shown, 1)
    assert json.loads(shown)["topic"] == table


@given(hostile, hostile, hostile)
def test_verify_shows_a_key_in_one_line(table: str, column: str, value: str) -> None:
    result = TableResult(table, table, 16, 1, 1, 1, False, (Difference(table, CHANGED, {column: value, "x": None}),))
    assert_harmless(printed(lambda out: out.writelines(f"{line}\n" for line in as_text(result))), 2)
    assert_harmless(printed(lambda out: out.writelines(f"{line}\n" for line in as_json(result))), 2)
    assert json.loads(printed(lambda out: out.write(as_json(result)[0])))["key"][column] == (
        value if column != "x" else None
    )


@given(hostile, hostile)
def test_check_shows_a_finding_in_one_line_and_only_the_level_has_a_colour(message: str, hint: str) -> None:
    finding = Finding(Level.ERROR, "server", message, hint)
    assert_harmless(printed(lambda out: out.writelines(check_lines(finding, colour=False))), 1)
    coloured = printed(lambda out: out.writelines(check_lines(finding, colour=True)))
    assert coloured.startswith("\x1b[31merror   \x1b[0m ")
    assert_harmless(coloured.removeprefix("\x1b[31merror   \x1b[0m "), 1)


@given(hostile)
def test_an_error_is_one_line_on_standard_error(message: str) -> None:
    def fail(*_: object) -> bool:
        raise RequestRejected(message, "Do it", code="statement-refused")

    with pytest.MonkeyPatch.context() as patch:
        said = io.StringIO()
        patch.setattr("sys.stderr", said)
        assert main.main(["config"], lambda _: fail) == 1
        assert_harmless(said.getvalue(), 1)
        assert main.main(["config", "--log-level", "debug"], lambda _: fail) == 1
        assert_harmless(said.getvalue())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(hostile)
def test_a_progress_bar_stays_in_its_line(text: str) -> None:
    out = Terminal()
    ProgressBar(out).show(text, 0.5)
    assert_harmless(out.getvalue().removeprefix(CLEAR), 0)


@given(hostile, hostile, st.sampled_from(["text", "json"]))
def test_no_name_or_message_forges_a_line_of_the_log(message: str, name: str, form: str) -> None:
    out = io.StringIO()
    log_setup.set_up("info", form, out)
    logging.getLogger("cdcd.sink").warning("refused: %s", message, extra={"table": name})
    assert_harmless(out.getvalue(), 1)
    if form == "json":
        content = json.loads(out.getvalue())
        assert (content["message"], content["table"]) == (f"refused: {message}", name)
    else:
        assert out.getvalue().split(" ", 1)[1].startswith("WARNING sink: refused: ")


@given(hostile)
def test_no_message_forges_a_line_of_the_log_from_inside_a_traceback(message: str) -> None:
    out = io.StringIO()
    log_setup.set_up("info", "text", out)
    try:
        raise ValueError(message)
    except ValueError:
        logging.getLogger("cdcd.sink").exception("failed")
    assert_harmless(out.getvalue())
    first, *rest = out.getvalue().split("\n")[:-1]
    assert first.endswith("ERROR sink: failed")
    assert all(line.startswith("    ") for line in rest)


class Outline(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(f"{tag} {sorted(name for name, _ in attrs)}")


def document(name: str, message: str) -> Document:
    status = Status(Identity("1.0", name, name, "pure", name, name, name, name, name), 1000.0)
    status.servers.kafka = status.servers.postgresql = name
    status.published.add(1001.0, 1, {f"public.{name}": 3})
    table = TableProgress("public", name, 10, 5, 2, is_done=False)
    status.snapshot = lambda _: SnapshotProgress(is_read=True, lsn=16, tables=(table,))
    status.parked = {name: message}
    status.errors.add(1001.0, RequestRejected(message, message, code="statement-refused"))
    return report(status, 1002.0, 10_000_000)


def page(name: str, message: str) -> str:
    return render(document(name, message))


@given(hostile.filter(bool), hostile.filter(bool))
def test_the_page_has_the_same_elements_whatever_a_name_or_a_message_is(name: str, message: str) -> None:
    shown = page(name, message)
    assert_harmless(shown)
    assert Outline(shown).tags == Outline(page("a", "b")).tags


@given(hostile.filter(bool), hostile.filter(bool), st.integers(1, 200))
def test_the_status_on_a_terminal_has_the_same_lines_whatever_a_name_or_a_message_is(
    name: str, message: str, columns: int
) -> None:
    found = json.loads(status_json(document(name, message)))
    assert_harmless(status_json(found))
    shown = lines(found, Display())
    assert_harmless("\n".join(shown))
    assert len(shown) == len(lines(document("a", "b"), Display()))
    narrow = lines(found, Display(columns, has_blocks=True))
    assert_harmless("\n".join(narrow))
    assert all(width(line) <= max(columns, 20) for line in narrow), narrow


def test_no_command_that_is_shown_runs_what_stands_in_the_name_of_a_table() -> None:
    name = qualified_name("public", "$(exit 7)")
    inert = """'public."$(exit 7)"'"""
    assert f"cdcd unpark {inert}" in unescape(page(name, "too large"))
    result = TableResult(name, "topic", 16, 1, 1, 1, False, (), other_keys=(("id",),))
    assert as_text(result)[0].endswith(f"run cdcd snapshot {inert}")


@given(hostile)
def test_a_label_of_a_metric_is_harmless(name: str) -> None:
    metrics = Metrics("pure")
    metrics.published(1, {(f"public.{name}", "c"): 1}, 10, 0.1)
    assert_harmless(metrics.exposition(Status(Identity("1.0", "slot", "pub"), 0.0), 0.0, 0).decode())
