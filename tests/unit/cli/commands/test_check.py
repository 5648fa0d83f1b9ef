from __future__ import annotations

from cdcd.cli.commands.check import as_text
from cdcd.preflight.findings import Finding, Level


def test_a_finding_is_one_line_that_opens_with_its_level() -> None:
    finding = Finding(Level.ERROR, "wal_level", "wal_level is replica", "Run: ALTER SYSTEM")
    assert as_text(finding, colour=False) == "error    wal_level is replica. Run: ALTER SYSTEM"
    assert as_text(finding, colour=True).startswith("\x1b[31merror")
