"""The page about sizing says no number that the measurements do not have."""

from __future__ import annotations

import re

import pytest
from support.pages import ROOT

from cdcd import manual

ROWS = re.findall(r"^\| (?!what|---)([^|]*) \| ([^|]*) \| ([^|]*) \|$", manual.page("sizing"), re.MULTILINE)
SOURCES = {
    "benchmarks": (ROOT / "tests" / "bench" / "README.md").read_text(),
    "the proofs": (ROOT / "tests" / "README.md").read_text(),
}


def rows() -> list[tuple[str, str, str]]:
    """What was measured, the numbers, and the source, which is that of the row above if it says so."""
    found, last = [], ""
    for what, measured, where in ROWS:
        last = last if where == "the same" else re.findall(r"\[([^]]*)\]", where)[0]
        found.append((what, measured, last))
    return found


@pytest.mark.parametrize(("what", "measured", "source"), rows())
def test_each_number_is_one_that_was_measured(what: str, measured: str, source: str) -> None:
    numbers = re.findall(r"\d[\d,.]*\d|\d", measured)
    assert numbers, what
    for number in numbers:
        assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)", SOURCES[source]), f"{what}: {number}"
