"""`cdcd config`: prints the settings in force, or the reference of all settings.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON.
"""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.config import reference


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Print every setting with its value and origin; with `--reference`, the default file with its comments."""
    if args.reference:
        out.writelines(reference.reference().splitlines(keepends=True))
        return True
    rows = reference.effective(load())
    if args.json:
        content = {key: {"value": value, "from": origin} for key, value, origin in rows}
        out.writelines(f"{line}\n" for line in json.dumps(content, indent=2, ensure_ascii=False).split("\n"))
        return True
    lines = [(f"{key} = {reference.as_toml(value)}", origin) for key, value, origin in rows]
    width = min(60, max(len(setting) for setting, _ in lines))
    out.writelines(f"{setting:{width}}  # {origin}\n" for setting, origin in lines)
    return True
