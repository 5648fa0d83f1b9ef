"""`cdcd check`: prints whether `cdcd run` would work, and a hint where it would not. Changes nothing.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.preflight import check


def execute(given: Namespace, load: Load, out: TextIO) -> bool:
    """Print the findings; returns whether there is no error among them."""
    return check.check(load().settings, out, as_json=given.json)
