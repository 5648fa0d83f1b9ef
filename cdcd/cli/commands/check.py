"""`cdcd check`: prints whether `cdcd run` would work, and a hint for each problem. It changes nothing.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TextIO

from cdcd import __version__
from cdcd.cli.commands import Load
from cdcd.config.settings import Settings
from cdcd.preflight.check import findings
from cdcd.preflight.findings import Finding, Level
from cdcd.sink.acls import Places
from cdcd.terminal.output import Control
from cdcd.terminal.screen import has_colour
from cdcd.terminal.text_format import plural

_COLOURS: Final = {Level.OK: "32", Level.WARNING: "33", Level.ERROR: "31"}


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Print the findings; return True if none of them is an error."""
    return check(load().settings, out, as_json=args.json)


def check(settings: Settings, out: TextIO, *, as_json: bool) -> bool:
    """Write each finding to `out` as soon as it is made, one line each; return True if none is an error.

    The last line sums up; the JSON has no such line.
    """
    found = []
    for made in findings(settings):
        finding = filled(made, settings.places)
        found.append(finding)
        if as_json:
            out.write(f"{_as_json(finding)}\n")
        else:
            show(finding, out)
        out.flush()
    if not as_json:
        out.write(f"{summary(found)}\n")
    return all(finding.level is not Level.ERROR for finding in found)


def filled(finding: Finding, places: Places) -> Finding:
    """The finding, with a hint whose commands name these places."""
    return replace(finding, hint=places.filled(finding.hint))


def show(finding: Finding, out: TextIO) -> None:
    """Write the line of a finding."""
    out.writelines(check_lines(finding, colour=has_colour(out)))


def summary(found: Sequence[Finding]) -> str:
    """The last line: what answered, how many findings there are, and whether the daemon would run."""
    seen = ", ".join([f"cdcd {__version__}", *dict.fromkeys(finding.seen for finding in found if finding.seen)])
    counts = Counter(finding.level for finding in found)
    kinds = [plural(counts[level], level.value) for level in (Level.ERROR, Level.WARNING) if counts[level]]
    would = "would not work" if counts[Level.ERROR] else "would work"
    unseen = " and ".join(dict.fromkeys(finding.unseen for finding in found if finding.unseen))
    more = f". {unseen} could not be looked at: run check again after this" if unseen else ""
    return f"{seen}: {', '.join([plural(len(found), 'finding'), *kinds])}. cdcd run {would}{more}"


def check_lines(finding: Finding, *, colour: bool) -> list[str]:
    """The parts of the line `error    wal_level is replica, and must be logical. Run: ...`."""
    level = f"{finding.level.value:8}"
    said = f" {finding}\n"
    if not colour:
        return [f"{level}{said}"]
    return [Control(f"\x1b[{_COLOURS[finding.level]}m"), level, Control("\x1b[0m"), said]


def _as_json(finding: Finding) -> str:
    content = {"level": finding.level.value, "about": finding.about, "message": finding.message, "hint": finding.hint}
    return json.dumps(content | {"code": finding.code}, ensure_ascii=False)
