"""`cdcd completion`: prints a script. With it, a shell completes cdcd's commands and options.

Before: `cli.main` has parsed the options. After: a shell reads the script.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TextIO

import shtab

from cdcd.cli.commands import Load
from cdcd.cli.parser import build_parser
from cdcd.terminal.output import Control


def execute(args: Namespace, load: Load, out: TextIO) -> bool:  # noqa: ARG001  # this command needs no settings
    """Print the script for the shell that the options name."""
    out.write(Control(shtab.complete(build_parser(), args.shell) + "\n"))
    return True
