"""`cdcd check`: prints whether `cdcd run` would work, and a hint for each problem. It changes nothing.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON.
"""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Final, TextIO

from cdcd.cli.commands import Load
from cdcd.config.settings import Settings
from cdcd.preflight.check import findings
from cdcd.preflight.findings import Finding, Level
from cdcd.terminal.output import Control

_COLOURS: Final = {Level.OK: "32", Level.WARNING: "33", Level.ERROR: "31"}


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Print the findings; return True if none of them is an error."""
    return check(load().settings, out, as_json=args.json)


def check(settings: Settings, out: TextIO, *, as_json: bool) -> bool:
    """Write each finding to `out` as soon as it is made, one line each; return True if none is an error."""
    good = True
    for finding in findings(settings):
        good = good and finding.level is not Level.ERROR
        if as_json:
            out.write(f"{_as_json(finding)}\n")
        else:
            out.writelines(check_lines(finding, colour=out.isatty()))
        out.flush()
    return good


def check_lines(finding: Finding, *, colour: bool) -> list[str]:
    """The parts of the line `error    wal_level is replica, and must be logical. Run: ...`."""
    level = f"{finding.level.value:8}"
    said = f" {finding.message}. {finding.hint}\n" if finding.hint else f" {finding.message}\n"
    if not colour:
        return [f"{level}{said}"]
    return [Control(f"\x1b[{_COLOURS[finding.level]}m"), level, Control("\x1b[0m"), said]


def _as_json(finding: Finding) -> str:
    content = {"level": finding.level.value, "about": finding.about, "message": finding.message, "hint": finding.hint}
    return json.dumps(content, ensure_ascii=False)
