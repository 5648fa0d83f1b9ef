"""The threat model and the failure model of `cdcd/README.md` name tests that exist."""

from __future__ import annotations

import re

from tidy.tree import ROOT

PAGE = (ROOT / "cdcd" / "README.md").read_text()
_ROW = re.compile(r"^\|.*\| (?:`([a-z_/]+\.py)(?:::(test_\w+))?`|-) \|$", re.MULTILINE)


def lines(heading: str) -> list[str]:
    """The rows of the section's table, without its head and its subtitles."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| **")]
    return rows[1:]


def test_each_line_of_the_models_names_a_test_that_exists() -> None:
    rows = lines("Threat model") + lines("Failure model")
    assert len(rows) > 30
    for row in rows:
        found = _ROW.match(row)
        assert found is not None, f"no test: {row}"
        path, name = found[1], found[2]
        if path is not None:
            file = ROOT / "tests" / path
            assert file.exists(), row
            assert name is None or f"def {name}(" in file.read_text(), row
