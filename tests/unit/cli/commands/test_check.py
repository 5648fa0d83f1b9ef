from __future__ import annotations

from cdcd.cli.commands.check import check_lines
from cdcd.preflight.findings import Finding, Level


def test_a_finding_is_one_line_that_opens_with_its_level() -> None:
    finding = Finding(Level.ERROR, "wal_level", "wal_level is replica", "Run: ALTER SYSTEM")
    assert check_lines(finding, colour=False) == ["error    wal_level is replica. Run: ALTER SYSTEM\n"]
    assert "".join(check_lines(finding, colour=True)).startswith("\x1b[31merror")
