"""`cdcd explain`: says what the code of an error means, what cures it, and how to see that it is cured.

Before: `cli.main` has parsed the options. After: a person reads the section of the manual's page `errors`, or a program
the JSON.
"""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict
from difflib import get_close_matches
from itertools import groupby
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.errors import SettingsError
from cdcd.manual.explanations import Explanation, explanations
from cdcd.terminal.output import Control


def execute(args: Namespace, load: Load, out: TextIO) -> bool:  # noqa: ARG001  # this command needs no settings
    """Show the section of a code; without one, all codes."""
    known = explanations()
    if args.code is None:
        chosen = list(known.values())
    else:
        chosen = [_of(args.code.strip("[] ").lower(), known)]
    if args.json:
        out.writelines(f"{_as_json(each)}\n" for each in chosen)
    elif args.code is None:
        _list(chosen, out)
    else:
        out.write(Control(chosen[0].text))
    return True


def _of(code: str, known: dict[str, Explanation]) -> Explanation:
    """The explanation of a code, also of one that stands in brackets, as in a message. Raises SettingsError."""
    found = known.get(code)
    if found is None:
        near = get_close_matches(code, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else "cdcd explain, without a code, lists them"
        raise SettingsError(f"There is no code {code}", hint, code="arguments-invalid")
    return found


def _list(all_: list[Explanation], out: TextIO) -> None:
    width = max(len(each.code) for each in all_)
    for group, members in groupby(all_, lambda each: each.group):
        out.write(f"{group}\n")
        out.writelines(f"  {each.code:{width}}  {each.summary}\n" for each in members)
        out.write("\n")
    out.write("To read about a code: cdcd explain CODE. An error ends in its code: [slot-lost].\n")


def _as_json(each: Explanation) -> str:
    return json.dumps(asdict(each) | {"summary": each.summary}, ensure_ascii=False)
